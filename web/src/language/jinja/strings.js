// The methods of strings. Positions and lengths count code points, whitespace and case are Python's.
import { asIndex, asString, bind, iterate, lengthOf, str, TemplateError, Tuple } from "./values.js";

/** @typedef {import("./values.js").Value} Value */
/** @typedef {import("./values.js").Callable} Callable */

/** Python's whitespace, for use in a character class. JavaScript's \s has U+FEFF and lacks others. */
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const MAX_STRING_CHARS = 48_000_000; // of a string in a template
const MAX_WIDTH_CHARS = 10_000; // of padding
const SPACES = new RegExp(`[${SPACE}]+`, "u");
const ONE_SPACE = new RegExp(`^[${SPACE}]$`, "u");
// biome-ignore lint/suspicious/noControlCharactersInRegex: Python ends lines at them
const LINE = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/g;
// Digits that are not decimal, such as superscripts and circled digits.
const DIGIT =
  /^[\p{Nd}\xb2\xb3\xb9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]+$/u;

/** @param {string} text @param {Value} characters none for whitespace @param {"left" | "right" | "both"} side */
export function strip(text, characters, side) {
  const set = characters === null ? null : new Set(asString(characters, "strip"));
  const drop = (/** @type {string} */ character) => (set ? set.has(character) : ONE_SPACE.test(character));
  const all = [...text];
  let [start, end] = [0, all.length];
  if (side !== "right") while (start < end && drop(all[start])) start++;
  if (side !== "left") while (end > start && drop(all[end - 1])) end--;
  return all.slice(start, end).join("");
}

