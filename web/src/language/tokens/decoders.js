// Decoders: from tokens as written in the vocabulary to text.
import { finder, refuse } from "./patterns.js";
import { BYTES } from "./pieces.js";

/** @typedef {(tokens: string[]) => string[]} Decoder */
const encoder = new TextEncoder();
const lossy = new TextDecoder("utf-8", { ignoreBOM: true });
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const BYTE = /^<0x([0-9A-Fa-f]{2})>$/;
const NUMBERS = new Map(BYTES.map((character, byte) => [character, byte]));

/** Return the bytes of a byte-level token. Added tokens may contain other characters, and are plain text. @param {string} token */
export function alphabetBytes(token) {
  const bytes = Array.from(token, (character) => NUMBERS.get(character));
  return bytes.includes(undefined) ? encoder.encode(token) : Uint8Array.from(/** @type {number[]} */ (bytes));
}

/** @param {any} part @returns {Decoder} */
export function decoder(part) {
  if (!part) return (tokens) => [tokens.join(" ")];
  switch (part.type) {
    case "Sequence": {
      const all = part.decoders.map(decoder);
      return (tokens) =>
        all.reduce((/** @type {string[]} */ result, /** @type {Decoder} */ each) => each(result), tokens);
    }
    case "ByteLevel":
      return (tokens) => [lossy.decode(Uint8Array.from(tokens.flatMap((token) => [...alphabetBytes(token)])))];
    case "ByteFallback":
      return fromBytes;
    case "Fuse":
      return (tokens) => [tokens.join("")];
    case "Replace": {
      const pattern = finder(part.pattern);
      return (tokens) => tokens.map((token) => token.replace(pattern, () => part.content));
    }
    case "Strip":
      return (tokens) => tokens.map((token) => stripped([...token], part));
    case "Metaspace": {
      const scheme = part.prepend_scheme ?? (part.add_prefix_space === false ? "never" : "always");
      const mark = part.replacement ?? "▁";
      return (tokens) => tokens.map((token, at) => token.replaceAll(mark, at || scheme === "never" ? " " : ""));
    }
    case "WordPiece":
      return (tokens) => tokens.map((token, at) => word(token, at, part));
    case "BPEDecoder":
      return (tokens) =>
        tokens.map((token, at) => token.replaceAll(part.suffix ?? "</w>", at === tokens.length - 1 ? "" : " "));
    default:
      return refuse(`the decoder ${part.type}`);
  }
}

/** @param {string[]} all @param {any} part */
function stripped(all, { content, start, stop }) {
  let from = 0;
  while (from < Math.min(start, all.length) && all[from] === content) from++;
  let to = all.length;
  while (all.length - to < stop && to > 0 && all[to - 1] === content) to--;
  return all.slice(from, Math.max(from, to)).join("");
}

/** @param {string} token @param {number} at @param {any} part */
function word(token, at, { prefix, cleanup }) {
  let result = token;
  if (at) result = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
  if (!cleanup) return result;
  for (const [old, now] of CLEANED) result = result.replaceAll(old, now);
  return result;
}
const CLEANED = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

/** Join byte tokens to characters. If the bytes are invalid UTF-8, each becomes U+FFFD. @param {string[]} tokens */
function fromBytes(tokens) {
  const texts = [];
  for (let at = 0; at < tokens.length; at++) {
    const bytes = [];
    for (let byte = BYTE.exec(tokens[at]); byte; byte = BYTE.exec(tokens[at] ?? "")) {
      bytes.push(parseInt(byte[1], 16));
      at++;
    }
    if (bytes.length) {
      try {
        texts.push(strict.decode(Uint8Array.from(bytes)));
      } catch {
        texts.push("\ufffd".repeat(bytes.length));
      }
    }
    if (at < tokens.length) texts.push(tokens[at]);
  }
  return texts;
}
