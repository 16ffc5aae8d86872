// Normalizers and pre-tokenizers: they change a text, and split it into the pieces that the model encodes.
import { expression, finder, JOINERS, literal, refuse, SPACE, WORD } from "./patterns.js";
import { COMBINING_MARK, CONTROL, NONSPACING_MARK, normalForm, PUNCTUATION_MARK } from "./unicode.js";

/** A part of a tokenizer, as tokenizer.json describes it. @typedef {{type: string, [key: string]: any}} Part */
/** @typedef {{text: string, first: boolean}} Piece `first`: whether it starts the text */

const CHINESE =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const ANY_SPACE = new RegExp(`[${SPACE}]`, "gu");

/** Return the lower case of each character; a final sigma is not special. @param {string} text */
const lower = (text) => text.replace(/./gsu, (character) => character.toLowerCase());

/** @param {Part | null | undefined} part @returns {(text: string) => string} */
export function normalizer(part) {
  if (!part) return (text) => text;
  switch (part.type) {
    case "Sequence": {
      const all = part.normalizers.map(normalizer);
      return (text) => all.reduce((/** @type {string} */ result, /** @type {any} */ each) => each(result), text);
    }
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return (text) => normalForm(text, part.type);
    case "Lowercase":
      return lower;
    case "StripAccents":
      return (text) => text.replace(COMBINING_MARK, "");
    case "Strip": {
      const left = new RegExp(`^[${SPACE}]+`, "u");
      const right = new RegExp(`[${SPACE}]+$`, "u");
      return (text) => {
        const cut = part.strip_left ? text.replace(left, "") : text;
        return part.strip_right ? cut.replace(right, "") : cut;
      };
    }
    case "Replace": {
      const pattern = finder(part.pattern);
      return (text) => text.replace(pattern, () => part.content);
    }
    case "Prepend":
      return (text) => (text ? part.prepend + text : text);
    case "BertNormalizer":
      return (text) => bert(text, part);
    default:
      return refuse(`the normalizer ${part.type}`);
  }
}

/** @param {string} text @param {Part} part */
function bert(text, part) {
  let result = text;
  if (part.clean_text) result = result.replace(CONTROL, "").replace(ANY_SPACE, " ");
  if (part.handle_chinese_chars) result = result.replace(CHINESE, " $& ");
  if (part.strip_accents ?? part.lowercase) result = normalForm(result, "NFD").replace(NONSPACING_MARK, "");
  return part.lowercase ? lower(result) : result;
}

/** Split a piece at the matches of a pattern. @param {Piece} piece @param {RegExp} pattern @param {string} behavior @param {boolean} [invert] @returns {Piece[]} */
function split({ text, first }, pattern, behavior, invert = false) {
  /** @type {[number, number, boolean][]} */
  const parts = [];
  let at = 0;
  for (const { index, 0: all } of text.matchAll(pattern)) {
    if (index > at) parts.push([at, index, invert]);
    parts.push([index, index + all.length, !invert]);
    at = index + all.length;
  }
  if (at < text.length) parts.push([at, text.length, invert]);
  return merged(parts, behavior)
    .filter(([from, to]) => to > from)
    .map(([from, to]) => ({ text: text.slice(from, to), first: first && from === 0 }));
}

/** @param {[number, number, boolean][]} parts @param {string} behavior @returns {[number, number, boolean][]} */
function merged(parts, behavior) {
  switch (behavior) {
    case "Isolated":
      return parts;
    case "Removed":
      return parts.filter(([, , match]) => !match);
    case "Contiguous":
    case "MergedWithPrevious":
    case "MergedWithNext": {
      const backwards = behavior === "MergedWithNext";
      /** @type {[number, number, boolean][]} */
      const groups = [];
      let previous = false;
      for (const part of backwards ? [...parts].reverse() : parts) {
        const last = groups.at(-1);
        const joins = behavior === "Contiguous" ? part[2] === previous : part[2] && !previous;
        if (!joins || !last) groups.push([...part]);
        else if (backwards) last[0] = part[0];
        else last[1] = part[1];
        previous = part[2];
      }
      return backwards ? groups.reverse() : groups;
    }
    default:
      return refuse(`the behavior ${behavior}`);
  }
}

/** @param {Part | null | undefined} part @returns {(piece: Piece) => Piece[]} */
export function preTokenizer(part) {
  if (!part) return (piece) => [piece];
  const splitting = (/** @type {RegExp} */ pattern, /** @type {string} */ behavior, invert = false) => {
    return (/** @type {Piece} */ piece) => split(piece, pattern, behavior, invert);
  };
  switch (part.type) {
    case "Sequence": {
      const all = part.pretokenizers.map(preTokenizer);
      return (piece) =>
        all.reduce((/** @type {Piece[]} */ pieces, /** @type {any} */ each) => pieces.flatMap(each), [piece]);
    }
    case "ByteLevel":
      return byteLevel(part);
    case "Split":
      return splitting(finder(part.pattern), part.behavior, part.invert);
    case "Digits":
      return splitting(/\p{N}/gu, part.individual_digits ? "Isolated" : "Contiguous");
    case "Whitespace":
      return splitting(new RegExp(`[${WORD}${JOINERS}]+|[^${WORD}${JOINERS}${SPACE}]+`, "gu"), "Removed", true);
    case "WhitespaceSplit":
      return splitting(ANY_SPACE, "Removed");
    case "CharDelimiterSplit":
      return splitting(literal(part.delimiter), "Removed");
    case "Punctuation":
      return splitting(PUNCTUATION_MARK, part.behavior ?? "Isolated");
    case "BertPreTokenizer":
      return (piece) => split(piece, ANY_SPACE, "Removed").flatMap((each) => split(each, PUNCTUATION_MARK, "Isolated"));
    case "Metaspace":
      return metaspace(part);
    default:
      return refuse(`the pre-tokenizer ${part.type}`);
  }
}

/** The characters of byte-level tokenizers for bytes: visible ones unchanged, the others from U+0100. */
export const BYTES = (() => {
  let hidden = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    return String.fromCharCode(visible ? byte : hidden++);
  });
})();
const encoder = new TextEncoder();

/** @param {Part} part @returns {(piece: Piece) => Piece[]} */
function byteLevel(part) {
  const pattern = expression(GPT2);
  return ({ text, first }) => {
    const piece = { text: part.add_prefix_space && !text.startsWith(" ") ? ` ${text}` : text, first };
    const pieces = part.use_regex === false ? [piece] : split(piece, pattern, "Isolated");
    return pieces.map((piece) => ({
      ...piece,
      text: Array.from(encoder.encode(piece.text), (byte) => BYTES[byte]).join(""),
    }));
  };
}

/** @param {Part} part @returns {(piece: Piece) => Piece[]} */
function metaspace(part) {
  const mark = part.replacement ?? "▁";
  const scheme = part.prepend_scheme ?? (part.add_prefix_space === false ? "never" : "always");
  const pattern = literal(mark);
  return ({ text, first }) => {
    const replaced = text.replaceAll(" ", mark);
    const prepended = (scheme === "always" || (scheme === "first" && first)) && !replaced.startsWith(mark);
    const piece = { text: (prepended ? mark : "") + replaced, first };
    return part.split === false ? [piece] : split(piece, pattern, "MergedWithNext");
  };
}
