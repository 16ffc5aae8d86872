// Sampling: the parameters of a row, the logits processor that makes them, and the token that comes back.
import { WebpteError } from "../errors.js";
import { MAX_TOP_LOGPROBS } from "./settings.js";

/** @typedef {import("./settings.js").SamplingParams} SamplingParams */
/**
 * @typedef {object} RowSamplingParams how the next token of one sequence is sampled
 * @property {SamplingParams} settings
 * @property {number} step tokens that the sequence has generated before
 * @property {Int32Array | null} logit_adjustments triples of token, bits of a factor, bits of an addend: a logit above 0
 *   is divided by the factor, another multiplied; then the addend is added
 * @property {Int32Array | null} mask a bit for each token that may be sampled, the lowest of a word first
 */
/**
 * @typedef {{token: number, logprob: number, top_logprobs: [number, number][]}} SampledToken a negative token means that
 *   none could be sampled: see `logitsError`
 */

export const SAMPLING_WORDS = 8; // of a row: temperature, top_k, top_p, min_p, seed, step, mask, unused
export const [TOKEN, LOGPROB, TOP_TOKENS, TOP_LOGPROBS] = [1, 2, 3, 4]; // outputs
export const [FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS] = [1, 2]; // bits of the features
export const MAX_LOGIT_ADJUSTMENTS = 3072;
const MASK_WORD = 6; // of a row: the offset of its mask
const NO_MASK = -1;
const ALL_HIDDEN = -2; // in a token's place: no logit is above minus infinity; other negative numbers: NaN or infinity
const INITIAL_ADJUSTMENTS = 64; // rows of the table at first; it doubles

const DRY_BASE = 1.75; // by which the penalty grows with each repeated token
const MAX_DRY_PENALTY = 100;

/** Finds earlier occurrences of an answer's last tokens, and what followed them. */
export class RepeatedSuffix {
  /** @type {number[]} */
  #tokens = [];
  /** For each position but the last: how many tokens up to it equal the last ones of the answer. @type {number[]} */
  #lengths = [];
  /** Length of the longest suffix that occurs earlier; the two may overlap. */
  longest = 0;

  /** @param {number} token */
  add(token) {
    let before = 0;
    this.longest = 0;
    for (let position = 0; position < this.#tokens.length; position++) {
      const length = this.#tokens[position] === token ? before + 1 : 0;
      before = this.#lengths[position];
      this.#lengths[position] = length;
      this.longest = Math.max(this.longest, length);
    }
    this.#tokens.push(token);
    this.#lengths.push(0);
  }

  /** Return the tokens that followed suffixes of at least `minLength`, each with the longest. @param {number} minLength */
  followers(minLength) {
    /** @type {Map<number, number>} */
    const longest = new Map();
    if (this.longest < minLength) return longest;
    this.#lengths.forEach((length, position) => {
      const token = this.#tokens[position + 1];
      if (length >= minLength) longest.set(token, Math.max(longest.get(token) ?? 0, length));
    });
    return longest;
  }
}

/** Tracks the tokens of a request, as far as its penalties need them, and returns the parameters of its next token. */
export class LogitsProcessor {
  #settings;
  #maxAdjustments;
  #hasPenalties;
  /** Of generated tokens; 0 for those that are only in the prompt. @type {Map<number, number>} */
  #counts = new Map();
  /** The row of each token in the table. @type {Map<number, number>} */
  #rows = new Map();
  #table = new Int32Array(3 * INITIAL_ADJUSTMENTS);
  #repeated;

  /**
   * If there are more than `maxAdjustments` distinct tokens, the penalties of the most recently first-seen ones apply.
   * @param {SamplingParams} settings
   * @param {number[]} prompt
   * @param {number} maxAdjustments
   */
  constructor(settings, prompt, maxAdjustments = MAX_LOGIT_ADJUSTMENTS) {
    this.#settings = settings;
    this.#maxAdjustments = maxAdjustments;
    const { repetition_penalty: repetition, presence_penalty: presence, frequency_penalty: frequency } = settings;
    this.#repeated = settings.dry_multiplier ? new RepeatedSuffix() : null;
    this.#hasPenalties = repetition !== 1 || presence !== 0 || frequency !== 0;
    for (const token of settings.logit_bias.keys()) this.#adjust(token);
    if (repetition !== 1) {
      for (const token of new Set(prompt)) {
        this.#counts.set(token, 0);
        this.#adjust(token);
      }
    }
  }

