// Many answers at once: one pass over the weights for all that decode, and pieces of prompts in between.
//
// What a job has to compute is always what its tokens are beyond those that its slot has cached: one row for an answer
// that decodes, many for a prompt, and all of them for one that had to give up its slot or whose device was lost.
import { abortable, WebpteError } from "../errors.js";
import { Choosing, impossible } from "./choices.js";
import { Slots } from "./slots.js";

/** @typedef {import("./choices.js").Chosen} Chosen */
/** @typedef {import("./settings.js").Settings} Settings */
/** @typedef {"stop" | "length"} Finish */

const MOST_WAITING = 1024;
const AHEAD = 16; // tokens that are computed before anyone has read those before them
const LATENCY = 50; // milliseconds between two bursts of text that a reader takes for a stream
const MOST_STEPS = 8; // tokens of each answer in one submit

/** One answer under way. */
export class Job {
  /** Not yet read, with what ends by them. @type {{chosen: Chosen, finish: Finish | null}[]} */
  coming = [];
  /** @type {Finish | null} */
  finish = null;
  /** @type {unknown} */
  error = null;
  /** @type {import("./slots.js").Slot | null} */
  slot = null;
  /** Tokens of the prompt that were cached. @type {number | null} */
  reused = null;
  milliseconds = { prefill: 0, decode: 0 };
  dropped = false;
  /** Called when something has come. */
  wake = () => {};

  /**
   * @param {number[]} prompt
   * @param {Settings} settings
   * @param {{ends: Set<number>, capacity: number, mostEdits: number}} limits
   * @param {import("./schema_masks.js").Guide | null} guide
   */
  constructor(prompt, settings, limits, guide) {
    this.tokens = [...prompt];
    this.prompt = prompt.length;
    this.settings = settings;
    this.limits = limits;
    this.guide = guide;
    this.choosing = new Choosing(settings, prompt, limits.mostEdits);
  }

  get over() {
    return this.finish !== null || this.error !== null || this.dropped;
  }

  get chosen() {
    return this.tokens.length - this.prompt;
  }

  /** Tokens that are not cached. */
  get left() {
    return this.tokens.length - (this.slot?.tokens.length ?? 0);
  }

  /** How many tokens may be chosen without looking at those before them. */
  get mostSteps() {
    if (this.guide || !this.choosing.steady) return 1;
    return Math.min(this.settings.max_tokens - this.chosen, this.limits.capacity - this.tokens.length + 1);
  }

  next() {
    return this.choosing.choice(this.chosen, this.guide?.mask() ?? null);
  }

  /** Tokens that follow each other; those behind an end are none. @param {Chosen[]} chosen */
  give(chosen) {
    for (const found of chosen) {
      if (this.over) return;
      if (found.token < 0) {
        if (found === chosen[0]) throw impossible(found.token, this.tokens.length - 1);
        return; // it comes first when what follows the good ones is computed
      }
      this.tokens.push(found.token);
      this.choosing.add(found.token);
      const { ends, capacity } = this.limits;
      const ended = ends.has(found.token);
      if (!ended) this.guide?.take(found.token);
      if (ended || this.guide?.ended) this.finish = "stop";
      else if (this.chosen >= this.settings.max_tokens || this.tokens.length > capacity) this.finish = "length";
      this.coming.push({ chosen: found, finish: this.finish });
    }
  }
}

/** Slots, a queue in front of them, and ticks, as long as somebody waits for a token. */
export class Engine {
  slots;
  /** @type {Job[]} */
  #waiting = [];
  /** Those that have a slot; who was served longest ago comes first. @type {Job[]} */
  #active = [];
  #ticking = false;
  #readNext = true;
  /** Steps to take in one submit, by the number of rows. @type {number[]} */
  #steps = [];
  /** Least milliseconds of a pass that reads so many rows; of one that decodes at 0. @type {number[]} */
  #costs = [];
  #program;

  /** @param {any} program */
  constructor(program) {
    this.#program = program;
    this.slots = new Slots(program);
  }

  /** Queue a job. @param {Job} job */
  start(job) {
    if (this.#waiting.length >= MOST_WAITING) {
      throw new WebpteError("queue-full", `${MOST_WAITING} answers wait already; read or stop some of them first`);
    }
    this.#waiting.push(job);
  }

