// Split templates into tokens: text, and the contents of braces. The line break after a block and the spaces before it
// are removed, as with trim_blocks and lstrip_blocks of Jinja.
import { SPACE, strip } from "./strings.js";
import { TemplateError } from "./values.js";

/** @typedef {{type: string, value: any}} Token  */

const BEGIN = new RegExp(`\\{%([-+]?)[${SPACE}]*raw[${SPACE}]*(?:-%\\}[${SPACE}]*|%\\})|\\{([{%#])([-+]?)`, "gu");
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}[${SPACE}]*|#\\}\\n?`, "gu");
const RAW_END = new RegExp(`\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*(?:\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?)`, "gu");
const ENDS = {
  "%": new RegExp(`\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?`, "uy"),
  "{": new RegExp(`-\\}\\}[${SPACE}]*|\\}\\}`, "uy"),
};
const SPACES = new RegExp(`[${SPACE}]+`, "uy");
const FLOAT = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{L}\p{N}_]+/uy;
const STRING = /'([^'\\]*(?:\\.[^'\\]*)*)'|"([^"\\]*(?:\\.[^"\\]*)*)"/sy;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
/** @type {[string, RegExp][]} */
const PATTERNS = [
  ["space", SPACES],
  ["float", FLOAT],
  ["integer", INTEGER],
  ["name", NAME],
  ["string", STRING],
  ["operator", OPERATOR],
];
const CLOSING = /** @type {Record<string, string>} */ ({ "(": ")", "[": "]", "{": "}" });
const ESCAPED = /** @type {Record<string, string>} */ ({
  n: "\n", t: "\t", r: "\r", b: "\b", f: "\f", v: "\v", a: "\x07", "\\": "\\", "'": "'", '"': '"', "\n": "",
}); // biome-ignore format: a table

/** @param {string} source @returns {Token[]} */
export function tokenize(source) {
  const text = source.replace(/\r\n?/g, "\n").replace(/\n$/, "");
  /** @type {Token[]} */
  const tokens = [];
  let at = 0;
  let lineStarts = true;
  /** Add the text before a tag. @param {string} data @param {string} sign @param {boolean} block */
  const add = (data, sign, block) => {
    let kept = data;
    if (sign === "-") kept = strip(data, null, "right");
    else if (sign !== "+" && block) {
      const line = data.lastIndexOf("\n") + 1;
      if ((line > 0 || lineStarts) && strip(data.slice(line), null, "both") === "") kept = data.slice(0, line);
    }
    if (kept) tokens.push({ type: "data", value: kept });
  };
  /** @param {RegExp} pattern @param {string} what */
  const upTo = (pattern, what) => {
    pattern.lastIndex = at;
    const end = pattern.exec(text);
    if (!end) throw new TemplateError(`the end of ${what} is missing`);
    return end;
  };
  while (at < text.length) {
    BEGIN.lastIndex = at;
    const begin = BEGIN.exec(text);
    if (!begin) {
      tokens.push({ type: "data", value: text.slice(at) });
      break;
    }
    const [all, rawSign, kind, sign] = begin;
    add(text.slice(at, begin.index), sign ?? rawSign, kind !== "{");
    at = begin.index + all.length;
    lineStarts = false;
    if (kind === undefined || kind === "#") {
      const end = kind === "#" ? upTo(COMMENT_END, "a comment") : upTo(RAW_END, "raw");
      if (kind === undefined) add(text.slice(at, end.index), end[1], true);
      at = end.index + end[0].length;
    } else {
      tokens.push({ type: kind === "%" ? "block" : "variable", value: all });
      at = inside(text, at, ENDS[/** @type {"%"} */ (kind)], tokens);
    }
    lineStarts = text[at - 1] === "\n";
  }
  tokens.push({ type: "end", value: "the end of the template" });
  return tokens;
}

/** Add the tokens of a tag. Return the position after it. @param {string} text @param {number} at @param {RegExp} ending @param {Token[]} tokens @returns {number} */
function inside(text, at, ending, tokens) {
  /** @type {string[]} */
  const open = [];
  const match = (/** @type {RegExp} */ pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  for (;;) {
    const end = open.length ? null : match(ending);
    if (end) {
      tokens.push({ type: "close", value: end[0] });
      return at + end[0].length;
    }
    const [type, lexeme] = next(match, text[at - 1] !== ".");
    if (!lexeme)
      throw new TemplateError(
        at < text.length ? `unexpected ${text.slice(at, at + 10)}` : "the end of a tag is missing",
      );
    const all = lexeme[0];
    if (type === "operator") {
      if (CLOSING[all]) open.push(CLOSING[all]);
      else if (")]}".includes(all) && open.pop() !== all) throw new TemplateError(`unexpected ${all}`);
      tokens.push({ type: all, value: all });
    } else if (type === "string") tokens.push({ type, value: unescaped(lexeme[1] ?? lexeme[2]) });
    else if (type === "name") tokens.push({ type, value: all });
    else if (type === "float") tokens.push({ type: "constant", value: Number(all.replaceAll("_", "")) });
    else if (type === "integer") {
      tokens.push({ type: "constant", value: BigInt(all.replaceAll("_", "").replace(/^0+(?=\d)/, "")) });
    }
    at += lexeme[0].length;
  }
}

/** Return the kind and the match of the next token. @param {(pattern: RegExp) => RegExpExecArray | null} match @param {boolean} float whether it may be one @returns {[string, RegExpExecArray | null]} */
function next(match, float) {
  for (const [type, pattern] of PATTERNS) {
    const lexeme = type !== "float" || float ? match(pattern) : null;
    if (lexeme) return [type, lexeme];
  }
  return ["none", null];
}

/** @param {string} text */
function unescaped(text) {
  return text.replace(
    /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|N\{|(.))/gs,
    (all, x, u, long, octal, one) => {
      const hex = x ?? u ?? long;
      if (hex) return String.fromCodePoint(parseInt(hex, 16));
      if (octal) return String.fromCodePoint(parseInt(octal, 8));
      if (one === undefined || /[xuU]/.test(one))
        throw new TemplateError(`the escape ${all} is not supported in a page`);
      return ESCAPED[one] ?? all;
    },
  );
}
