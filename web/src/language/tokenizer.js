// Encode text and decode tokens with a tokenizer.json, with special tokens and streams of tokens.
import { inputError, reading, WebpteError } from "../errors.js";
import { checkBudget } from "./tokens/budget.js";
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
  /** Special tokens, which `decode` drops. @type {Set<number>} */
  specials = new Set();

  /** @param {any} json the contents of tokenizer.json */
  constructor(json) {
    this.#inner = reading("tokenizer.json", () => {
      checkBudget(json);
      return new Pipeline(json);
    });
    this.#decoder = json.decoder;
    for (const [id, { special }] of this.#inner.added) if (special) this.specials.add(id);
  }

  /** Return the tokens of a text. Special tokens in it are recognized. With `specials`, those of every text are added.
   * @param {string} text @returns {number[]} */
  encode(text, specials = false) {
    if (typeof text !== "string" || !text.isWellFormed()) {
      throw inputError("text", "a string without lone surrogates", text);
    }
    return this.#inner.encode(text, specials);
  }

  /** Return the tokens of a text. Special tokens in it are ordinary text.
   * @param {string} text @param {boolean} [specials] whether to add those of every text @returns {number[]} */
  encodeText(text, specials = false) {
    if (!this.#spellsSpecial(text)) return this.encode(text, specials);
    return this.#inner.encodePlain(text.replaceAll(MARK, "").replaceAll(SEPARATOR, ""), specials);
  }

  /** Return whether a special token may be recognized in a text. @param {string} text */
  #spellsSpecial(text) {
    const { texts, pattern } = this.#special;
    return texts.size > 0 && [text, this.#inner.normalizedForSpecials(text)].some((each) => each.search(pattern) >= 0);
  }

  /**
   * Return the tokens of a text. Special tokens are recognized, except those with a mark of `addMarks`: they are
   * encoded as ordinary text.
   * @param {string} text
   * @returns {number[]}
   */
  encodeMarked(text) {
    const { texts, pattern } = this.#special;
    const specials = text.match(pattern) ?? [];
    const plain = text.replace(pattern, SEPARATOR).replaceAll(MARK, "");
    let next = 0;
    const special = () => /** @type {number} */ (texts.get(specials[next++]));
    return this.#inner.encodePlain(plain).map((id) => (id === SEPARATED ? special() : id));
  }

  /**
   * Return strings, and objects and lists of strings, with a mark in every special token that they contain or could
   * form with their neighbors.
   * @param {any} value
   * @returns {any}
   */
  addMarks(value) {
    if (typeof value === "string") return this.#mark(value);
    if (Array.isArray(value)) return value.map((each) => this.addMarks(each));
    if (typeof value !== "object" || value === null) return value;
    // Field names, which templates look up, do not contain special tokens.
    const key = (/** @type {string} */ text) => (NAME.test(text) ? text : this.#mark(text));
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [key(name), this.addMarks(each)]));
  }

  /** @param {string} original */
  #mark(original) {
    const { texts, pattern, prefixes, suffixes, maxLength } = this.#special;
    let text = original.replaceAll(MARK, "").replaceAll(SEPARATOR, ""); // noncharacters, which no text needs
    const normalized = this.#inner.normalizedForSpecials(text);
    if (normalized !== text && normalized.search(pattern) >= 0) text += MARK;
    while (texts.size && text.search(pattern) >= 0) {
      text = text.replace(pattern, (special) => {
        const [first, ...rest] = special;
        return first + MARK + rest.join("");
      }); // repeat, because the rest may contain another one
    }
    const lengths = Array.from({ length: Math.max(maxLength - 1, 0) }, (_, at) => at + 1);
    const last = [[...text], [...normalized]];
    if (lengths.some((length) => last.some((all) => prefixes.has(all.slice(-length).join(""))))) text += MARK;
    const first = [[...text], [...normalized]];
    const atStart = lengths.some((length) => first.some((all) => suffixes.has(all.slice(0, length).join(""))));
    return (atStart ? MARK : "") + text;
  }

  /** The special tokens, a pattern of those without a mark, their proper prefixes and suffixes, and the maximum length. */
  get #special() {
    this.#specialParts ??= specialParts(this.#inner.added);
    return this.#specialParts;
  }

  /** Return the text of tokens, without special tokens. @param {number[]} tokens */
  decode(tokens) {
    const texts = tokens.filter((token) => !this.specials.has(token));
    return this.#inner.decode(texts);
  }

  /** @param {string} token as it is written in the vocabulary @returns {number | undefined} */
  id(token) {
    return this.#inner.id(token);
  }

  /** Return a token as it is written in the vocabulary. @param {number} id @returns {string | undefined} */
  text(id) {
    return this.#inner.text(id);
  }

  /** Return the bytes of a token in a text; null for a number outside the vocabulary. @param {number} id */
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
  // In a special token of one character, the mark follows the character.
  const one = (/** @type {string[]} */ all) =>
    all.join("").replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&") + (all.length === 1 ? `(?!${MARK})` : "");
  const cuts = sorted.flatMap((all) =>
    all.slice(1).map((_, at) => [all.slice(0, at + 1).join(""), all.slice(at + 1).join("")]),
  );
  return {
    texts,
    pattern: new RegExp(sorted.map(one).join("|") || "(?!)", "gu"),
    prefixes: new Set(cuts.map(([prefix]) => prefix)),
    suffixes: new Set(cuts.map(([, suffix]) => suffix)),
    maxLength: sorted[0]?.length ?? 0,
  };
}