  /** The next token of a job; undefined behind the last. @param {Job} job @param {AbortSignal | null} [signal] */
  async next(job, signal) {
    while (!job.coming.length && !job.over) {
      if (!job.slot && !this.#waiting.includes(job)) this.#waiting.push(job); // it had to give up its slot
      const change = new Promise((resolve) => (job.wake = () => resolve(null)));
      this.#run();
      await abortable(change, signal);
    }
    if (!job.coming.length && job.error) throw job.error;
    return job.coming.shift();
  }

  /** Nobody wants the rest. @param {Job} job */
  drop(job) {
    job.dropped = true;
    if (!this.#ticking) this.#leave();
  }

  async #run() {
    if (this.#ticking) return;
    this.#ticking = true;
    try {
      while (await this.#tick());
    } finally {
      this.#ticking = false;
    }
  }

  /** One pass for all that take part; whether there was anything to do. */
  async #tick() {
    try {
      this.slots.noticeLoss();
      this.#leave();
      await this.#admit();
      const ready = this.#active.filter((job) => job.coming.length < AHEAD);
      const reading = ready.filter((job) => job.left > 1);
      const decoding = ready.filter((job) => job.left === 1);
      this.#readNext = reading.length > 0 && (this.#readNext || !decoding.length);
      if (this.#readNext) await this.#read(reading[0], decoding.length > 0);
      else if (decoding.length) await this.#decode(decoding, !reading.length);
      this.#readNext = !this.#readNext;
      return ready.length > 0;
    } catch (error) {
      return this.#survive(error);
    }
  }

  /** Go on behind the loss of a device; anything else ends all answers. @param {any} error */
  async #survive(error) {
    try {
      if (error?.code !== "device-lost") throw error;
      await this.#program.recover();
      this.slots.noticeLoss(true);
    } catch (worse) {
      for (const job of [...this.#active, ...this.#waiting]) this.#fail(job, worse);
      this.#leave();
    }
    return this.#active.length + this.#waiting.length > 0;
  }

  /** @param {Job} job @param {unknown} error */
  #fail(job, error) {
    job.error ??= error;
    job.wake();
  }

  /** See to those that are over. */
  #leave() {
    for (const job of this.#active) {
      if (job.over && job.slot) job.slot.owner = job.slot = null;
    }
    this.#active = this.#active.filter((job) => !job.over);
    this.#waiting = this.#waiting.filter((job) => !job.over);
  }

  /** Give slots to those who wait, in the order of coming. */
  async #admit() {
    while (this.#waiting.length) {
      const [job] = this.#waiting;
      const reusable = job.tokens.slice(0, -1); // what comes behind the last one has not been kept
      const slot = this.slots.vacant(reusable);
      if (slot) {
        job.slot = slot;
        const cached = this.slots.give(slot, job, reusable);
        job.reused ??= cached;
        this.#waiting.shift();
        this.#active.push(job);
      } else if (!(await this.slots.grow()) && !this.#evict()) {
        return;
      }
    }
  }

  /** Take the slot of an answer that nobody reads: it is computed again when somebody does. */
  #evict() {
    const idle = this.#active.find((job) => job.coming.length >= AHEAD);
    if (!idle?.slot) return false;
    idle.slot.owner = idle.slot = null;
    this.#active = this.#active.filter((job) => job !== idle);
    return true;
  }

  /** A piece of a prompt: a smaller one where others wait for tokens. @param {Job} job @param {boolean} others */
  async #read(job, others) {
    const slot = /** @type {import("./slots.js").Slot} */ (job.slot);
    const rest = job.tokens.slice(slot.tokens.length, -1);
    const { rows } = this.slots.piece(rest.length, others ? this.#mostRows() : Infinity);
    const started = performance.now();
    await this.slots.read(slot, rest.slice(0, rows), rows);
    this.#count([job], rows, performance.now() - started);
  }

  /** Rows of a piece that take no longer than two passes of those who wait for tokens, as far as that is known. */
  #mostRows() {
    let most = 0;
    for (const rows of this.slots.piece(1).sizes) {
      most = rows;
      if (!(this.#costs[rows] <= 2 * this.#costs[0])) break; // what has not been tried is, one size after the other
    }
    return most;
  }

  /** @param {Job[]} jobs @param {boolean} alone nobody waits to read a prompt */
  async #decode(jobs, alone) {
    /** @type {import("./slots.js").Row[]} */
    const rows = [];
    const taking = jobs.filter((job) => {
      try {
        const [slot, token] = /** @type {[any, any]} */ ([job.slot, job.tokens.at(-1)]);
        rows.push({ slot, token, choice: job.next() });
        return true;
      } catch (error) {
        return this.#fail(job, error);
      }
    });
    if (!taking.length) return;
    const usual = alone ? (this.#steps[taking.length] ?? 1) : 1;
    const steps = Math.min(usual, ...taking.map((job) => job.mostSteps));
    const started = performance.now();
    const found = await this.slots.decode(rows, steps);
    const passed = performance.now() - started;
    this.#steps[taking.length] = Math.max(1, Math.min(Math.floor((LATENCY * steps) / passed), 2 * steps, MOST_STEPS));
    this.#count(taking, 0, passed, steps);
    taking.forEach((job, row) =>
      this.#hand(
        job,
        rows[row],
        found.map((step) => step[row]),
      ),
    );
  }

  /** @param {Job} job @param {import("./slots.js").Row} row @param {Chosen[]} chosen */
  #hand(job, { slot, token }, chosen) {
    const bad = chosen.findIndex((found) => found.token < 0);
    const good = bad < 0 ? chosen : chosen.slice(0, bad);
    if (good.length) slot.tokens.push(token, ...good.slice(0, -1).map((found) => found.token));
    try {
      job.give(chosen);
      job.wake();
    } catch (error) {
      this.#fail(job, error);
    }
  }

  /** What a pass took, and who had it. @param {Job[]} jobs @param {number} rows @param {number} passed milliseconds */
  #count(jobs, rows, passed, steps = 1) {
    this.#costs[rows] = Math.min(this.#costs[rows] ?? Infinity, passed / steps);
    for (const job of jobs) job.milliseconds[job.chosen ? "decode" : "prefill"] += passed;
    this.#active = [...this.#active.filter((job) => !jobs.includes(job)), ...jobs];
  }
}
