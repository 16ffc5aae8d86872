// The caches and states of a language model as slots, one sequence each, and the steps that the bundle has schedules for.
//
// A recurrent layer does not keep every position. A slot of such a model continues after its last tokens, or after those
// of a checkpoint: a copy of the state on the device. The rules are those of webpte/llm/engine/kv_slots.py.
import { EmbeddingPool } from "./embeddings.js";
import { isToken, rowsAfter, wholeTiles } from "./parts.js";
import { MAX_LOGIT_ADJUSTMENTS, pack, SAMPLING_WORDS, samplerOutputs, TOKEN, unpack } from "./sampling.js";

/** @typedef {import("./sampling.js").RowSamplingParams} RowSamplingParams */
/** @typedef {import("./sampling.js").SampledToken} SampledToken */
/**
 * @typedef {object} Slot a cache for one sequence
 * @property {number} number
 * @property {number[]} tokens those that are cached; added after the device has computed them
 * @property {object | null} owner the request that uses it
 * @property {number} lastUsed
 * @property {number} firstKept the first position that the state still holds
 * @property {Map<number, number>} checkpoints copies of the state, by the number of tokens before them
 * @property {number} latest the checkpoint that the next one of an answer replaces
 * @property {number[]} stops numbers of tokens after which a checkpoint is made, ascending
 */
/** @typedef {{slot: Slot, token: number, params: RowSamplingParams, offsets: number[][]}} DecodeRow a token and how the
 * next one is sampled */
/** @typedef {[token: number, slot: number, position: number, offsets: number[][]]} BatchToken a token, or the id of a row
 * of embeddings, at a position of a slot's cache, and its offsets; see ImageRows */

const MIN_REUSED_TOKENS = 8; // for a shorter common prefix, the least recently used slot is taken
const MIN_SAVED_ROWS = 16; // a prompt is computed in two steps if that saves at least this number of rows
const MIN_SAVED_TOKENS = 16; // between two checkpoints of a slot
const AXES = 3; // of positions: time, row and column
const BIDIRECTIONAL_MAPPING = 4; // columns of a slot mapping with the later rows that a row sees

export class KvSlots {
  /** @type {Slot[]} */
  list = [];
  /** @type {any} */
  #method;
  #program;
  #language;
  #clock = 0;
  #recoveries = 0;
  #maxSlots;
  #checkpoints = 0; // copies of a state that there is room for
  /** Positions before a token that computing it reads. @type {number} */
  #needed;
  /** Latest positions that a state holds. @type {number} */
  #held;
  /** Of a model that reads images. @type {EmbeddingPool | null} */
  #embeddings = null;