/** Return the decoders of a sequence, in order. @param {any} decoder @returns {any[]} */
const parts = (decoder) => (!decoder ? [] : decoder.type === "Sequence" ? decoder.decoders.flatMap(parts) : [decoder]);

/**
 * Return a function from a token as written in the vocabulary to its bytes.
 * @param {any} decoder
 * @returns {(text: string) => Uint8Array}
 */
function reader(decoder) {
  const list = parts(decoder);
  if (list.length === 1 && list[0].type === "ByteLevel") return alphabetBytes;
  /** @type {[string, string][]} */
  const replacements = [];
  let fallback = false;
  let isSupported = list.length > 0;
  for (const part of list) {
    const old = part.pattern?.String;
    if (part.type === "Replace" && old !== undefined) replacements.push([old, part.content]);
    else if (part.type === "Metaspace") replacements.push([part.replacement ?? "▁", " "]);
    else if (part.type === "ByteFallback") fallback = true;
    else isSupported &&= part.type === "Fuse" || part.type === "Strip";
  }
  if (!isSupported) {
    const names = list.map((part) => part.type).join(", ") || "none";
    throw new WebpteError(
      "unsupported",
      `tokenizer: json_schema requires a byte-level, byte-fallback or Metaspace decoder, got ${names}.`,
    );
  }
  return (text) => {
    const byte = fallback && BYTE.exec(text);
    if (byte) return Uint8Array.of(parseInt(byte[1], 16));
    return encoder.encode(replacements.reduce((now, [old, content]) => now.replaceAll(old, content), text));
  };
}

/** Decodes a stream of tokens. A character that spans several tokens is returned with the last of them. */
export class TextStream {
  /** @type {number[]} */
  #tokens = [];
  #start = 0; // tokens before this one no longer influence the text of later ones
  #numReturned = 0; // tokens whose text was returned
  #tokenizer;

  /** @param {Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.#tokenizer = tokenizer;
  }

  /** Return the text that a token completes. @param {number} token */
  push(token) {
    this.#tokens.push(token);
    return this.#take(false);
  }

  /** Return the remaining text. */
  flush() {
    return this.#take(true);
  }

  #take(/** @type {boolean} */ all) {
    const before = this.#tokenizer.decode(this.#tokens.slice(this.#start, this.#numReturned));
    const now = this.#tokenizer.decode(this.#tokens.slice(this.#start));
    if (!all && now.endsWith("\ufffd")) return "";
    this.#start = all ? this.#tokens.length : this.#numReturned;
    this.#numReturned = this.#tokens.length;
    return now.slice(before.length);
  }
}

/** Return the special tokens of `tokenizer_config.json` and of the program's metadata.
 * @param {Tokenizer} tokenizer @param {any} config @param {{eos_token_ids: number[], bos_token_id: number | null}} ids */
export function specialTokens(tokenizer, config, { eos_token_ids, bos_token_id }) {
  /** By the name that templates use. @type {Record<string, string>} */
  const texts = {};
  for (const [name, id] of Object.entries({ bos_token: bos_token_id, eos_token: eos_token_ids[0] })) {
    const text = id == null ? undefined : tokenizer.text(id);
    if (text !== undefined) texts[name] = text;
  }
  for (const [name, value] of Object.entries(config ?? {})) {
    const text = value?.content ?? value;
    if (name.endsWith("_token") && typeof text === "string") texts[name] = text;
  }
  const ends = new Set(eos_token_ids);
  // In the vocabulary of gpt-oss, which has <|return|>, <|end|> ends a message only.
  const isOfMessage = (/** @type {string} */ token) => token === "<|end|>" && tokenizer.id("<|return|>") !== undefined;
  for (const token of END_TOKENS.filter((token) => !isOfMessage(token))) {
    const id = tokenizer.id(token);
    if (id !== undefined) ends.add(id);
  }
  return { texts, ends, addBos: config?.add_bos_token === true };
}

/** Return the tokens of a prompt, with the tokens that the model expects before every text. With `parseSpecial`, special
 * tokens in the text are recognized.
 * @param {Tokenizer} tokenizer @param {ReturnType<typeof specialTokens>} special @param {string} text
 * @param {boolean} [parseSpecial] */
export function encodePrompt(tokenizer, special, text, parseSpecial = false) {
  const plain = parseSpecial ? tokenizer.encode(text) : tokenizer.encodeText(text);
  const full = parseSpecial ? tokenizer.encode(text, true) : tokenizer.encodeText(text, true);
  // Only tokens before the text are added: an end-of-text token after it would end the answer.
  let at = 0;
  while (at <= full.length - plain.length && plain.some((token, i) => full[at + i] !== token)) at++;
  let tokens = [...full.slice(0, at > full.length - plain.length ? 0 : at), ...plain];
  const bos = special.texts.bos_token === undefined ? undefined : tokenizer.id(special.texts.bos_token);
  if (bos !== undefined) {
    if (special.addBos && tokens[0] !== bos) tokens = [bos, ...tokens];
    if (tokens[0] === bos && tokens[1] === bos) tokens = tokens.slice(1); // the text starts with it already
  }
  return tokens;
}
