/**
 * Numbers that only a call knows, as docs/plans.md has them. A term is compiled once into a function of the call.
 * @typedef {number | string | any[]} Term
 * @typedef {{ element(value: number, index: number[]): number, given(value: number): number }} Known
 * @typedef {(known: Known) => number} Compiled
 */
import { WebpteError } from "./errors.js";
import { half, roundEven } from "./halves.js";

const words = new DataView(new ArrayBuffer(4));

/** @param {number} x */
function floatBits(x) {
  words.setFloat32(0, x);
  return words.getInt32(0);
}

/** @type {(x: number) => number} */
const finite = (x) => {
  if (!Number.isFinite(x)) throw new WebpteError("shape", `${x} has no integer.`);
  return x;
};

/** @type {(x: number) => number} */
const whole = (x) => Math.trunc(finite(x));

/** @type {(divide: (a: number, b: number) => number) => (a: number, b: number) => number} */
const checked = (divide) => (a, b) => {
  if (b === 0) throw new WebpteError("shape", `A division of ${a} by zero.`);
  return divide(a, b);
};

/** @type {Record<string, (...args: number[]) => number>} */
const FUNCTIONS = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  truediv: checked((a, b) => a / b),
  floordiv: checked((a, b) => Math.floor(a / b)),
  mod: checked((a, b) => a - b * Math.floor(a / b)),
  min: Math.min,
  max: Math.max,
  neg: (a) => -a,
  eq: (a, b) => Number(a === b),
  ne: (a, b) => Number(a !== b),
  ge: (a, b) => Number(a >= b),
  gt: (a, b) => Number(a > b),
  le: (a, b) => Number(a <= b),
  lt: (a, b) => Number(a < b),
  not: (a) => Number(!a),
  int: whole,
  trunc: whole,
  float: (a) => a,
  ceil: (a) => Math.ceil(finite(a)),
  round: (a) => roundEven(finite(a)),
  choose: (condition, a, b) => (condition ? a : b),
  half,
  float_bits: floatBits,
  saturated: (a) => (Number.isNaN(a) ? 0 : Math.trunc(Math.min(Math.max(a, -(2 ** 31)), 2 ** 31 - 1))),
};

const BEYOND = /** @type {Record<string, number>} */ ({ inf: Infinity, "-inf": -Infinity, nan: NaN });

/**
 * @param {Term} term
 * @returns {Compiled}
 */
export function compile(term) {
  if (!Array.isArray(term)) {
    const number = typeof term === "string" ? BEYOND[term] : term;
    return () => number;
  }
  const [name, ...rest] = term;
  if (name === "element") return (known) => known.element(rest[0], rest[1]);
  if (name === "given") return (known) => known.given(rest[0]);
  if (name === "sum") {
    const [constant, ...products] = rest;
    const parts = products.map(([factor, inner]) => /** @type {const} */ ([factor, compile(inner)]));
    return (known) => parts.reduce((sum, [factor, inner]) => sum + factor * inner(known), constant);
  }
  const apply = FUNCTIONS[name];
  if (!apply) throw new WebpteError("damaged", `The plan has a term ${name} that this player does not know.`);
  const args = rest.map(compile);
  return (known) => apply(...args.map((argument) => argument(known)));
}