  /** @param {any} program whose manifest is of a language model */
  constructor(program) {
    this.#program = program;
    this.#language = program.manifest.language;
    this.#maxSlots = this.#language.max_num_seqs;
    [this.#needed, this.#held] = this.#language.state_reach ?? [0, Infinity];
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const { images } = this.#language;
    const [method, encoder] = await Promise.all([
      this.#program.method("forward", 1, signal),
      images ? this.#program.method("vision_encoder", null, signal) : null,
    ]);
    this.#method = method;
    if (images) this.#embeddings = this.#poolOf(encoder, images.max_rows);
    this.#add(1);
    this.#recoveries = this.#program.recoveries;
    if (this.#language.state_reach) this.#checkpoints = this.#method.recurrentStates[0].rows - 1;
  }

  /** @param {import("../method.js").Method} encoder @param {number} rows of an output */
  #poolOf(encoder, rows) {
    return new EmbeddingPool(Math.floor(this.#method.embeddingPool.rows / rows), rows, async (inputs, row) => {
      await encoder.run(inputs(), { outputs: [] });
      this.#method.takeRows(encoder, row);
    });
  }

  /** Encode what the first of some tokens need; see EmbeddingPool.hold. @param {number[]} tokens
   * @param {Map<number, import("./embeddings.js").Inputs>} inputs @param {number} maxEncoded */
  async encode(tokens, inputs, maxEncoded) {
    return this.#embeddings ? this.#embeddings.hold(tokens, inputs, maxEncoded) : tokens.length;
  }

  /** Clear all slots if the device was lost since the last call, or if `force` is set. */
  invalidate(force = false) {
    if (force || this.#program.recoveries !== this.#recoveries) {
      for (const slot of this.list) truncate(slot, 0);
      this.#embeddings?.invalidate();
    }
    this.#recoveries = this.#program.recoveries;
  }

  /** Return the free slot with the longest common prefix, or the least recently used one. @param {number[]} tokens */
  lookupPrefix(tokens) {
    const free = this.list.filter((slot) => !slot.owner);
    const reusable = new Map(free.map((slot) => [slot, this.#usable(slot, tokens)]));
    const priority = (/** @type {Slot} */ slot) => {
      const count = reusable.get(slot) ?? 0;
      return count >= MIN_REUSED_TOKENS ? count : slot.tokens.length ? -slot.lastUsed : 0;
    };
    return free.sort((a, b) => priority(b) - priority(a))[0];
  }

  /** Return after how many of the tokens a slot can continue. @param {Slot} slot @param {number[]} tokens */
  #usable(slot, tokens) {
    const count = commonPrefix(slot.tokens, tokens);
    if (this.#continuesAt(slot, count)) return count;
    return Math.max(0, ...[...slot.checkpoints.keys()].filter((saved) => saved <= count));
  }

  /** Return whether the state serves a token after the first `count`. @param {Slot} slot @param {number} count */
  #continuesAt(slot, count) {
    return slot.firstKept <= Math.max(0, count - this.#needed);
  }

  /** Record which positions a step overwrites that computes `count` tokens. @param {Slot} slot @param {number} count */
  #beforeWrite(slot, count) {
    slot.firstKept = Math.max(slot.firstKept, slot.tokens.length + count - this.#held);
  }

  /**
   * Give a slot to an owner, go back to the tokens that it can continue after, and return their number.
   * @param {Slot} slot
   * @param {object} owner
   * @param {number[]} tokens
   * @param {number[]} [ends] the tokens up to each image
   */
  assign(slot, owner, tokens, ends = []) {
    const count = this.#usable(slot, tokens);
    const shared = Math.max(...this.list.map((each) => commonPrefix(each.tokens, tokens)));
    slot.owner = owner;
    slot.lastUsed = ++this.#clock;
    slot.stops = [];
    const stops = this.#checkpoints ? [shared, tokens.length, ...ends].sort((a, b) => a - b) : [];
    for (const stop of stops) if (stop >= (slot.stops.at(-1) ?? count) + MIN_SAVED_TOKENS) slot.stops.push(stop);
    truncate(slot, count);
    if (!this.#continuesAt(slot, count)) {
      this.#method.copyStateRow(slot.checkpoints.get(count), this.#checkpoints + slot.number);
      slot.firstKept = Math.max(0, count - this.#needed);
    }
    return count;
  }

  /** Go back to a checkpoint if a step that failed has overwritten what the next token needs. @param {Slot} slot */
  dropUnusable(slot) {
    if (!this.#continuesAt(slot, slot.tokens.length)) this.assign(slot, slot.owner ?? {}, slot.tokens);
  }

  /** Return how many of the next tokens of a slot are computed before its state is saved. @param {Slot} slot */
  untilStop(slot) {
    return (slot.stops.find((stop) => stop > slot.tokens.length) ?? Infinity) - slot.tokens.length;
  }

  /** Copy the state of a slot. The slot that was used least recently loses its first copy if there are no more.
   * @param {Slot} slot @param {boolean} [replaces] the copy before it that was one of these, if there is one */
  #save(slot, replaces) {
    const count = slot.tokens.length;
    if (count < Math.max(0, ...slot.checkpoints.keys()) + MIN_SAVED_TOKENS) return;
    if (replaces) {
      slot.checkpoints.delete(slot.latest);
      slot.latest = count;
    }
    const taken = new Set(this.list.flatMap((each) => [...each.checkpoints.values()]));
    let number = [...Array(this.#checkpoints).keys()].find((at) => !taken.has(at));
    if (number === undefined) {
      const slots = this.list.filter((each) => each.checkpoints.size).sort((a, b) => a.lastUsed - b.lastUsed);
      const first = Math.min(...slots[0].checkpoints.keys());
      number = slots[0].checkpoints.get(first);
      slots[0].checkpoints.delete(first);
    }
    this.#method.copyStateRow(this.#checkpoints + slot.number, number);
    slot.checkpoints.set(count, /** @type {number} */ (number));
  }

  /** Allocate all slots of the bundle; caches are kept. Return whether there are more slots now. */
  async grow() {
    if (this.list.length >= this.#maxSlots) return false;
    try {
      const larger = await this.#program.method("forward", this.#maxSlots);
      larger.takeState(this.#method);
      this.invalidate();
      this.#method.dispose();
      this.#method = larger;
      this.#add(this.#maxSlots);
      return true;
    } catch (error) {
      if (/** @type {any} */ (error).code !== "out-of-memory") throw error;
      this.#maxSlots = this.list.length;
      return false;
    }
  }

  /** @param {number} count */
  #add(count) {
    while (this.list.length < count) {
      const state = { firstKept: 0, checkpoints: new Map(), latest: 0, stops: [] };
      this.list.push({ number: this.list.length, tokens: [], owner: null, lastUsed: 0, ...state });
    }
  }

  /**
   * Return the rows of the next prefill step for `count` tokens, and the sizes that are possible up to `maxRows`.
   * @param {number} count
   */
  prefillRows(count, maxRows = Infinity) {
    const all = this.#language.prefill_rows;
    const sizes = all.filter((/** @type {number} */ rows, /** @type {number} */ at) => rows <= maxRows || at === 0);
    const smallest = (/** @type {number} */ rows) =>
      sizes.find((/** @type {number} */ size) => size >= rows) ?? sizes.at(-1);
    const whole = smallest(count);
    const below = sizes.findLast((/** @type {number} */ size) => size <= count) ?? whole;
    return { rows: below + smallest(count - below) + MIN_SAVED_ROWS <= whole ? below : whole, sizes };
  }

  /** Return the next piece of a prompt: how many of its first tokens, and the rows of the step that computes them. A tile
   * whose rows see each other may need more than `maxRows`. @param {number[]} tokens
   * @returns {{ count: number, rows: number }} */
  prefillPiece(tokens, maxRows = Infinity) {
    const { rows } = this.prefillRows(tokens.length, maxRows);
    const count = Math.min(tokens.length, rows);
    const whole = this.#language.images?.bidirectional ? wholeTiles(tokens, count) : count;
    if (whole === count) return { count, rows };
    if (whole) return this.prefillPiece(tokens.slice(0, whole), maxRows);
    const together = 1 + rowsAfter(tokens)[0];
    const size = this.#language.prefill_rows.find((/** @type {number} */ each) => each >= together);
    return { count: together, rows: size };
  }

  /** Append tokens to the cache of a slot. @param {Slot} slot @param {number[]} tokens @param {number} rows
   * @param {number[][]} offsets */
  async prefill(slot, tokens, rows, offsets) {
    const start = slot.tokens.length;
    const batch = tokens.map((token, at) => /** @type {BatchToken} */ ([token, slot.number, start + at, offsets]));
    this.#beforeWrite(slot, tokens.length);
    await this.#method.run(this.#arguments(batch, rows, 0, pack([], 1, 0), 0), { outputs: [TOKEN] });
    slot.tokens.push(...tokens);
    if (slot.stops.includes(slot.tokens.length)) this.#save(slot);
  }

  /** Sample `steps` successive tokens after each of the rows.
   * @param {DecodeRow[]} decodeRows @param {number} steps @returns {Promise<SampledToken[][]>} by step, for each row */
  async decode(decodeRows, steps) {
    const rows = this.#language.decode_rows.find((/** @type {number} */ size) => size >= decodeRows.length);
    const params = decodeRows.map((row) => row.params);
    const packed = pack(params, rows, this.#language.sampling_words[rows]);
    const batch = decodeRows.map(({ slot, token, offsets }) => {
      return /** @type {BatchToken} */ ([token, slot.number, slot.tokens.length, offsets]);
    });
    for (const { slot } of decodeRows) {
      const end = slot.tokens.length;
      if (steps > 1 && end - this.#needed < end + steps - this.#held) this.#save(slot, true); // some may follow a stop
      this.#beforeWrite(slot, steps);
    }
    const calls = Array.from({ length: steps }, (_, step) => this.#arguments(batch, rows, rows, packed, step));
    const outputs = samplerOutputs(params);
    const results =
      steps > 1
        ? await this.#method.runSteps(calls, { [TOKEN]: 0 }, outputs)
        : [await this.#method.run(calls[0], { outputs })];
    return results.map((/** @type {any} */ result) => unpack(result, decodeRows.length));
  }

  /** Return the method's arguments for one step; rows after those of the batch are idle.
   * @param {BatchToken[]} batch @param {number} rows @param {number} numDecode @param {ReturnType<typeof pack>} packed
   * @param {number} step */
  #arguments(batch, rows, numDecode, { words, adjustments, features }, step) {
    const tokens = new Int32Array(rows);
    const { rope_axes, bidirectional } = this.#language.images ?? {};
    const columns = bidirectional ? BIDIRECTIONAL_MAPPING : 2;
    const slotMapping = Int32Array.from({ length: columns * rows }, (_, at) => (at % columns ? 0 : -1));
    const later = numDecode ? [] : rowsAfter(batch.map(([token]) => token));
    const positions = new Int32Array(AXES * rows);
    batch.forEach(([token, slot, position, offsets], row) => {
      tokens[row] = isToken(token) ? token : /** @type {EmbeddingPool} */ (this.#embeddings).token(token);
      slotMapping.set([slot, position, later[row] ?? 0, 0].slice(0, columns), columns * row);
      const added = offsets[Math.min(position, offsets.length - 1)];
      positions.set(
        added.map((each) => position + each),
        AXES * row,
      );
    });
    const logitsIndices = Int32Array.from({ length: numDecode || 1 }, (_, row) => row);
    return [
      { data: tokens, dims: [1, rows] },
      { data: slotMapping, dims: [rows, columns] },
      numDecode,
      { data: logitsIndices, dims: [logitsIndices.length] },
      step,
      { data: words, dims: [words.length] },
      adjustments,
      features,
      ...(rope_axes ? [{ data: positions, dims: [rows, AXES] }] : []),
    ];
  }

  /** Logit adjustments for which every batch size has enough words. */
  get maxAdjustments() {
    const { sampling_words, vocab_size } = this.#language;
    const fixedWords = SAMPLING_WORDS + Math.ceil(vocab_size / 32);
    const wordsPerRow = Object.entries(sampling_words).map(([rows, words]) => words / Number(rows));
    return Math.min(MAX_LOGIT_ADJUSTMENTS, Math.floor((Math.min(...wordsPerRow) - fixedWords) / 4));
  }
}

/** Keep the first `count` tokens. @param {Slot} slot @param {number} count */
function truncate(slot, count) {
  slot.tokens.length = count;
  for (const saved of slot.checkpoints.keys()) if (saved > count) slot.checkpoints.delete(saved);
  if (!count) slot.firstKept = 0;
}

/** Return the length of the common prefix of two lists. @param {number[]} one @param {number[]} other */
function commonPrefix(one, other) {
  let count = 0;
  while (count < one.length && count < other.length && one[count] === other[count]) count++;
  return count;
}
