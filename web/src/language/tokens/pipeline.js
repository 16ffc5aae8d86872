// The pipeline of a tokenizer.json: encode and decode with the results of the `tokenizers` package.
import { decoder } from "./decoders.js";
import { model } from "./models.js";
import { JOINERS, literal, refuse, SPACE, WORD } from "./patterns.js";
import { normalizer, preTokenizer } from "./pieces.js";

/** @typedef {{id: number, content: string, special?: boolean, normalized?: boolean, single_word?: boolean, lstrip?: boolean, rstrip?: boolean}} Added */
/** @typedef {{text: string, first: boolean, id?: number}} Part of a text; with a number it is an added token */

/** @typedef {[string, Added]} Entry the text, and its token */
/** @typedef {{pattern: RegExp, tokens: Map<string, Added>}} Finder */

export const SEPARATOR = "\ufdd1"; // a noncharacter, which Unicode reserves for internal use
export const SEPARATED = -1;
const WORD_BEFORE = new RegExp(`[${WORD}${JOINERS}]$`, "u");
const WORD_AFTER = new RegExp(`^[${WORD}${JOINERS}]`, "u");
const SPACE_BEFORE = new RegExp(`[${SPACE}]*$`, "u");
const SPACE_AFTER = new RegExp(`^[${SPACE}]*`, "u");

export class Pipeline {
  #normalize;
  #preTokenize;
  #model;
  #decode;
  #processor;
  /** @type {Map<string, number>} */
  #ids = new Map();
  /** By id. @type {Map<number, Added>} */
  added = new Map();
  /** @type {Map<number, string>} */
  #texts = new Map();
  #raw;
  #separated;
  #normalized;
  #normalizesSpecials;

  /** @param {any} json */
  constructor(json) {
    this.#normalize = normalizer(json.normalizer);
    this.#preTokenize = preTokenizer(json.pre_tokenizer);
    this.#model = model(json.model);
    this.#decode = decoder(json.decoder);
    this.#processor = processor(json.post_processor);
    for (const [text, id] of this.#model.vocabulary) this.#texts.set(id, text);
    const added = /** @type {Added[]} */ (json.added_tokens ?? []);
    for (const token of added) {
      this.added.set(token.id, token);
      this.#ids.set(token.content, token.id);
      this.#texts.set(token.id, token.content);
    }
    const raw = added
      .filter(({ normalized }) => !normalized)
      .map((token) => /** @type {Entry} */ ([token.content, token]));
    this.#raw = finderOf(raw);
    this.#separated = finderOf([...raw, [SEPARATOR, { id: SEPARATED, content: SEPARATOR }]]);
    const normalized = added.filter((token) => token.normalized);
    this.#normalizesSpecials = Boolean(json.normalizer) && normalized.some(({ special }) => special);
    this.#normalized = finderOf(normalized.map((token) => [this.#normalize(token.content), token]));
  }

  /** @param {string} token @returns {number | undefined} */
  id(token) {
    return this.#ids.get(token) ?? this.#model.vocabulary.get(token);
  }

  /** @param {number} id @returns {string | undefined} */
  text(id) {
    return this.#texts.get(id);
  }

  /** @param {string} text @param {boolean} specials whether to add those of the post-processor */
  encode(text, specials) {
    const ids = this.#tokens(text, this.#raw, false);
    return specials ? this.#processor(ids) : ids;
  }

  /** Return the tokens of a text. Special tokens in it are text; SEPARATOR is the token SEPARATED.
   * @param {string} text @param {boolean} [specials] whether to add those of the post-processor */
  encodePlain(text, specials = false) {
    const ids = this.#tokens(text, this.#separated, true);
    return specials ? this.#processor(ids) : ids;
  }

  /** Return a text as it is searched for special tokens. Most tokenizers search the text itself. @param {string} text */
  normalizedForSpecials(text) {
    return this.#normalizesSpecials ? this.#normalize(text) : text;
  }

  /** @param {string} text @param {Finder} raw @param {boolean} plain @returns {number[]} */
  #tokens(text, raw, plain) {
    return cut({ text, first: true }, raw, plain)
      .flatMap((part) =>
        part.id === undefined ? cut({ ...part, text: this.#normalize(part.text) }, this.#normalized, plain) : [part],
      )
      .flatMap((part) => {
        if (part.id !== undefined) return [part.id];
        return this.#preTokenize(part).flatMap((piece) => (piece.text ? this.#model.encode(piece.text) : []));
      });
  }

  /** @param {number[]} ids */
  decode(ids) {
    const texts = ids.map((id) => this.#texts.get(id)).filter((text) => text !== undefined);
    return this.#decode(texts).join("");
  }
}

/** Return a finder of the leftmost, longest token. @param {Entry[]} entries @returns {Finder} */
function finderOf(entries) {
  const tokens = new Map([...entries].reverse()); // the first of equal texts is used
  const sorted = [...tokens.keys()].filter(Boolean).sort((a, b) => b.length - a.length);
  return { pattern: new RegExp(sorted.map((text) => literal(text).source).join("|") || "(?!)", "gu"), tokens };
}

/** Split a part of a text at its added tokens. @param {Part} part @param {Finder} finder @param {boolean} plain whether special ones are text @returns {Part[]} */
function cut({ text, first }, { pattern, tokens }, plain) {
  /** @type {Part[]} */
  const pieces = [];
  let at = 0;
  const rest = (/** @type {number} */ to) => {
    if (to > at) pieces.push({ text: text.slice(at, to), first: first && at === 0 });
  };
  for (const { index, 0: all } of text.matchAll(pattern)) {
    const token = /** @type {Added} */ (tokens.get(all));
    let [start, stop] = [index, index + all.length];
    if (plain && token.special) continue;
    if (token.single_word && (WORD_BEFORE.test(text.slice(0, start)) || WORD_AFTER.test(text.slice(stop)))) continue;
    if (token.lstrip)
      start = Math.max(at, /** @type {RegExpExecArray} */ (SPACE_BEFORE.exec(text.slice(0, start))).index);
    if (token.rstrip) stop += /** @type {RegExpExecArray} */ (SPACE_AFTER.exec(text.slice(stop)))[0].length;
    rest(start);
    pieces.push({ text: all, first: false, id: token.id });
    at = stop;
  }
  rest(text.length);
  return pieces;
}

/** Return a function that adds the tokens of a post-processor. @param {any} part @returns {(ids: number[]) => number[]} */
function processor(part) {
  if (!part || part.type === "ByteLevel") return (ids) => ids;
  if (part.type === "Sequence") {
    const all = part.processors.map(processor);
    return (ids) => all.reduce((/** @type {number[]} */ result, /** @type {any} */ each) => each(result), ids);
  }
  if (part.type === "BertProcessing" || part.type === "RobertaProcessing")
    return (ids) => [part.cls[1], ...ids, part.sep[1]];
  if (part.type !== "TemplateProcessing") return refuse(`the post-processor ${part.type}`);
  return (ids) =>
    part.single.flatMap((/** @type {any} */ piece) =>
      piece.SpecialToken ? part.special_tokens[piece.SpecialToken.id].ids : ids,
    );
}