  /** For how many of the next tokens the parameters are the same but for their step. */
  get numStatic() {
    if (this.#hasPenalties) return 1;
    if (!this.#repeated) return Infinity;
    return Math.max(1, this.#settings.dry_allowed_length - this.#repeated.longest); // a token adds at most one
  }

  /** Record a generated token. @param {number} token */
  add(token) {
    this.#repeated?.add(token);
    if (!this.#hasPenalties) return;
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
    this.#adjust(token);
  }

  /**
   * Return the parameters of token number `step`.
   * @param {number} step
   * @param {Int32Array | null} mask
   * @returns {RowSamplingParams}
   */
  params(step, mask = null) {
    const count = this.#rows.size;
    const penalized = this.#repeated?.followers(this.#settings.dry_allowed_length);
    const table = count ? this.#table.subarray(0, 3 * count) : null;
    const logit_adjustments = penalized?.size ? this.#withDry(penalized) : table;
    return { settings: this.#settings, step, logit_adjustments, mask };
  }

  /** Return adjustments with the penalties of tokens that would lengthen a repetition. @param {Map<number, number>} lengths */
  #withDry(lengths) {
    const { dry_multiplier: multiplier, dry_allowed_length: allowed } = this.#settings;
    const rows = new Map(this.#rows);
    for (const token of lengths.keys()) {
      if (rows.size < this.#maxAdjustments && !rows.has(token)) rows.set(token, rows.size);
    }
    const table = new Int32Array(3 * rows.size);
    table.set(this.#table.subarray(0, 3 * this.#rows.size));
    const floats = new Float32Array(table.buffer);
    for (const [token, row] of rows) {
      const length = lengths.get(token);
      if (row >= this.#rows.size) {
        table[3 * row] = token;
        floats[3 * row + 1] = 1;
      }
      if (length)
        floats[3 * row + 2] -= Math.min(multiplier * DRY_BASE ** Math.min(length - allowed, 64), MAX_DRY_PENALTY);
    }
    return table;
  }

  /** Update a token's row of the table. @param {number} token */
  #adjust(token) {
    const { logit_bias, presence_penalty, frequency_penalty, repetition_penalty } = this.#settings;
    const row = this.#rows.get(token) ?? this.#allocate(token);
    const count = this.#counts.get(token);
    const penalty = count ? presence_penalty + frequency_penalty * count : 0;
    this.#table[3 * row] = token;
    const floats = new Float32Array(this.#table.buffer, 12 * row + 4, 2);
    floats[0] = count === undefined ? 1 : repetition_penalty;
    floats[1] = (logit_bias.get(token) ?? 0) - penalty;
  }

  /** Return a row for a token that has none. @param {number} token */
  #allocate(token) {
    let row = this.#rows.size;
    if (row === this.#maxAdjustments) {
      const [oldest] = [...this.#rows.keys()].filter((each) => !this.#settings.logit_bias.has(each));
      row = /** @type {number} */ (this.#rows.get(oldest));
      this.#rows.delete(oldest);
    } else if (3 * row === this.#table.length) {
      const larger = new Int32Array(2 * this.#table.length);
      larger.set(this.#table);
      this.#table = larger;
    }
    this.#rows.set(token, row);
    return row;
  }
}

/**
 * Return the sampler's inputs: the words of all rows, the number of logit adjustments, and the features in use.
 * @param {RowSamplingParams[]} params of the first rows
 * @param {number} rows
 * @param {number} maxWords number of words if any feature is in use
 */
export function pack(params, rows, maxWords) {
  const adjustments = params.reduce((sum, { logit_adjustments }) => sum + (logit_adjustments?.length ?? 0) / 3, 0);
  const hasTopLogprobs = params.some(({ settings }) => settings.top_logprobs);
  const hasAdjustments = adjustments > 0 || params.some(({ mask }) => mask);
  const words = new Int32Array(hasAdjustments || hasTopLogprobs ? maxWords : SAMPLING_WORDS * rows);
  const floats = new Float32Array(words.buffer);
  let [adjustmentAt, maskAt] = [SAMPLING_WORDS * rows, SAMPLING_WORDS * rows + 4 * adjustments];
  for (let row = 0; row < rows; row++) {
    const at = SAMPLING_WORDS * row;
    floats[at + 2] = 1;
    words[at + MASK_WORD] = NO_MASK;
    if (!params[row]) continue;
    const { settings, step, logit_adjustments, mask } = params[row];
    floats[at] = settings.temperature;
    words[at + 1] = settings.top_k;
    floats[at + 2] = settings.top_p;
    floats[at + 3] = settings.min_p;
    words[at + 4] = settings.seed;
    words[at + 5] = step;
    for (let i = 0; i < (logit_adjustments?.length ?? 0); i += 3, adjustmentAt += 4) {
      words[adjustmentAt] = row;
      words.set(/** @type {Int32Array} */ (logit_adjustments).subarray(i, i + 3), adjustmentAt + 1);
    }
    if (mask) {
      words[at + MASK_WORD] = maskAt;
      words.set(mask, maskAt);
      maskAt += mask.length;
    }
  }
  const features = hasTopLogprobs
    ? FEATURE_ADJUSTMENTS | FEATURE_TOP_LOGPROBS
    : hasAdjustments
      ? FEATURE_ADJUSTMENTS
      : 0;
  return { words, adjustments, features };
}

/** Return the indices of the sampler's outputs that `unpack` needs for these rows. @param {RowSamplingParams[]} params */
export function samplerOutputs(params) {
  if (params.some(({ settings }) => settings.top_logprobs)) return [TOKEN, LOGPROB, TOP_TOKENS, TOP_LOGPROBS];
  return params.some(({ settings }) => settings.logprobs) ? [TOKEN, LOGPROB] : [TOKEN];
}

/**
 * Return the sampled tokens of the first `count` rows.
 * @param {{data: ArrayLike<number>}[]} outputs those of `samplerOutputs`
 * @param {number} count
 * @returns {SampledToken[]}
 */
export function unpack([tokens, logprobs, topTokens, topLogprobs], count) {
  return Array.from({ length: count }, (_, row) => {
    /** @type {[number, number][]} */
    const top_logprobs = [];
    for (let i = row * MAX_TOP_LOGPROBS; topTokens && i < (row + 1) * MAX_TOP_LOGPROBS; i++) {
      if (topTokens.data[i] >= 0) top_logprobs.push([topTokens.data[i], topLogprobs.data[i]]);
    }
    return { token: Number(tokens.data[row]), logprob: logprobs ? logprobs.data[row] : NaN, top_logprobs };
  });
}

/** Return the error that a negative number in place of a token stands for. @param {number} mark @param {number} position */
export function logitsError(mark, position) {
  const reason = mark === ALL_HIDDEN ? "are minus infinity for every allowed token" : "contain NaN or infinity";
  return new WebpteError("logits", `no token can be sampled: the logits after position ${position} ${reason}`);
}
