/**
 * Terms of docs/plans.md: numbers that depend on the values of a call. A term is compiled to a function of these.
 * @typedef {number | string | any[]} Term
 * @typedef {{
 *   element(value: number, index: number[]): number, extreme(value: number, greatest: boolean): number,
 *   scalar(value: number): number
 * }} CallValues
 * @typedef {(values: CallValues) => number} Compiled
 */
import { reading, WebpteError } from "./errors.js";
import { half, roundEven } from "./halves.js";

const view = new DataView(new ArrayBuffer(4));

/** @param {number} x */
function floatBits(x) {
  view.setFloat32(0, x);
  return view.getInt32(0);
}

/** @type {(x: number) => number} */
const finite = (x) => {
  if (!Number.isFinite(x)) throw new WebpteError("shape", `${x} cannot be converted to an integer.`);
  return x;
};

/** @type {(x: number) => number} */
const integer = (x) => Math.trunc(finite(x));

/** @type {(divide: (a: number, b: number) => number) => (a: number, b: number) => number} */
const nonzero = (divide) => (a, b) => {
  if (b === 0) throw new WebpteError("shape", `${a} is divided by zero.`);
  return divide(a, b);
};

/** @type {Record<string, (...args: number[]) => number>} */
const FUNCTIONS = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  truediv: nonzero((a, b) => a / b),
  floordiv: nonzero((a, b) => Math.floor(a / b)),
  mod: nonzero((a, b) => a - b * Math.floor(a / b)),
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
  int: integer,
  trunc: integer,
  float: (a) => a,
  ceil: (a) => Math.ceil(finite(a)),
  round: (a) => roundEven(finite(a)),
  select: (condition, a, b) => (condition ? a : b),
  round_to_f16: half,
  float_bits: floatBits,
  saturate: (a) => (Number.isNaN(a) ? 0 : Math.trunc(Math.min(Math.max(a, -(2 ** 31)), 2 ** 31 - 1))),
};

const NON_FINITE = /** @type {Record<string, number>} */ ({ inf: Infinity, "-inf": -Infinity, nan: NaN });

/**
 * @param {Term} term
 * @returns {Compiled}
 */
export function compile(term) {
  return reading("The plan", () => compiled(term)); // terms that are nested too deeply end with a RangeError
}

/** @param {Term} term @returns {Compiled} */
function compiled(term) {
  if (!Array.isArray(term)) {
    const number = typeof term !== "string" ? term : Object.hasOwn(NON_FINITE, term) ? NON_FINITE[term] : undefined;
    if (typeof number !== "number") throw new WebpteError("damaged", `The plan contains ${term} in place of a number.`);
    return () => number;
  }
  const [name, ...rest] = term;
  if (name === "element") return (values) => values.element(rest[0], rest[1]);
  if (name === "least" || name === "greatest") return (values) => values.extreme(rest[0], name === "greatest");
  if (name === "scalar") return (values) => values.scalar(rest[0]);
  if (name === "sum") {
    const [constant, ...products] = rest;
    const parts = products.map(([factor, inner]) => /** @type {const} */ ([factor, compiled(inner)]));
    return (values) => parts.reduce((sum, [factor, inner]) => sum + factor * inner(values), constant);
  }
  const apply = Object.hasOwn(FUNCTIONS, name) && FUNCTIONS[name];
  if (!apply)
    throw new WebpteError("damaged", `The plan contains the unknown term ${name}. Use the player of the bundle.`);
  const args = rest.map(compiled);
  return (values) => apply(...args.map((argument) => argument(values)));
}
