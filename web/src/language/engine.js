// Continuous batching: one decode step for all requests that generate, and prefill steps in between.
//
// A request has to compute the tokens that its slot has not cached: one for a request that generates, many for a prompt,
// and all of them for a request that was preempted or whose device was lost.
import { abortable, WebpteError } from "../errors.js";
import { KvSlots } from "./kv_slots.js";
import { isToken } from "./parts.js";
import { LogitsProcessor, logitsError } from "./sampling.js";

/** @typedef {import("./sampling.js").SampledToken} SampledToken */
/** @typedef {import("./settings.js").SamplingParams} SamplingParams */
/** @typedef {"stop" | "length"} FinishReason */

const MAX_QUEUE_SIZE = 1024; // requests
const MAX_UNREAD_TOKENS = 16; // a request with as many is not computed until its caller reads some
const SUBMIT_MS = 50; // what a submit of several decode steps may take, so that text still streams
const MAX_STEPS_PER_SUBMIT = 8;

/** @type {Omit<import("./images/prompts.js").ImageRows, "ids">} */
export const NO_IMAGES = { inputs: new Map(), ends: [], offsets: [[0, 0, 0]] };

/** One answer: its tokens, its progress, and the tokens that its caller has not read yet. */
export class GenerationRequest {
  /** Not read yet: tokens, and the number of cached tokens of the prompt after each step that computes some.
   * @type {({sampled: SampledToken, finish: FinishReason | null} | {numComputed: number})[]} */
  output = [];
  reportsProgress = false; // of the prompt
  /** @type {FinishReason | null} */
  finish = null;
  /** @type {unknown} */
  error = null;
  /** @type {import("./kv_slots.js").Slot | null} */
  slot = null;
  /** Tokens of the prompt that were cached. @type {number | null} */
  numCached = null;
  milliseconds = { prefill: 0, decode: 0 };
  aborted = false;
  /** Called when there is new output. */
  wake = () => {};

  /**
   * @param {number[]} prompt
   * @param {SamplingParams} settings
   * @param {{ends: Set<number>, context: number, maxAdjustments: number}} limits
   * @param {import("./grammar_matcher.js").GrammarMatcher | null} matcher of the answer, after a thought
   * @param {import("./thinking.js").ReasoningSplitter | null} splitter
   * @param {typeof NO_IMAGES} images of the prompt
   */
  constructor(prompt, settings, limits, matcher, splitter = null, images = NO_IMAGES) {
    this.images = images;
    this.tokens = [...prompt];
    this.numPrompt = prompt.length;
    this.settings = settings;
    this.limits = limits;
    this.matcher = matcher;
    this.splitter = splitter;
    this.stage = splitter?.state ?? "answer"; // of the tokens; the splitter follows when they are read
    this.logitsProcessor = new LogitsProcessor(settings, prompt.filter(isToken), limits.maxAdjustments);
  }

  get finished() {
    return this.finish !== null || this.error !== null || this.aborted;
  }

  get backpressured() {
    return this.output.length >= MAX_UNREAD_TOKENS;
  }

  get numGenerated() {
    return this.tokens.length - this.numPrompt;
  }

  get numUncached() {
    return this.tokens.length - (this.slot?.tokens.length ?? 0);
  }

  /** Decode steps that may run in one submit. A matcher or a penalty may need each token before the next step. */
  get maxSteps() {
    if (this.matcher) return 1;
    const { numStatic } = this.logitsProcessor;
    return Math.min(
      numStatic,
      this.settings.max_tokens - this.numGenerated,
      this.limits.context - this.tokens.length + 1,
    );
  }

  /** Return the sampling parameters of the next token. */
  nextParams() {
    return this.logitsProcessor.params(this.numGenerated, this.#mask());
  }

  /** Return the tokens that may come next: those of the answer, at the start also the one that begins a thought. */
  #mask() {
    if (!this.matcher || this.stage === "thought") return null;
    const begin = this.stage === "start" ? this.splitter?.beginId : undefined;
    if (begin === undefined) return this.matcher.mask();
    const mask = this.matcher.mask().slice();
    mask[begin >> 5] |= 1 << (begin & 31);
    return mask;
  }

