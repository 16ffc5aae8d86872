// Strings, keys and numbers of JSON as items of an automaton.
import { bytes, choice, EMPTY, Item, NOTHING, repeat, sequence, text } from "./automaton.js";

const QUOTE = 0x22;
const MAX_DIGITS = 16; // before the decimal point, and after it: a double has no more
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
const REST_OF_STRING = sequence(repeat(CHARACTER), text('"'));
/** The rest of a string, by the rest of its current character. @type {Map<Item, Item>} */
const REST_AFTER = new Map([EMPTY, TAIL1, TAIL2, TAIL3].map((rest) => [rest, sequence(rest, REST_OF_STRING)]));

/** Return a string of `min` to `max` characters. */
export const string = (min = 0, max = Infinity) => sequence(text('"'), repeat(CHARACTER, min, max), text('"'));

/** An item that caches the rest after each byte, because equal items must be one object. */
class CachedItem extends Item {
  /** @type {(Item | null)[]} */
  #steps = [];

  /** @param {number} byte @returns {Item | null} */
  step(byte) {
    if (this.#steps[byte] === undefined) this.#steps[byte] = this.rest(byte);
    return this.#steps[byte];
  }

  /** @param {number} _byte @returns {Item | null} */
  rest(_byte) {
    return null;
  }
}

/** A string, after its first quote, that is not one of some names. */
class OtherKey extends CachedItem {
  /**
   * @param {Uint8Array[]} names that start with the bytes read so far
   * @param {number} at number of bytes read
   * @param {Item} within rest of the current character
   */
  constructor(names, at, within) {
    super();
    this.names = names;
    this.at = at;
    this.within = within;
  }

  /** @param {number} byte */
  rest(byte) {
    const between = this.within === EMPTY;
    if (between && byte === QUOTE) return this.names.some((name) => name.length === this.at) ? null : EMPTY;
    const rest = (between ? CHARACTER : this.within).step(byte);
    if (!rest || rest === ESCAPED) return null; // an escape sequence could spell a name
    const names = this.names.filter((name) => name[this.at] === byte);
    if (names.length) return new OtherKey(names, this.at + 1, rest);
    return REST_AFTER.get(rest) ?? sequence(rest, REST_OF_STRING);
  }
}

/** Return a key that is not one of some names. @param {string[]} names */
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
const POSITIVE = sequence(bytes([0x31, 0x39]), repeat(DIGIT, 0, MAX_DIGITS - 1));
const INTEGER = sequence(optional(text("-")), choice(text("0"), POSITIVE));
const FRACTION = optional(text("."), repeat(DIGIT, 1, MAX_DIGITS));
const EXPONENT = optional(choice(text("e"), text("E")), choice(EMPTY, text("+"), text("-")), repeat(DIGIT, 1, 2));
const NUMBER = sequence(INTEGER, FRACTION, EXPONENT);

/**
 * @typedef {{low: number, high: number, above: boolean, below: boolean, integer: boolean}} Bounds above, below: whether
 *   the bound itself is excluded
 */

/** A number within bounds, after some of its characters. It allows those that can still lead to such a number. */
class BoundedNumber extends CachedItem {
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
  rest(byte) {
    const read = this.read + String.fromCharCode(byte);
    return possible(this.bounds, read) ? new BoundedNumber(this.bounds, read) : null;
  }
}

/**
 * Return whether a number from `first` to `last` is within the bounds.
 * @param {Bounds} bounds
 * @param {number} first
 * @param {number} last
 */
function within({ low, high, above, below }, first, last) {
  return (below ? first < high : first <= high) && (above ? last > low : last >= low);
}

/** Return whether the characters read so far can become a number within the bounds. @param {Bounds} bounds @param {string} read */
function possible(bounds, read) {
  const parts = /^(-?)(0|[1-9]\d*|)(\.\d*)?$/.exec(read);
  if (!parts) return false;
  const [, sign, digits, point] = parts;
  const fraction = point?.slice(1) ?? "";
  if (point !== undefined && (bounds.integer || !digits)) return false;
  if (digits.length > MAX_DIGITS || fraction.length > MAX_DIGITS) return false;
  const { low, high, above, below } = bounds;
  const magnitudes = sign ? { low: -high, high: -low, above: below, below: above, integer: bounds.integer } : bounds;
  if (!digits) return within(magnitudes, 0, Infinity);
  const maxMore = point !== undefined || digits === "0" ? 0 : MAX_DIGITS - digits.length;
  for (let more = 0; more <= maxMore; more++) {
    // With `more` further digits: from all zeros up to, not including, the next number of this length.
    const scale = `e${more - fraction.length}`;
    const first = Number(digits + fraction + scale);
    const next = Number(`${BigInt(digits + fraction) + 1n}${scale}`);
    const [last, above] = bounds.integer ? [next - 1, magnitudes.above] : [next, true];
    if (within({ ...magnitudes, above }, first, last)) return true;
  }
  return false;
}

/** @param {Bounds} bounds @returns {Item} */
export function number(bounds) {
  const { low, high, above, below, integer } = bounds;
  if (low === -Infinity && high === Infinity) return integer ? INTEGER : NUMBER;
  if (integer) {
    const first = above ? Math.floor(low) + 1 : Math.ceil(low);
    const last = below ? Math.ceil(high) - 1 : Math.floor(high);
    return first > last
      ? NOTHING
      : new BoundedNumber({ low: first, high: last, above: false, below: false, integer }, "");
  }
  return low > high || (low === high && (above || below)) ? NOTHING : new BoundedNumber(bounds, "");
}
