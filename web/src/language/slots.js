// The program of a language model: slots that each cache one sequence, and the passes that there are schedules for.
import { pack, TOKEN, unpack, WORDS, wanted } from "./choices.js";

/** @typedef {import("./choices.js").Choice} Choice */
/** @typedef {import("./choices.js").Chosen} Chosen */
/**
 * @typedef {object} Slot a cache for one sequence
 * @property {number} number
 * @property {number[]} tokens that are cached: noted after the device has computed them
 * @property {object | null} owner who computes here
 * @property {number} used when it was last of use
 */
/** @typedef {{slot: Slot, token: number, choice: Choice}} Row */

const WORTH_REUSING = 8; // tokens; for fewer the slot that was longest of no use is taken
const WORTH_A_PASS = 16; // rows that are saved by reading a piece in two passes

export class Slots {
  /** @type {Slot[]} */
  list = [];
  /** @type {any} */
  #method;
  #program;
  #language;
  #clock = 0;
  #recoveries = 0;
  #most;

  /** @param {any} program whose manifest is of a language model */
  constructor(program) {
    this.#program = program;
    this.#language = program.manifest.language;
    this.#most = this.#language.sequences;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    this.#method = await this.#program.method("forward", 1, signal);
    this.#add(1);
    this.#recoveries = this.#program.recoveries;
  }

  /** Forget what a lost device had cached. */
  noticeLoss(force = false) {
    if (force || this.#program.recoveries !== this.#recoveries) for (const slot of this.list) slot.tokens = [];
    this.#recoveries = this.#program.recoveries;
  }

  /** A slot where nobody computes, if possible one that begins with these tokens. @param {number[]} tokens */
  vacant(tokens) {
    const free = this.list.filter((slot) => !slot.owner);
    const shared = new Map(free.map((slot) => [slot, alike(slot.tokens, tokens)]));
    const value = (/** @type {Slot} */ slot) => {
      const count = shared.get(slot) ?? 0;
      return count >= WORTH_REUSING ? count : slot.tokens.length ? -slot.used : 0;
    };
    return free.sort((a, b) => value(b) - value(a))[0];
  }

  /**
   * Note who computes in a slot; what is cached there of these tokens stays, and is counted.
   * @param {Slot} slot
   * @param {object} owner
   * @param {number[]} tokens
   */
  give(slot, owner, tokens) {
    slot.owner = owner;
    slot.used = ++this.#clock;
    slot.tokens.length = alike(slot.tokens, tokens);
    return slot.tokens.length;
  }

  /** Make room for as many sequences as the bundle is made for: what is cached stays. Whether there is more now. */
  async grow() {
    if (this.list.length >= this.#most) return false;
    try {
      const larger = await this.#program.method("forward", this.#most);
      larger.takeState(this.#method);
      this.noticeLoss();
      this.#method.dispose();
      this.#method = larger;
      this.#add(this.#most);
      return true;
    } catch (error) {
      if (/** @type {any} */ (error).code !== "out-of-memory") throw error;
      this.#most = this.list.length;
      return false;
    }
  }

  /** @param {number} count */
  #add(count) {
    while (this.list.length < count) this.list.push({ number: this.list.length, tokens: [], owner: null, used: 0 });
  }

  /** How many of so many tokens to read in the next pass, of at most so many rows. @param {number} count */
  piece(count, most = Infinity) {
    const sizes = this.#language.prompt_rows;
    const fits = sizes.filter((/** @type {number} */ rows, /** @type {number} */ at) => rows <= most || at === 0);
    const least = (/** @type {number} */ rows) =>
      fits.find((/** @type {number} */ size) => size >= rows) ?? fits.at(-1);
    const whole = least(count);
    const below = fits.findLast((/** @type {number} */ size) => size <= count) ?? whole;
    return { rows: below + least(count - below) + WORTH_A_PASS <= whole ? below : whole, sizes: fits };
  }

  /** Cache tokens behind those of a slot. @param {Slot} slot @param {number[]} tokens @param {number} rows */
  async read(slot, tokens, rows) {
    const start = slot.tokens.length;
    const given = tokens.map((token, at) => [token, slot.number, start + at]);
    await this.#method.run(this.#arguments(given, rows, 0, pack([], 1, 0), 0), { outputs: [TOKEN] });
    slot.tokens.push(...tokens);
  }

  /** Choose tokens behind one row for each of several slots, `steps` of them one behind the other.
   * @param {Row[]} given @param {number} steps @returns {Promise<Chosen[][]>} by step, for each row */
  async decode(given, steps) {
    const rows = this.#language.decode_rows.find((/** @type {number} */ size) => size >= given.length);
    const choices = given.map((row) => row.choice);
    const packed = pack(choices, rows, this.#language.choice_words[rows]);
    const places = given.map(({ slot, token }) => [token, slot.number, slot.tokens.length]);
    const passes = Array.from({ length: steps }, (_, advance) => this.#arguments(places, rows, rows, packed, advance));
    const outputs = wanted(choices);
    const found =
      steps > 1
        ? await this.#method.runSteps(passes, { [TOKEN]: 0 }, outputs)
        : [await this.#method.run(passes[0], { outputs })];
    return found.map((/** @type {any} */ step) => unpack(step, given.length));
  }

  /** Of a pass: rows of token, slot and position, idle ones behind them. @param {number[][]} given @param {number} rows
   * @param {number} singles @param {ReturnType<typeof pack>} packed @param {number} advance */
  #arguments(given, rows, singles, { words, edits, features }, advance) {
    const tokens = new Int32Array(rows);
    const places = Int32Array.from({ length: 2 * rows }, (_, at) => (at % 2 ? 0 : -1));
    given.forEach(([token, slot, position], row) => {
      tokens[row] = token;
      places.set([slot, position], 2 * row);
    });
    const picked = Int32Array.from({ length: singles || 1 }, (_, row) => row);
    return [
      { data: tokens, dims: [1, rows] },
      { data: places, dims: [rows, 2] },
      singles,
      { data: picked, dims: [picked.length] },
      advance,
      { data: words, dims: [words.length] },
      edits,
      features,
    ];
  }

  /** Edits that there is room for in a row. */
  get mostEdits() {
    const { choice_words, vocabulary } = this.#language;
    const others = WORDS + Math.ceil(vocabulary / 32);
    const rooms = Object.entries(choice_words).map(([rows, words]) => words / Number(rows));
    return Math.min(3072, Math.floor((Math.min(...rooms) - others) / 4));
  }
}

/** How many tokens two lists begin with alike. @param {number[]} one @param {number[]} other */
function alike(one, other) {
  let count = 0;
  while (count < one.length && count < other.length && one[count] === other[count]) count++;
  return count;
}
