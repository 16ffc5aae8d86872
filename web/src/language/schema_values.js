// Strings, keys and numbers of JSON, as items of an automaton.
import { bytes, choice, EMPTY, Item, NOTHING, repeated, sequence, text } from "./schema_items.js";

const QUOTE = 0x22;
const DIGITS = 16; // of a number before the point, and behind it: more would not survive as a double
const [TAIL1, TAIL2, TAIL3] = [bytes([0x80, 0xbf])].flatMap((one) => {
  const two = bytes([0x80, 0xbf, one]);
  return [one, two, bytes([0x80, 0xbf, two])];
});
const ESCAPED = bytes(
  ...[...new TextEncoder().encode('"\\bfnrt')].map((byte) => /** @type {[number, number]} */ ([byte, byte])),
);
/** A character within quotes, in well-formed UTF-8. */
const CHARACTER = bytes(
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5c, 0x5c, ESCAPED],
  [0x5d, 0x7e],
  [0xc2, 0xdf, TAIL1],
  [0xe0, 0xef, TAIL2],
  [0xe0, 0xe0, bytes([0xa0, 0xbf, TAIL1])],
  [0xed, 0xed, bytes([0x80, 0x9f, TAIL1])],
  [0xf1, 0xf3, TAIL3],
  [0xf0, 0xf0, bytes([0x90, 0xbf, TAIL2])],
  [0xf4, 0xf4, bytes([0x80, 0x8f, TAIL2])],
);
const REST_OF_STRING = sequence(repeated(CHARACTER), text('"'));
/** The rest of a string, by what its last character needs. @type {Map<Item, Item>} */
const BEHIND = new Map([EMPTY, TAIL1, TAIL2, TAIL3].map((rest) => [rest, sequence(rest, REST_OF_STRING)]));

/** Of so many characters. */
export const string = (least = 0, most = Infinity) => sequence(text('"'), repeated(CHARACTER, least, most), text('"'));

/** What is left of it behind each byte is remembered: equal items must be one object. */
class Remembering extends Item {
  /** @type {(Item | null)[]} */
  #steps = [];

  /** @param {number} byte @returns {Item | null} */
  step(byte) {
    if (this.#steps[byte] === undefined) this.#steps[byte] = this.make(byte);
    return this.#steps[byte];
  }

  /** @param {number} _byte @returns {Item | null} */
  make(_byte) {
    return null;
  }
}

/** A string behind its first quote that is none of some names. */
class OtherKey extends Remembering {
  /**
   * @param {Uint8Array[]} names that begin like what was read
   * @param {number} at bytes of it
   * @param {Item} within what the last character needs
   */
  constructor(names, at, within) {
    super();
    this.names = names;
    this.at = at;
    this.within = within;
  }

  /** @param {number} byte */
  make(byte) {
    const between = this.within === EMPTY;
    if (between && byte === QUOTE) return this.names.some((name) => name.length === this.at) ? null : EMPTY;
    const rest = (between ? CHARACTER : this.within).step(byte);
    if (!rest || rest === ESCAPED) return null; // an escape could spell a name in other letters
    const alike = this.names.filter((name) => name[this.at] === byte);
    return alike.length ? new OtherKey(alike, this.at + 1, rest) : (BEHIND.get(rest) ?? sequence(rest, REST_OF_STRING));
  }
}

/** A key that is none of some names. @param {string[]} names */
export const otherKey = (names) =>
  sequence(
    text('"'),
    new OtherKey(
      names.map((name) => new TextEncoder().encode(name)),
      0,
      EMPTY,
    ),
  );

const DIGIT = bytes([0x30, 0x39]);
/** @param {Item[]} items */
const optional = (...items) => choice(EMPTY, sequence(...items));
const POSITIVE = sequence(bytes([0x31, 0x39]), repeated(DIGIT, 0, DIGITS - 1));
const INTEGER = sequence(optional(text("-")), choice(text("0"), POSITIVE));
const FRACTION = optional(text("."), repeated(DIGIT, 1, DIGITS));
const EXPONENT = optional(choice(text("e"), text("E")), choice(EMPTY, text("+"), text("-")), repeated(DIGIT, 1, 2));
const NUMBER = sequence(INTEGER, FRACTION, EXPONENT);

/**
 * @typedef {{low: number, high: number, above: boolean, below: boolean, whole: boolean}} Bounds above and below: the
 *   bound itself is excluded
 */

/** A number between bounds, of which some digits are read: more come as long as a number within can come of them. */
class Ranged extends Remembering {
  /** @param {Bounds} bounds @param {string} read */
  constructor(bounds, read) {
    super();
    this.bounds = bounds;
    this.read = read;
  }

  get done() {
    const value = Number(this.read);
    return /\d$/.test(this.read) && within(this.bounds, value, value);
  }

  /** @param {number} byte */
  make(byte) {
    const read = this.read + String.fromCharCode(byte);
    return possible(this.bounds, read) ? new Ranged(this.bounds, read) : null;
  }
}

/**
 * Whether a number from `first` to `last` is within.
 * @param {Bounds} bounds
 * @param {number} first
 * @param {number} last
 */
function within({ low, high, above, below }, first, last) {
  return (below ? first < high : first <= high) && (above ? last > low : last >= low);
}

/** Whether what is read can become a number within. @param {Bounds} bounds @param {string} read */
function possible(bounds, read) {
  const parts = /^(-?)(0|[1-9]\d*|)(\.\d*)?$/.exec(read);
  if (!parts) return false;
  const [, sign, whole, point] = parts;
  const fraction = point?.slice(1) ?? "";
  if (point !== undefined && (bounds.whole || !whole)) return false;
  if (whole.length > DIGITS || fraction.length > DIGITS) return false;
  const { low, high, above, below } = bounds;
  const magnitudes = sign ? { low: -high, high: -low, above: below, below: above, whole: bounds.whole } : bounds;
  if (!whole) return within(magnitudes, 0, Infinity);
  const longest = point !== undefined || whole === "0" ? 0 : DIGITS - whole.length;
  for (let more = 0; more <= longest; more++) {
    // Behind so many more digits: from all zeros up to, not including, the next number of this length.
    const scale = `e${more - fraction.length}`;
    const first = Number(whole + fraction + scale);
    const next = Number(`${BigInt(whole + fraction) + 1n}${scale}`);
    const [last, above] = bounds.whole ? [next - 1, magnitudes.above] : [next, true];
    if (within({ ...magnitudes, above }, first, last)) return true;
  }
  return false;
}

/** @param {Bounds} bounds @returns {Item} */
export function number(bounds) {
  const { low, high, above, below, whole } = bounds;
  if (low === -Infinity && high === Infinity) return whole ? INTEGER : NUMBER;
  if (whole) {
    const first = above ? Math.floor(low) + 1 : Math.ceil(low);
    const last = below ? Math.ceil(high) - 1 : Math.floor(high);
    return first > last ? NOTHING : new Ranged({ low: first, high: last, above: false, below: false, whole }, "");
  }
  return low > high || (low === high && (above || below)) ? NOTHING : new Ranged(bounds, "");
}