  /** Return whether the next token belongs to the answer. @param {number} token */
  #isAnswer(token) {
    const { stage, splitter } = this;
    if (stage === "start") this.stage = token === splitter?.beginId ? "thought" : "answer";
    else if (stage === "thought" && token === splitter?.endId) this.stage = "answer";
    return stage === "answer" || (stage === "start" && this.stage === "answer");
  }

  /** Append successive tokens up to the end of the answer. @param {SampledToken[]} tokens */
  appendTokens(tokens) {
    for (const sampled of tokens) {
      if (this.finished) return;
      if (sampled.token < 0) {
        if (sampled === tokens[0]) throw logitsError(sampled.token, this.tokens.length - 1);
        return; // the next step computes it again, as its first token
      }
      this.tokens.push(sampled.token);
      this.logitsProcessor.add(sampled.token);
      const { ends, context } = this.limits;
      const isEnd = ends.has(sampled.token);
      const isAnswer = this.#isAnswer(sampled.token);
      if (!isEnd && isAnswer) this.matcher?.take(sampled.token);
      if (isEnd || (isAnswer && this.matcher?.ended)) this.finish = "stop";
      else if (this.numGenerated >= this.settings.max_tokens || this.tokens.length > context) this.finish = "length";
      this.output.push({ sampled, finish: this.finish });
    }
  }
}

/** Slots, a queue for them, and steps. The engine runs as long as a caller waits for a token. */
export class Engine {
  kvSlots;
  /** @type {GenerationRequest[]} */
  #waiting = [];
  /** Requests with a slot, the least recently computed first. @type {GenerationRequest[]} */
  #active = [];
  #running = false;
  #prefillNext = true;
  /** Decode steps per submit, by the number of rows. @type {number[]} */
  #steps = [];
  /** Lowest milliseconds of a prefill step, by its rows; of a decode step at 0. @type {number[]} */
  #costs = [];
  #program;

  /** @param {any} program */
  constructor(program) {
    this.#program = program;
    this.kvSlots = new KvSlots(program);
  }

  /** Queue a request. @param {GenerationRequest} request */
  submit(request) {
    if (this.#waiting.length >= MAX_QUEUE_SIZE) {
      throw new WebpteError(
        "queue-full",
        `queue: expected fewer than ${MAX_QUEUE_SIZE} waiting requests, got ${this.#waiting.length}. ` +
          "Read or abort some of them first.",
      );
    }
    this.#waiting.push(request);
  }

  /**
   * Return the next token of a request, or the progress of its prompt; undefined after the last token.
   * @param {GenerationRequest} request
   * @param {AbortSignal | null} [signal]
   */
  async next(request, signal) {
    while (!request.output.length && !request.finished) {
      if (!request.slot && !this.#waiting.includes(request)) this.#waiting.push(request); // it was preempted
      const change = new Promise((resolve) => (request.wake = () => resolve(null)));
      this.#run();
      await abortable(change, signal);
    }
    if (!request.output.length && request.error) throw request.error;
    return request.output.shift();
  }

  /** Stop computing a request. @param {GenerationRequest} request */
  abort(request) {
    request.aborted = true;
    if (!this.#running) this.#retire();
  }

  async #run() {
    if (this.#running) return;
    this.#running = true;
    try {
      while (await this.#step());
    } finally {
      this.#running = false;
    }
  }

  /** Run one prefill or decode step. Return whether there may be more to do. */
  async #step() {
    try {
      this.kvSlots.invalidate();
      this.#retire();
      await this.#admit();
      const ready = this.#active.filter((request) => !request.backpressured);
      for (const { slot } of ready) if (slot) this.kvSlots.dropUnusable(slot);
      const prefilling = ready.filter((request) => request.numUncached > 1);
      const decoding = ready.filter((request) => request.numUncached === 1);
      this.#prefillNext = prefilling.length > 0 && (this.#prefillNext || !decoding.length);
      if (this.#prefillNext) await this.#prefill(prefilling[0], decoding.length > 0);
      else if (decoding.length) await this.#decode(decoding, !prefilling.length);
      this.#prefillNext = !this.#prefillNext;
      return ready.length > 0;
    } catch (error) {
      return this.#recoverOrFail(error);
    }
  }

  /** Continue after the loss of a device; any other error fails all requests. @param {any} error */
  async #recoverOrFail(error) {
    try {
      if (error?.code !== "device-lost") throw error;
      await this.#program.recover();
      this.kvSlots.invalidate(true);
    } catch (fatal) {
      for (const request of [...this.#active, ...this.#waiting]) this.#fail(request, fatal);
      this.#retire();
    }
    return this.#active.length + this.#waiting.length > 0;
  }

  /** @param {GenerationRequest} request @param {unknown} error */
  #fail(request, error) {
    request.error ??= error;
    request.wake();
  }

  /** Remove finished requests and free their slots. */
  #retire() {
    for (const request of this.#active) {
      if (request.finished && request.slot) request.slot.owner = request.slot = null;
    }
    this.#active = this.#active.filter((request) => !request.finished);
    this.#waiting = this.#waiting.filter((request) => !request.finished);
  }

  /** Give slots to waiting requests, first come, first served. */
  async #admit() {
    while (this.#waiting.length) {
      const [request] = this.#waiting;
      const reusable = request.tokens.slice(0, -1); // the last token is computed in any case, for its logits
      const slot = this.kvSlots.lookupPrefix(reusable);
      if (slot) {
        request.slot = slot;
        const cached = this.kvSlots.assign(slot, request, reusable, request.images.ends);
        request.numCached ??= cached;
        this.#waiting.shift();
        this.#active.push(request);
      } else if (!(await this.kvSlots.grow()) && !this.#preempt()) {
        return;
      }
    }
  }

  /** Free the slot of a request whose caller does not read; it is computed again when the caller does. */
  #preempt() {
    const idle = this.#active.find((request) => request.backpressured);
    if (!idle?.slot) return false;
    idle.slot.owner = idle.slot = null;
    this.#active = this.#active.filter((request) => request !== idle);
    return true;
  }

