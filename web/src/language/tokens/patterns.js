// Convert the regular expressions of tokenizers, which are Oniguruma's, to JavaScript's, with Rust's character classes.
import { WebpteError } from "../../errors.js";

/** For use in a character class. JavaScript's \s has U+FEFF and lacks U+0085. */
export const SPACE = "\\p{White_Space}";
export const JOINERS = "\\u200c\\u200d"; // word characters in Rust, not in Oniguruma
export const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
const CLASSES = /** @type {Record<string, string>} */ ({ s: SPACE, w: WORD, d: "\\p{Nd}" });
const FOLDED = /** @type {Record<string, string>} */ ({ s: "sSſ", k: "kK\u212a" });

/** @param {string} what @returns {never} */
export function refuse(what) {
  throw new WebpteError("unsupported", `tokenizer: ${what} is not supported in a page`);
}

/** Return the expression of a tokenizer.json as a RegExp. @param {string} source @param {string} [flags] */
export function expression(source, flags = "gu") {
  return new RegExp(new Translation(source).text(), flags);
}

/** Return the RegExp of a pattern in tokenizer.json. @param {{String?: string, Regex?: string}} pattern */
export function finder(pattern) {
  if (pattern?.Regex !== undefined) return expression(pattern.Regex);
  if (pattern?.String === undefined) refuse(`the pattern ${JSON.stringify(pattern)}`);
  return literal(pattern.String);
}

/** @param {string} text */
export function literal(text) {
  return new RegExp(text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&") || "(?!)", "gu");
}

class Translation {
  #at = 0;
  #source;
  /** For every open group, whether it ignores case. @type {boolean[]} */
  #groups = [];

  /** @param {string} source */
  constructor(source) {
    this.#source = source;
  }

  text() {
    let result = "";
    while (this.#at < this.#source.length) result += this.#next();
    return result;
  }

  #refuse(/** @type {string} */ what) {
    return refuse(`${what} in the expression ${this.#source}`);
  }

  #take(count = 1) {
    this.#at += count;
    return this.#source.slice(this.#at - count, this.#at);
  }

  /** @returns {string} */
  #next() {
    const rest = this.#source.slice(this.#at);
    const possessive = /^(?:[*+?]|\{\d+(?:,\d*)?\})\+/.exec(rest);
    if (possessive) this.#refuse(`the possessive ${possessive[0]}`);
    const group = /^\((\?[^:=!<]*[:=!<]?[=!]?)?/.exec(rest);
    if (group) {
      const kind = group[1] ?? "";
      if (!["", "?:", "?=", "?!", "?<=", "?<!", "?i:"].includes(kind)) this.#refuse(`the group (${kind}`);
      this.#groups.push(kind === "?i:" || (this.#groups.at(-1) ?? false));
      this.#take(group[0].length);
      return kind === "?i:" ? "(?:" : group[0];
    }
    const character = String.fromCodePoint(/** @type {number} */ (rest.codePointAt(0)));
    if (character === "[") return this.#class();
    if (character === "\\") return this.#escape(false);
    this.#take(character.length);
    if (character === ")") this.#groups.pop();
    if (character === ".") return "[^\\n]";
    if (character === "$") return "(?:$|(?=\\n))"; // the end of a line
    if (character === "^") return "(?:^|(?<=\\n))";
    if (this.#groups.at(-1)) return this.#anyCase(character);
    return character === "/" ? "\\/" : character;
  }

  /** @param {string} character */
  #anyCase(character) {
    const lower = character.toLowerCase();
    if (!/[a-z]/.test(lower))
      return /[\x80-\uffff]/.test(character) ? this.#refuse(`${character} in any case`) : character;
    return `[${FOLDED[lower] ?? lower + lower.toUpperCase()}]`;
  }

  /** @param {boolean} inClass @returns {string} */
  #escape(inClass) {
    const rest = this.#source.slice(this.#at);
    const named = /^\\([pP])\{(\^?)(\w+)\}/.exec(rest);
    if (named) {
      this.#take(named[0].length);
      const negative = (named[1] === "P") !== (named[2] === "^");
      for (const name of [named[3], `Script=${named[3]}`]) {
        try {
          return new RegExp(`\\${negative ? "P" : "p"}{${name}}`, "u").source;
        } catch {
          // It may be the name of a script.
        }
      }
      this.#refuse(named[0]);
    }
    const code = /^\\(?:x\{([\da-fA-F]+)\}|x([\da-fA-F]{2})|u([\da-fA-F]{4}))/.exec(rest);
    if (code) {
      this.#take(code[0].length);
      return `\\u{${code[1] ?? code[2] ?? code[3]}}`;
    }
    const letter = rest[1] ?? "";
    const members = CLASSES[letter.toLowerCase()];
    if (members) {
      this.#take(2);
      if (letter === letter.toLowerCase()) return inClass ? members : `[${members}]`;
      if (!inClass) return `[^${members}]`;
      return letter === "W" ? this.#refuse("\\W in a class") : members.replace("p", "P");
    }
    if (/[a-zA-Z\d]/.test(letter) && !/[nrtfv]/.test(letter)) this.#refuse(`\\${letter}`);
    this.#take(2);
    if (/[nrtfv]/.test(letter) || /[\\^$.*+?()[\]{}|/]/.test(letter)) return `\\${letter}`;
    return letter === "-" && inClass ? "\\-" : letter;
  }

  #class() {
    if (this.#groups.at(-1)) this.#refuse("a class in any case");
    let result = this.#take();
    if (this.#source[this.#at] === "^") result += this.#take();
    for (let first = true; this.#source[this.#at] !== "]" || first; first = false) {
      const character = this.#source[this.#at];
      if (character === undefined) this.#refuse("a class without end");
      if (character === "[" || this.#source.startsWith("&&", this.#at)) this.#refuse(`${character} in a class`);
      if (character === "\\") result += this.#escape(true);
      else result += /[\](){}|/]/.test(character) ? `\\${this.#take()}` : this.#take();
    }
    return result + this.#take();
  }
}
