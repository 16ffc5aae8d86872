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

/**
 * What an expression can repeat. JavaScript's engine has no limit of work: a repetition of something that may match in
 * several ways takes exponential time, and n repetitions in a row the power n of the length.
 * @typedef {{ anyCase: boolean, varies: boolean, repeats: number, most: number }} Group
 */
const QUANTIFIER = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})\??/;
const MAX_REPEATS = 4; // in a row
const MANY = 16; // repetitions that count as any number

/** @returns {Group} */
const newGroup = (anyCase = false) => ({ anyCase, varies: false, repeats: 0, most: 0 });

class Translation {
  #at = 0;
  #source;
  /** The expression, and every open group. @type {Group[]} */
  #groups = [newGroup()];
  /** The group that ends here. @type {Group | null} */
  #closed = null;

  /** @param {string} source */
  constructor(source) {
    this.#source = source;
  }

  text() {
    let result = "";
    while (this.#at < this.#source.length) {
      const quantifier = QUANTIFIER.exec(this.#source.slice(this.#at));
      if (quantifier) {
        this.#count(quantifier);
        result += this.#take(quantifier[0].length);
      } else {
        this.#closed = null; // unless a group ends here
        result += this.#next();
      }
    }
    return result;
  }

  get #group() {
    return /** @type {Group} */ (this.#groups.at(-1));
  }

  /** Count a quantifier of the part before it, and refuse what may take too long. @param {RegExpExecArray} quantifier */
  #count([text, low, comma, high]) {
    if (this.#source[this.#at + text.length] === "+") this.#refuse(`the possessive ${text}+`);
    const most = text[0] === "?" ? 1 : !low || (comma && !high) ? Infinity : Number(high || low);
    const varies = !low || Boolean(comma && high !== low);
    if (most > 1 && this.#closed?.varies) this.#refuse(`a repetition in the repetition ${text}`);
    const inner = this.#closed?.repeats ?? 0;
    this.#group.repeats += (varies && most >= MANY ? 1 : 0) + (most > 1 ? inner * (Math.min(most, MANY) - 1) : 0);
    this.#group.varies ||= varies;
    if (this.#group.repeats > MAX_REPEATS) this.#refuse(`more than ${MAX_REPEATS} repetitions in a row`);
    this.#closed = null;
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
    const group = /^\((\?[^:=!<]*[:=!<]?[=!]?)?/.exec(rest);
    if (group) {
      const kind = group[1] ?? "";
      if (!["", "?:", "?=", "?!", "?<=", "?<!", "?i:"].includes(kind)) this.#refuse(`the group (${kind}`);
      this.#groups.push(newGroup(kind === "?i:" || this.#group.anyCase));
      this.#take(group[0].length);
      return kind === "?i:" ? "(?:" : group[0];
    }
    const character = String.fromCodePoint(/** @type {number} */ (rest.codePointAt(0)));
    if (character === "[") return this.#class();
    if (character === "\\") return this.#escape(false);
    this.#take(character.length);
    if (character === "|") this.#nextBranch();
    if (character === ")") this.#close();
    if (character === ".") return "[^\\n]";
    if (character === "$") return "(?:$|(?=\\n))"; // the end of a line
    if (character === "^") return "(?:^|(?<=\\n))";
    if (this.#group.anyCase) return this.#anyCase(character);
    return character === "/" ? "\\/" : character;
  }

  /** Begin another branch of the group: it may match in several ways, and its repetitions are counted anew. */
  #nextBranch() {
    const { repeats, most } = this.#group;
    Object.assign(this.#group, { varies: true, repeats: 0, most: Math.max(repeats, most) });
  }

  #close() {
    const { varies, repeats, most } = this.#group;
    if (this.#groups.length > 1) this.#groups.pop();
    this.#closed = { ...newGroup(), varies, repeats: Math.max(repeats, most) };
    this.#group.varies ||= varies;
    this.#group.repeats += this.#closed.repeats;
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
    if (this.#group.anyCase) this.#refuse("a class in any case");
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
