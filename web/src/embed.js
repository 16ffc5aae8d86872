// Embeddings of texts, by an encoder whose program has schedules for some lengths: a text is padded to the next.
import { throwIfAborted, WebpteError } from "./errors.js";
import { Tokenizer } from "./language/tokenizer.js";

export class Encoder {
  #program;
  #encoder;
  /** @type {any} */
  #method;
  /** @type {any} */
  #tokenizer;
  #padding = 0;

  /** @param {any} program of an encoder */
  constructor(program) {
    this.#program = program;
    this.#encoder = program.manifest.encoder;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const [text, method] = await Promise.all([
      this.#program.text(this.#encoder.tokenizer),
      this.#program.method("forward", null, signal),
    ]);
    const json = JSON.parse(text);
    this.#tokenizer = new Tokenizer(json);
    this.#padding = json.padding?.pad_id ?? this.#tokenizer.id("[PAD]") ?? this.#tokenizer.id("<pad>") ?? 0;
    this.#method = method;
    return this;
  }

  /**
   * A vector for each text.
   * @param {string[]} texts
   * @param {{signal?: AbortSignal | null}} [options]
   * @returns {Promise<Float32Array[]>}
   */
  async embed(texts, { signal } = {}) {
    if (!Array.isArray(texts)) throw new WebpteError("input", "embed takes a list of texts");
    const found = [];
    for (const text of texts) {
      throwIfAborted(signal);
      found.push(await this.#one(this.tokens(text), signal));
    }
    return found;
  }

  /**
   * With what the tokenizer adds to every text; of one that is too long, as much as fits.
   * @param {string} text
   * @returns {number[]}
   */
  tokens(text) {
    const longest = this.#encoder.lengths.at(-1);
    const plain = this.#tokenizer.encode(text);
    const full = this.#tokenizer.encode(text, true);
    if (full.length <= longest) return full;
    const isAt = (/** @type {number} */ place) =>
      plain.every((/** @type {number} */ token, /** @type {number} */ at) => full[place + at] === token);
    let before = 0;
    while (before < full.length - plain.length && !isAt(before)) before++;
    const behind = full.slice(before + plain.length);
    return [...full.slice(0, longest - behind.length), ...behind];
  }

  /** @param {number[]} tokens @param {AbortSignal | null} [signal] */
  async #one(tokens, signal) {
    const { ids, mask, types, lengths, output, pooled } = this.#encoder;
    const length = lengths.find((/** @type {number} */ size) => size >= tokens.length);
    const row = (/** @type {(at: number) => number} */ value) => {
      return { data: Array.from({ length }, (_, at) => value(at)), dims: [1, length] };
    };
    /** @type {any[]} */
    const given = [];
    given[ids] = row((at) => tokens[at] ?? this.#padding);
    given[mask] = row((at) => (at < tokens.length ? 1 : 0));
    if (types !== null) given[types] = row(() => 0);
    const [{ data, dims }] = await this.#method.run(given, { outputs: [output], signal });
    return pooled ? Float32Array.from(data) : mean(data, dims.at(-1), tokens.length);
  }
}

/**
 * The mean of the first `count` rows, of length 1.
 * @param {ArrayLike<number>} data
 * @param {number} width
 * @param {number} count
 */
function mean(data, width, count) {
  const sums = new Float64Array(width);
  for (let at = 0; at < count * width; at++) sums[at % width] += data[at];
  const length = Math.hypot(...sums);
  return Float32Array.from(sums, (sum) => sum / length);
}
