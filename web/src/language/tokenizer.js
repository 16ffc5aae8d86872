// Text to tokens and back, from a tokenizer.json; special tokens in texts, and streams of tokens.
import { WebpteError } from "../errors.js";
import { alphabetBytes } from "./tokens/decoders.js";
import { Pipeline, SEPARATED, SEPARATOR } from "./tokens/pipeline.js";

// End of a turn or a text, in the vocabularies of common model families.
const END_TOKENS = "<|im_end|> <|endoftext|> <|eot_id|> <|end_of_text|> </s> <eos> <end_of_turn> <|end|>".split(" ");
const encoder = new TextEncoder();
const BYTE = /^<0x([0-9A-Fa-f]{2})>$/;

const MARK = "\ufdd0"; // a noncharacter, as SEPARATOR
const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

export class Tokenizer {
  #inner;
  #decoder;
  /** @type {((text: string) => Uint8Array) | undefined} */
  #read;
  /** @type {ReturnType<typeof specialParts> | undefined} */
  #specialParts;
  /** Tokens that are no part of a text. @type {Set<number>} */
  specials = new Set();

  /** @param {any} json what tokenizer.json says */
  constructor(json) {
    this.#inner = new Pipeline(json);
    this.#decoder = json.decoder;
    for (const [id, { special }] of this.#inner.added) if (special) this.specials.add(id);
  }

  /** Special tokens that are written in the text are recognised; with `specials` those that every text gets are added.
   * @param {string} text @returns {number[]} */
  encode(text, specials = false) {
    if (typeof text !== "string" || !text.isWellFormed()) {
      throw new WebpteError("input", "a text must be a string without halves of surrogate pairs");
    }
    return this.#inner.encode(text, specials);
  }

  /** The tokens of a text. Special tokens that are written in it are ordinary text.
   * @param {string} text @param {boolean} [specials] whether to add those that every text gets @returns {number[]} */
  encodeText(text, specials = false) {
    if (!this.#spellsSpecial(text)) return this.encode(text, specials);
    return this.#inner.encodePlain(text.replaceAll(MARK, "").replaceAll(SEPARATOR, ""), specials);
  }

  /** Whether a special token may be recognised in a text. @param {string} text */
  #spellsSpecial(text) {
    const { texts, pattern } = this.#special;
    return texts.size > 0 && [text, this.#inner.normalizedForSpecials(text)].some((each) => each.search(pattern) >= 0);
  }

  /**
   * The tokens of a text whose special tokens are recognised, except those that `marked` has marked: they are encoded
   * as ordinary text.
   * @param {string} text
   * @returns {number[]}
   */
  encodeMarked(text) {
    const { texts, pattern } = this.#special;
    const found = text.match(pattern) ?? [];
    const plain = text.replace(pattern, SEPARATOR).replaceAll(MARK, "");
    let next = 0;
    const special = () => /** @type {number} */ (texts.get(found[next++]));
    return this.#inner.encodePlain(plain).map((id) => (id === SEPARATED ? special() : id));
  }

  /**
   * Strings, and objects and lists of them, with a mark in every special token that they contain or could form with
   * their neighbours.
   * @param {any} value
   * @returns {any}
   */
  marked(value) {
    if (typeof value === "string") return this.#mark(value);
    if (Array.isArray(value)) return value.map((each) => this.marked(each));
    if (typeof value !== "object" || value === null) return value;
    // Names of fields, which templates look up, spell no special token.
    const key = (/** @type {string} */ text) => (NAME.test(text) ? text : this.#mark(text));
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [key(name), this.marked(each)]));
  }

  /** @param {string} given */
  #mark(given) {
    const { texts, pattern, beginnings, ends, longest } = this.#special;
    let text = given.replaceAll(MARK, "").replaceAll(SEPARATOR, ""); // neither is a character: no text has them
    const normalized = this.#inner.normalizedForSpecials(text);
    if (normalized !== text && normalized.search(pattern) >= 0) text += MARK;
    while (texts.size && text.search(pattern) >= 0) {
      text = text.replace(pattern, (found) => {
        const [first, ...rest] = found;
        return first + MARK + rest.join("");
      }); // a mark in one may leave another
    }
    const lengths = Array.from({ length: Math.max(longest - 1, 0) }, (_, at) => at + 1);
    const last = [[...text], [...normalized]];
    if (lengths.some((length) => last.some((all) => beginnings.has(all.slice(-length).join(""))))) text += MARK;
    const first = [[...text], [...normalized]];
    const atStart = lengths.some((length) => first.some((all) => ends.has(all.slice(0, length).join(""))));
    return (atStart ? MARK : "") + text;
  }

  /** The special tokens, what finds those without a mark, their proper beginnings and ends, and the longest's length. */
  get #special() {
    this.#specialParts ??= specialParts(this.#inner.added);
    return this.#specialParts;
  }

  /** Without special tokens. @param {number[]} tokens */
  decode(tokens) {
    const texts = tokens.filter((token) => !this.specials.has(token));
    return this.#inner.decode(texts);
  }

  /** @param {string} token as it is written in the vocabulary @returns {number | undefined} */
  id(token) {
    return this.#inner.id(token);
  }

  /** As a token is written in the vocabulary. @param {number} id @returns {string | undefined} */
  text(id) {
    return this.#inner.text(id);
  }

  /** What a token is in a text, wherever it stands; null for a number that is no token. @param {number} id */
  bytes(id) {
    this.#read ??= reader(this.#decoder);
    const text = this.text(id);
    return text === undefined ? null : this.#read(text);
  }
}

