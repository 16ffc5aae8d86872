// Limits of a tokenizer.json, as in Python (webpte.llm.tokenizer_file): texts must not become many times as long.
import { WebpteError } from "../../errors.js";

const MAX_PARTS = 64;
const MAX_GROWTH = 16; // of a text by all replacements together
const MAX_ADDED_CHARS = 1000; // that a part puts before every text
const MAX_ADDED_PIECES = 32; // of what a post-processor adds, or repetitions of the text
const LISTS = ["normalizers", "pretokenizers", "processors", "decoders"];

/** Throw an error if a tokenizer can make far more of a text than there is. @param {any} json */
export function checkBudget(json) {
  for (const name of ["normalizer", "pre_tokenizer", "post_processor", "decoder"]) {
    const parts = flat(json[name]);
    const growth = parts.reduce((product, part) => product * Math.max(1, growthOf(part)), 1);
    if (parts.length > MAX_PARTS) exceeds(name, parts.length, `${MAX_PARTS} parts`);
    if (growth > MAX_GROWTH) exceeds(name, growth, `${MAX_GROWTH} times as long a text`);
    for (const part of parts) {
      if (part.prepend?.length > MAX_ADDED_CHARS) exceeds(name, part.prepend.length, `${MAX_ADDED_CHARS} characters`);
      const pieces = addedPieces(part);
      if (pieces > MAX_ADDED_PIECES) exceeds(name, pieces, `${MAX_ADDED_PIECES} pieces`);
    }
  }
}

/** @param {string} name @param {number} got @param {string} most @returns {never} */
function exceeds(name, got, most) {
  throw new WebpteError("unsupported", `tokenizer.json: ${name}: expected at most ${most}, got ${got}.`);
}

/** Return a part and the parts of a sequence. @param {any} part @returns {any[]} */
function flat(part) {
  if (typeof part !== "object" || !part) return [];
  return [part, ...LISTS.flatMap((list) => (part[list] ?? []).flatMap(flat))];
}

/** Return the factor by which a part can lengthen a text. @param {any} part */
function growthOf({ type, pattern, content }) {
  if (type !== "Replace") return 1;
  if (pattern?.String === "") throw new WebpteError("unsupported", "tokenizer.json: the empty string is replaced.");
  return String(content).length / (pattern?.String?.length ?? 1); // an expression may match one character
}

/** @param {any} part */
function addedPieces({ type, single = [], pair = [], special_tokens = {} }) {
  if (type !== "TemplateProcessing") return 0;
  const ids = Object.values(special_tokens).map((/** @type {any} */ token) => token.ids?.length ?? 0);
  return Math.max(single.length, pair?.length ?? 0) * Math.max(1, ...ids);
}
