// Embeddings of texts. The encoder has schedules for some lengths; a text is padded to the next one.
import { inputError, reading, throwIfAborted } from "./errors.js";
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
    const json = reading("tokenizer.json", () => JSON.parse(text));
    this.#tokenizer = new Tokenizer(json);
    this.#padding = json.padding?.pad_id ?? this.#tokenizer.id("[PAD]") ?? this.#tokenizer.id("<pad>") ?? 0;
    this.#method = method;
    return this;
  }

  /**
   * Return a vector for each text.
   * @param {string[]} texts
   * @param {{signal?: AbortSignal | null}} [options]
   * @returns {Promise<Float32Array[]>}
   */
  async embed(texts, { signal } = {}) {
    if (!Array.isArray(texts)) throw inputError("texts", "a list of strings", texts);
    const vectors = [];
    for (const text of texts) {
      throwIfAborted(signal);
      vectors.push(await this.#embed(this.tokens(text), signal));
    }
    return vectors;
  }

  /**
   * Return the tokens of a text with the tokenizer's special tokens, truncated to the longest schedule.
   * @param {string} text
   * @returns {number[]}
   */
  tokens(text) {
    const maxLength = this.#encoder.lengths.at(-1);
    const plain = this.#tokenizer.encode(text);
    const full = this.#tokenizer.encode(text, true);
    if (full.length <= maxLength) return full;
    const isAt = (/** @type {number} */ offset) =>
      plain.every((/** @type {number} */ token, /** @type {number} */ at) => full[offset + at] === token);
    let before = 0;
    while (before < full.length - plain.length && !isAt(before)) before++;
    const suffix = full.slice(before + plain.length);
    return [...full.slice(0, maxLength - suffix.length), ...suffix];
  }

  /** @param {number[]} tokens @param {AbortSignal | null} [signal] */
  async #embed(tokens, signal) {
    const { input_ids, attention_mask, token_type_ids, lengths, output, pooled } = this.#encoder;
    const length = lengths.find((/** @type {number} */ size) => size >= tokens.length);
    const row = (/** @type {(at: number) => number} */ value) => {
      return { data: Array.from({ length }, (_, at) => value(at)), dims: [1, length] };
    };
    /** @type {any[]} */
    const inputs = [];
    inputs[input_ids] = row((at) => tokens[at] ?? this.#padding);
    inputs[attention_mask] = row((at) => (at < tokens.length ? 1 : 0));
    if (token_type_ids !== null) inputs[token_type_ids] = row(() => 0);
    const [{ data, dims }] = await this.#method.run(inputs, { outputs: [output], signal });
    return pooled ? Float32Array.from(data) : mean(data, dims.at(-1), tokens.length);
  }
}

/**
 * Return the mean of the first `count` rows, normalized to length 1.
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