/** @param {Map<number, {content: string, special?: boolean}>} added */
function specialParts(added) {
  /** @type {Map<string, number>} */
  const texts = new Map();
  for (const [id, { content, special }] of added) if (special && content) texts.set(content, id);
  const sorted = [...texts.keys()].map((text) => [...text]).sort((a, b) => b.length - a.length);
  // In one of a single character the mark follows it.
  const one = (/** @type {string[]} */ all) =>
    all.join("").replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&") + (all.length === 1 ? `(?!${MARK})` : "");
  const cuts = sorted.flatMap((all) =>
    all.slice(1).map((_, at) => [all.slice(0, at + 1).join(""), all.slice(at + 1).join("")]),
  );
  return {
    texts,
    pattern: new RegExp(sorted.map(one).join("|") || "(?!)", "gu"),
    beginnings: new Set(cuts.map(([beginning]) => beginning)),
    ends: new Set(cuts.map(([, end]) => end)),
    longest: sorted[0]?.length ?? 0,
  };
}

/** The decoders of a sequence of them, in order. @param {any} decoder @returns {any[]} */
const parts = (decoder) => (!decoder ? [] : decoder.type === "Sequence" ? decoder.decoders.flatMap(parts) : [decoder]);

/**
 * How a token as it is written in the vocabulary becomes bytes.
 * @param {any} decoder
 * @returns {(text: string) => Uint8Array}
 */
function reader(decoder) {
  const list = parts(decoder);
  if (list.length === 1 && list[0].type === "ByteLevel") return alphabetBytes;
  /** @type {[string, string][]} */
  const replaced = [];
  let fallback = false;
  let known = list.length > 0;
  for (const part of list) {
    const old = part.pattern?.String;
    if (part.type === "Replace" && old !== undefined) replaced.push([old, part.content]);
    else if (part.type === "Metaspace") replaced.push([part.replacement ?? "▁", " "]);
    else if (part.type === "ByteFallback") fallback = true;
    else known &&= part.type === "Fuse" || part.type === "Strip";
  }
  if (!known) {
    const named = list.map((part) => part.type).join(", ") || "none";
    throw new WebpteError(
      "unsupported",
      "schemas need a tokenizer whose tokens have bytes of their own (byte-level, byte-fallback or Metaspace); " +
        `its decoder is: ${named}`,
    );
  }
  return (text) => {
    const byte = fallback && BYTE.exec(text);
    if (byte) return Uint8Array.of(parseInt(byte[1], 16));
    return encoder.encode(replaced.reduce((found, [old, now]) => found.replaceAll(old, now), text));
  };
}

/** Turns tokens into text piece by piece: a character that spans tokens comes out when it is whole. */
export class TextStream {
  /** @type {number[]} */
  #tokens = [];
  #start = 0; // tokens before it no longer influence how later ones read
  #read = 0; // tokens whose text was given out
  #tokenizer;

  /** @param {Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** The text that a token completes. @param {number} token */
  push(token) {
    this.#tokens.push(token);
    return this.#take(false);
  }

  /** What is left at the end. */
  flush() {
    return this.#take(true);
  }

  #take(/** @type {boolean} */ all) {
    const before = this.#tokenizer.decode(this.#tokens.slice(this.#start, this.#read));
    const now = this.#tokenizer.decode(this.#tokens.slice(this.#start));
    if (!all && now.endsWith("\ufffd")) return "";
    this.#start = all ? this.#tokens.length : this.#read;
    this.#read = this.#tokens.length;
    return now.slice(before.length);
  }
}

/** What `tokenizer_config.json` and the program's own numbers say of the special tokens.
 * @param {Tokenizer} tokenizer @param {any} config @param {{eos: number[], bos: number | null}} numbers */
export function specialTokens(tokenizer, config, { eos, bos }) {
  /** By name, as templates ask for them. @type {Record<string, string>} */
  const texts = {};
  for (const [name, id] of Object.entries({ bos_token: bos, eos_token: eos[0] })) {
    const text = id == null ? undefined : tokenizer.text(id);
    if (text !== undefined) texts[name] = text;
  }
  for (const [name, value] of Object.entries(config ?? {})) {
    const text = value?.content ?? value;
    if (name.endsWith("_token") && typeof text === "string") texts[name] = text;
  }
  const ends = new Set(eos);
  for (const id of END_TOKENS.map((token) => tokenizer.id(token))) if (id !== undefined) ends.add(id);
  return { texts, ends, addBos: config?.add_bos_token === true };
}

/** The tokens of a text to continue, after what the model expects before every text, once. With `parseSpecial`, special
 * tokens that are written in the text are recognised.
 * @param {Tokenizer} tokenizer @param {ReturnType<typeof specialTokens>} special @param {string} text
 * @param {boolean} [parseSpecial] */
export function encodePrompt(tokenizer, special, text, parseSpecial = false) {
  const plain = parseSpecial ? tokenizer.encode(text) : tokenizer.encodeText(text);
  const full = parseSpecial ? tokenizer.encode(text, true) : tokenizer.encodeText(text, true);
  // Only what precedes the text: an end-of-text token after it would end the answer, too.
  let at = 0;
  while (at <= full.length - plain.length && plain.some((token, i) => full[at + i] !== token)) at++;
  let tokens = [...full.slice(0, at > full.length - plain.length ? 0 : at), ...plain];
  const bos = special.texts.bos_token === undefined ? undefined : tokenizer.id(special.texts.bos_token);
  if (bos !== undefined) {
    if (special.addBos && tokens[0] !== bos) tokens = [bos, ...tokens];
    if (tokens[0] === bos && tokens[1] === bos) tokens = tokens.slice(1); // the text begins with it already
  }
  return tokens;
}