/** @param {string} text @param {Value} keepEnds */
export function splitLines(text, keepEnds = false) {
  const lines = [];
  let start = 0;
  for (const match of text.matchAll(LINE)) {
    const end = match.index + match[0].length;
    lines.push(text.slice(start, keepEnds ? end : match.index));
    start = end;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** @param {string} text @param {string} old @param {string} now @param {number} count below 0 for all */
export function replace(text, old, now, count) {
  const pieces = old === "" ? [...text] : text.split(old);
  const places = old === "" ? pieces.length + 1 : pieces.length - 1;
  const limit = count < 0 ? places : Math.min(count, places);
  checkLength(text.length + limit * now.length);
  if (old === "") {
    const joined = pieces.map((piece, at) => (at < limit ? now : "") + piece).join("");
    return limit > pieces.length ? joined + now : joined;
  }
  return (
    pieces.slice(0, limit + 1).join(now) +
    pieces
      .slice(limit + 1)
      .map((piece) => old + piece)
      .join("")
  );
}

/** @param {number} length */
export function checkLength(length) {
  if (length > MAX_STRING_CHARS)
    throw new TemplateError(`string: expected at most ${MAX_STRING_CHARS} characters, got ${length}`);
}

/** @param {string} text @param {Value} separator @param {number} maxSplits */
function split(text, separator, maxSplits) {
  const limit = maxSplits < 0 ? Infinity : maxSplits;
  const parts = [];
  if (separator === null) {
    let rest = strip(text, null, "left");
    while (rest !== "" && parts.length < limit) {
      const gap = SPACES.exec(rest);
      if (!gap) break;
      parts.push(rest.slice(0, gap.index));
      rest = rest.slice(gap.index + gap[0].length);
    }
    return rest === "" ? parts : [...parts, rest];
  }
  if (asString(separator, "split") === "") throw new TemplateError("split: expected a separator, got an empty string");
  const pieces = text.split(separator);
  if (pieces.length - 1 <= limit) return pieces;
  return [...pieces.slice(0, limit), pieces.slice(limit).join(separator)];
}

/** @param {string} text @param {Value} separator @param {number} maxSplits */
function splitRight(text, separator, maxSplits) {
  // Read backwards: the first pieces of the reversed text are the last ones.
  const turned = separator === null ? null : reversed(asString(separator, "rsplit"));
  return split(reversed(text), turned, maxSplits).map(reversed).reverse();
}

/** @param {string} text */
export function reversed(text) {
  return [...text].reverse().join("");
}

const CASED = /\p{Cased}/u;
const IGNORED = /\p{Case_Ignorable}/u;

/** Return the lower case of the character at a position. A final sigma depends on its neighbors. @param {string[]} all @param {number} at */
function lowerAt(all, at) {
  if (all[at] !== "Σ") return all[at].toLowerCase();
  const next = (/** @type {number} */ from, /** @type {number} */ step) => {
    let where = from + step;
    while (all[where] !== undefined && IGNORED.test(all[where])) where += step;
    return all[where] !== undefined && CASED.test(all[where]);
  };
  return next(at, -1) && !next(at, 1) ? "ς" : "σ";
}

/** Return the title case of a character, which JavaScript lacks. @param {string} character */
function titleOf(character) {
  const upper = character.toUpperCase();
  if (/[Ǆ-ǌǱ-ǳ]/.test(character))
    return /[Ǆ-ǆ]/.test(character) ? "ǅ" : /[Ǉ-ǉ]/.test(character) ? "ǈ" : /[Ǌ-ǌ]/.test(character) ? "ǋ" : "ǲ";
  if (/[\u10d0-\u10ff]/.test(character)) return character; // Georgian has no title case
  // Greek letters keep their iota subscript; only the first letter of a ligature is capitalised.
  if (/[\u1f80-\u1fff]/.test(character) && /.Ι$/.test(upper)) return `${upper.slice(0, -1)}\u0345`.normalize("NFC");
  return /[ßև\ufb00-\ufb17]/.test(character) ? upper[0] + upper.slice(1).toLowerCase() : upper;
}

/** @param {string} text */
export function capitalize(text) {
  const all = [...text];
  return all.map((character, at) => (at ? lowerAt(all, at) : titleOf(character))).join("");
}

/** @param {string} text */
function title(text) {
  const all = [...text];
  return all.map((character, at) => (at && CASED.test(all[at - 1]) ? lowerAt(all, at) : titleOf(character))).join("");
}

/** @param {string} text @param {Value} width @param {Value} fill @param {"left" | "right" | "both"} side where the text stands */
export function pad(text, width, fill, side) {
  const columns = asIndex(width, "width");
  if (columns > MAX_WIDTH_CHARS) throw new TemplateError(`width: expected at most ${MAX_WIDTH_CHARS}, got ${columns}`);
  if (lengthOf(asString(fill, "fill")) !== 1) throw new TemplateError("fill: expected one character");
  const missing = Math.max(0, columns - lengthOf(text));
  // As in Python's center, an odd space goes left if the width is odd, too.
  const before = side === "left" ? 0 : side === "right" ? missing : (missing >> 1) + (missing & columns & 1);
  return fill.repeat(before) + text + fill.repeat(missing - before);
}

/** Return a part of a text by code points. @param {string} text @param {Value} start @param {Value} end @returns {[string[], number]} */
function part(text, start, end) {
  const all = [...text];
  const clip = (/** @type {Value} */ value, /** @type {number} */ none) => {
    if (value === null) return none;
    const at = asIndex(value, "position");
    return Math.min(Math.max(at < 0 ? at + all.length : at, 0), all.length);
  };
  if (start !== null && asIndex(start, "start") > all.length) return [[], NaN];
  const from = clip(start, 0);
  return [all.slice(from, Math.max(from, clip(end, all.length))), from];
}

/** Return the position of a text in another, or -1. @param {string} text @param {Value[]} args @param {boolean} last */
function find(text, [sub, start, end], last) {
  const [characters, from] = part(text, start, end);
  if (Number.isNaN(from)) return -1n;
  const section = characters.join("");
  const at = last ? section.lastIndexOf(asString(sub, "find")) : section.indexOf(asString(sub, "find"));
  return at < 0 ? -1n : BigInt(from + lengthOf(section.slice(0, at)));
}

/** @param {string} text @param {Value[]} args @param {boolean} last */
function index(text, args, last) {
  const at = find(text, args, last);
  if (at < 0n) throw new TemplateError("index: substring not characters");
  return at;
}

/** @param {string} text @param {Value[]} args @param {"startsWith" | "endsWith"} how */
function beginsOrEnds(text, [prefix, start, end], how) {
  const [characters, from] = part(text, start, end);
  if (Number.isNaN(from)) return false;
  const section = characters.join("");
  const tried = prefix instanceof Tuple ? prefix.items : [prefix];
  return tried.some((each) => section[how](asString(each, how)));
}

/** @param {string} text @param {Value} separator @param {boolean} last */
function partition(text, separator, last) {
  if (asString(separator, "partition") === "")
    throw new TemplateError("partition: expected a separator, got an empty string");
  const at = last ? text.lastIndexOf(separator) : text.indexOf(separator);
  if (at < 0) return new Tuple(last ? ["", "", text] : [text, "", ""]);
  return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

/** Format with replacement fields without conversion or format. @param {string} text @param {Value[]} args @param {Map<string, Value>} named */
function format(text, args, named) {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (all, field) => {
    if (all === "{{" || all === "}}") return all[0];
    if (field === undefined) throw new TemplateError("format: single brace in the string");
    if (!/^\w*$/.test(field)) throw new TemplateError(`format: the field {${field}} is not supported in a page`);
    const value = field === "" ? args[next++] : /^\d+$/.test(field) ? args[Number(field)] : named.get(field);
    if (value === undefined) throw new TemplateError(`format: no argument for {${field}}`);
    return str(value);
  });
}

/** @param {string} text @param {Value[]} args */
function count(text, [sub, start, end]) {
  const [characters, from] = part(text, start, end);
  if (Number.isNaN(from)) return 0n;
  return BigInt(asString(sub, "count") === "" ? characters.length + 1 : characters.join("").split(sub).length - 1);
}

/** Return a method: whether the text is not empty and all characters match. @param {RegExp} pattern @returns {[string[], (text: string) => boolean]} */
const all = (pattern) => [[], (text) => pattern.test(text)];

/** By name: the parameters, with defaults as pairs, and the function.
 * @type {Record<string, [import("./values.js").Parameters, (text: string, ...args: Value[]) => Value]>} */
const METHODS = {
  capitalize: [[], capitalize],
  center: [["width", ["fillchar", " "]], (text, width, fill) => pad(text, width, fill, "both")],
  count: [["sub", ["start", null], ["end", null]], (text, ...args) => count(text, args)],
  endswith: [["suffix", ["start", null], ["end", null]], (text, ...args) => beginsOrEnds(text, args, "endsWith")],
  find: [["sub", ["start", null], ["end", null]], (text, ...args) => find(text, args, false)],
  index: [["sub", ["start", null], ["end", null]], (text, ...args) => index(text, args, false)],
  isalnum: all(/^[\p{L}\p{N}]+$/u),
  isalpha: all(/^\p{L}+$/u),
  isascii: all(/^[\0-\x7f]*$/),
  isdecimal: all(/^\p{Nd}+$/u),
  isdigit: all(DIGIT),
  islower: [[], (text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text)],
  isprintable: [[], (text) => !/[\p{C}\p{Z}]/u.test(text.replaceAll(" ", ""))],
  isspace: all(new RegExp(`^[${SPACE}]+$`, "u")),
  isupper: [[], (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text)],
  join: [["iterable"], (text, parts) => [...iterate(parts)].map((each) => asString(each, "join")).join(text)],
  ljust: [["width", ["fillchar", " "]], (text, width, fill) => pad(text, width, fill, "left")],
  lower: [[], (text) => text.toLowerCase()],
  lstrip: [[["chars", null]], (text, characters) => strip(text, characters, "left")],
  partition: [["sep"], (text, separator) => partition(text, separator, false)],
  removeprefix: [
    ["prefix"],
    (text, cut) => (text.startsWith(asString(cut, "removeprefix")) ? text.slice(cut.length) : text),
  ],
  removesuffix: [
    ["suffix"],
    (text, cut) => (asString(cut, "removesuffix") && text.endsWith(cut) ? text.slice(0, -cut.length) : text),
  ],
  replace: [
    ["old", "new", ["count", -1n]],
    (text, old, now, count) =>
      replace(text, asString(old, "replace"), asString(now, "replace"), asIndex(count, "count")),
  ],
  rfind: [["sub", ["start", null], ["end", null]], (text, ...args) => find(text, args, true)],
  rindex: [["sub", ["start", null], ["end", null]], (text, ...args) => index(text, args, true)],
  rjust: [["width", ["fillchar", " "]], (text, width, fill) => pad(text, width, fill, "right")],
  rpartition: [["sep"], (text, separator) => partition(text, separator, true)],
  rsplit: [
    [
      ["sep", null],
      ["maxsplit", -1n],
    ],
    (text, separator, maxSplits) => splitRight(text, separator, asIndex(maxSplits, "maxsplit")),
  ],
  rstrip: [[["chars", null]], (text, characters) => strip(text, characters, "right")],
  split: [
    [
      ["sep", null],
      ["maxsplit", -1n],
    ],
    (text, separator, maxSplits) => split(text, separator, asIndex(maxSplits, "maxsplit")),
  ],
  splitlines: [[["keepends", false]], splitLines],
  startswith: [["prefix", ["start", null], ["end", null]], (text, ...args) => beginsOrEnds(text, args, "startsWith")],
  strip: [[["chars", null]], (text, characters) => strip(text, characters, "both")],
  swapcase: [
    [],
    (text) => {
      const characters = [...text];
      const swap = (/** @type {string} */ each, /** @type {number} */ at) =>
        /\p{Uppercase}/u.test(each) ? lowerAt(characters, at) : /\p{Lowercase}/u.test(each) ? each.toUpperCase() : each;
      return characters.map(swap).join("");
    },
  ],
  title: [[], title],
  upper: [[], (text) => text.toUpperCase()],
  zfill: [
    ["width"],
    (text, width) => {
      const sign = /^[+-]/.test(text) ? text[0] : "";
      return sign + pad(text.slice(sign.length), BigInt(asIndex(width, "width") - sign.length), "0", "right");
    },
  ],
};

// Methods of Python's strings that are not supported; without this list they would be undefined values.
export const ABSENT = "casefold encode expandtabs format_map isidentifier isnumeric istitle maketrans translate".split(
  " ",
);

/** Return a method of a string; undefined if there is none. @param {string} text @param {string} name @returns {Callable | undefined} */
export function methodOf(text, name) {
  if (name === "format") return (args, named) => format(text, args, named);
  if (Object.hasOwn(METHODS, name)) {
    const [parameters, method] = METHODS[name];
    return (args, named) => method(text, ...bind(name, parameters, args, named));
  }
  if (!ABSENT.includes(name)) return undefined;
  throw new TemplateError(`the method ${name} of strings is not supported in a page`);
}
