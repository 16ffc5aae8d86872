// How a token is to be chosen, in the words that the sampler on the device reads, and the one that was.
import { WebpteError } from "../errors.js";
import { MOST_TOPS } from "./settings.js";

/** @typedef {import("./settings.js").Settings} Settings */
/**
 * @typedef {object} Choice how the next token of one answer is chosen
 * @property {Settings} settings
 * @property {number} step tokens that the answer has chosen before
 * @property {Int32Array | null} edits triples of token, bits of a factor, bits of an addend: a logit above 0 is divided
 *   by the factor, another multiplied; then the addend is added
 * @property {Int32Array | null} mask a bit for each token that may be chosen, the lowest of a word first
 */
/** @typedef {{token: number, logprob: number, tops: [number, number][]}} Chosen a negative token is no choice at all */

export const WORDS = 8; // of a row: temperature, top_k, top_p, min_p, seed, step, mask, unused
export const [TOKEN, LOG_PROBABILITY, LIKELIEST, LIKELIEST_LOG_PROBABILITY] = [1, 2, 3, 4]; // outputs
export const [EDITED, TOPS] = [1, 2]; // bits of the features
const MASK = 6; // the word that says where a row's mask is

/** Keeps account of an answer's tokens, as far as its settings ask for it. */
export class Choosing {
  #settings;
  #most;
  #penalises;
  /** Of tokens in the answer; 0 for those that are only in the prompt. @type {Map<number, number>} */
  #counts = new Map();
  /** Of tokens among the edits. @type {Map<number, number>} */
  #places = new Map();
  #edits = new Int32Array(3 * 64);

  /**
   * @param {Settings} settings
   * @param {number[]} prompt
   * @param {number} most edits: then the penalties of those that were new last are kept
   */
  constructor(settings, prompt, most = 3072) {
    this.#settings = settings;
    this.#most = most;
    const { repetition_penalty: repetition, presence_penalty: presence, frequency_penalty: frequency } = settings;
    this.#penalises = repetition !== 1 || presence !== 0 || frequency !== 0;
    for (const token of settings.logit_bias.keys()) this.#edit(token);
    if (repetition !== 1) {
      for (const token of new Set(prompt)) {
        this.#counts.set(token, 0);
        this.#edit(token);
      }
    }
  }

  /** Whether the choices of all tokens to come are the same but for their step. */
  get steady() {
    return !this.#penalises;
  }

  /** The answer goes on with a token. @param {number} token */
  add(token) {
    if (!this.#penalises) return;
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
    this.#edit(token);
  }

  /** @param {number} step @param {Int32Array | null} mask @returns {Choice} */
  choice(step, mask = null) {
    const count = this.#places.size;
    return { settings: this.#settings, step, edits: count ? this.#edits.subarray(0, 3 * count) : null, mask };
  }

  /** Let the edits say of a token what they have to. @param {number} token */
  #edit(token) {
    const { logit_bias, presence_penalty, frequency_penalty, repetition_penalty } = this.#settings;
    const place = this.#places.get(token) ?? this.#placeFor(token);
    const count = this.#counts.get(token);
    const penalty = count ? presence_penalty + frequency_penalty * count : 0;
    this.#edits[3 * place] = token;
    const floats = new Float32Array(this.#edits.buffer, 12 * place + 4, 2);
    floats[0] = count === undefined ? 1 : repetition_penalty;
    floats[1] = (logit_bias.get(token) ?? 0) - penalty;
  }

  /** A place for a token that has none. @param {number} token */
  #placeFor(token) {
    let place = this.#places.size;
    if (place === this.#most) {
      const [oldest] = [...this.#places.keys()].filter((known) => !this.#settings.logit_bias.has(known));
      place = /** @type {number} */ (this.#places.get(oldest));
      this.#places.delete(oldest);
    } else if (3 * place === this.#edits.length) {
      const larger = new Int32Array(2 * this.#edits.length);
      larger.set(this.#edits);
      this.#edits = larger;
    }
    this.#places.set(token, place);
    return place;
  }
}

/**
 * The sampler's inputs for rows of which the first have choices: words, how many edits there are, and the features that
 * are needed.
 * @param {Choice[]} choices
 * @param {number} rows
 * @param {number} room words where there are edits
 */
export function pack(choices, rows, room) {
  const edits = choices.reduce((sum, { edits }) => sum + (edits ? edits.length / 3 : 0), 0);
  const tops = choices.some(({ settings }) => settings.top_logprobs);
  const edited = edits > 0 || choices.some(({ mask }) => mask);
  const words = new Int32Array(edited || tops ? room : WORDS * rows);
  const floats = new Float32Array(words.buffer);
  let [edit, mask] = [WORDS * rows, WORDS * rows + 4 * edits];
  for (let row = 0; row < rows; row++) {
    const at = WORDS * row;
    const choice = choices[row];
    floats[at + 2] = 1;
    words[at + MASK] = -1;
    if (!choice) continue;
    const { temperature, top_k, top_p, min_p, seed } = choice.settings;
    floats[at] = temperature;
    words[at + 1] = top_k;
    floats[at + 2] = top_p;
    floats[at + 3] = min_p;
    words[at + 4] = seed;
    words[at + 5] = choice.step;
    for (let i = 0; i < (choice.edits?.length ?? 0); i += 3, edit += 4) {
      words[edit] = row;
      words.set(/** @type {Int32Array} */ (choice.edits).subarray(i, i + 3), edit + 1);
    }
    if (choice.mask) {
      words[at + MASK] = mask;
      words.set(choice.mask, mask);
      mask += choice.mask.length;
    }
  }
  return { words, edits, features: tops ? EDITED | TOPS : edited ? EDITED : 0 };
}

/** The outputs that tell what was chosen. @param {Choice[]} choices */
export function wanted(choices) {
  if (choices.some(({ settings }) => settings.top_logprobs)) {
    return [TOKEN, LOG_PROBABILITY, LIKELIEST, LIKELIEST_LOG_PROBABILITY];
  }
  return choices.some(({ settings }) => settings.logprobs) ? [TOKEN, LOG_PROBABILITY] : [TOKEN];
}

/**
 * What was chosen for the first `count` rows.
 * @param {{data: ArrayLike<number>}[]} outputs those wanted
 * @param {number} count
 * @returns {Chosen[]}
 */
export function unpack([tokens, logprobs, likeliest, theirs], count) {
  return Array.from({ length: count }, (_, row) => {
    /** @type {[number, number][]} */
    const tops = [];
    for (let i = row * MOST_TOPS; likeliest && i < (row + 1) * MOST_TOPS; i++) {
      if (likeliest.data[i] >= 0) tops.push([likeliest.data[i], theirs.data[i]]);
    }
    return { token: Number(tokens.data[row]), logprob: logprobs ? logprobs.data[row] : NaN, tops };
  });
}

/** What a negative number in a token's place means. @param {number} mark @param {number} position */
export function impossible(mark, position) {
  const why = mark === -2 ? "are minus infinity for every token that may come" : "hold NaN or infinity";
  return new WebpteError("logits", `no token can be chosen: the logits behind position ${position} ${why}`);
}