  /**
   * Compute a chunk of a prompt, a smaller one if other requests are decoding.
   * @param {GenerationRequest} request
   * @param {boolean} othersDecode
   */
  async #prefill(request, othersDecode) {
    const slot = /** @type {import("./kv_slots.js").Slot} */ (request.slot);
    const rest = request.tokens.slice(slot.tokens.length, -1).slice(0, this.kvSlots.untilStop(slot));
    const maxRows = othersDecode ? this.#maxPrefillRows() : Infinity;
    const started = performance.now();
    const chunk = rest.slice(0, this.kvSlots.prefillPiece(rest, maxRows).count);
    const encoded = await this.kvSlots.encode(chunk, request.images.inputs, othersDecode ? 1 : Infinity);
    const { count, rows } = this.kvSlots.prefillPiece(chunk.slice(0, encoded), maxRows);
    await this.kvSlots.prefill(slot, chunk.slice(0, count), rows, request.images.offsets);
    this.#record([request], rows, performance.now() - started);
    if (request.reportsProgress) {
      request.output.push({ numComputed: Math.min(slot.tokens.length, request.numPrompt) });
      request.wake();
    }
  }

  /** Return the largest prefill size that takes at most as long as two decode steps; untried sizes are tried in order. */
  #maxPrefillRows() {
    let max = 0;
    for (const rows of this.kvSlots.prefillRows(1).sizes) {
      max = rows;
      if (!(this.#costs[rows] <= 2 * this.#costs[0])) break;
    }
    return max;
  }

  /** @param {GenerationRequest[]} requests @param {boolean} alone whether no request waits for a prefill step */
  async #decode(requests, alone) {
    /** @type {import("./kv_slots.js").DecodeRow[]} */
    const rows = [];
    const batch = requests.filter((request) => {
      try {
        const [slot, token] = /** @type {[any, any]} */ ([request.slot, request.tokens.at(-1)]);
        rows.push({ slot, token, params: request.nextParams(), offsets: request.images.offsets });
        return true;
      } catch (error) {
        return this.#fail(request, error);
      }
    });
    if (!batch.length) return;
    const target = alone ? (this.#steps[batch.length] ?? 1) : 1;
    const steps = Math.min(target, ...batch.map((request) => request.maxSteps));
    const started = performance.now();
    const last = rows.map(({ token }) => token);
    if (!last.every(isToken)) {
      await this.kvSlots.encode(last, new Map(batch.flatMap(({ images }) => [...images.inputs])), Infinity);
    }
    const sampled = await this.kvSlots.decode(rows, steps);
    const elapsed = performance.now() - started;
    const affordable = Math.floor((SUBMIT_MS * steps) / elapsed);
    this.#steps[batch.length] = Math.max(1, Math.min(affordable, 2 * steps, MAX_STEPS_PER_SUBMIT));
    this.#record(batch, 0, elapsed, steps);
    batch.forEach((request, row) =>
      this.#process(
        request,
        rows[row],
        sampled.map((step) => step[row]),
      ),
    );
  }

  /** @param {GenerationRequest} request @param {import("./kv_slots.js").DecodeRow} row @param {SampledToken[]} sampled */
  #process(request, { slot, token }, sampled) {
    const bad = sampled.findIndex((each) => each.token < 0);
    const good = bad < 0 ? sampled : sampled.slice(0, bad);
    if (good.length) slot.tokens.push(token, ...good.slice(0, -1).map((each) => each.token));
    try {
      request.appendTokens(sampled);
      request.wake();
    } catch (error) {
      this.#fail(request, error);
    }
  }

  /** @param {GenerationRequest[]} requests @param {number} rows 0 for a decode step @param {number} elapsed milliseconds */
  #record(requests, rows, elapsed, steps = 1) {
    this.#costs[rows] = Math.min(this.#costs[rows] ?? Infinity, elapsed / steps);
    for (const request of requests) request.milliseconds[request.numGenerated ? "decode" : "prefill"] += elapsed;
    this.#active = [...this.#active.filter((request) => !requests.includes(request)), ...requests];
  }
}
