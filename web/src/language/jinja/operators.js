// Operators, indexing and the formats of numbers, as Python defines them.
import { checkLength } from "./strings.js";
import {
  Attributes,
  asNumber,
  Dict,
  elements,
  floatText,
  Markup,
  repr,
  str,
  TemplateError,
  Tuple,
  typeName,
  Undefined,
} from "./values.js";

/** @typedef {import("./values.js").Value} Value */

const MAX_INTEGER_BITS = 100_000;

/** @param {string} operator @param {Value} a @param {Value} b @returns {Value} */
export function arithmetic(operator, a, b) {
  for (const each of [a, b]) if (each instanceof Undefined && !(operator === "%" && typeof a === "string")) each.fail();
  if (operator === "%" && typeof a === "string") return percent(a, b);
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x !== undefined && y !== undefined) {
    return typeof x === "bigint" && typeof y === "bigint"
      ? ofIntegers(operator, x, y)
      : ofFloats(operator, Number(x), Number(y));
  }
  if (operator === "+") {
    if (typeof a === "string" && typeof b === "string") return joined([a, b]);
    const texts = [a, b].every((each) => typeof each === "string" || each instanceof Markup);
    if (texts) return new Markup(joined([Markup.of(a).text, Markup.of(b).text]));
    if (Array.isArray(a) && Array.isArray(b)) return [...a, ...b];
    if (a instanceof Tuple && b instanceof Tuple) return new Tuple([...a.items, ...b.items]);
  }
  if (operator === "*") {
    const [times, value] = typeof x === "bigint" ? [x, b] : [y, a];
    if (typeof times === "bigint") {
      const count = times > 0n ? Number(times) : 0;
      const items = typeof value === "string" ? null : elements(value);
      checkLength(count * (items?.length ?? String(value).length) * (items ? 64 : 1));
      if (typeof value === "string") return value.repeat(count);
      const many = () => Array.from({ length: count }, () => /** @type {Value[]} */ (items)).flat();
      if (Array.isArray(value)) return many();
      if (value instanceof Tuple) return new Tuple(many());
    }
  }
  throw new TemplateError(`${operator}: not for ${typeName(a)} and ${typeName(b)}`);
}

/** Concatenate texts. @param {string[]} texts */
export function joined(texts) {
  checkLength(texts.reduce((sum, text) => sum + text.length, 0));
  return texts.join("");
}

/** @param {string} operator @param {bigint} x @param {bigint} y @returns {Value} */
function ofIntegers(operator, x, y) {
  if (y === 0n && "//%".includes(operator)) throw new TemplateError("division by zero");
  const rest = () => ((x % y) + y) % y; // has the sign of the divisor
  switch (operator) {
    case "+":
      return x + y;
    case "-":
      return x - y;
    case "*":
      checkBits(bits(x) + bits(y));
      return x * y;
    case "/":
      return Number(x) / Number(y);
    case "//":
      return (x - rest()) / y;
    case "%":
      return rest();
    default:
      if (y < 0n) return ofFloats("**", Number(x), Number(y));
      checkBits(bits(x) * Number(y));
      return x ** y;
  }
}

/** @param {bigint} value */
const bits = (value) => value.toString(16).length * 4;

/** @param {number} count */
function checkBits(count) {
  if (count > MAX_INTEGER_BITS)
    throw new TemplateError(`integer: expected at most ${MAX_INTEGER_BITS} bits, got ${count}`);
}

/** @param {string} operator @param {number} x @param {number} y @returns {number} */
function ofFloats(operator, x, y) {
  if (y === 0 && "//%".includes(operator)) throw new TemplateError("division by zero");
  switch (operator) {
    case "+":
      return x + y;
    case "-":
      return x - y;
    case "*":
      return x * y;
    case "/":
      return x / y;
    case "//": {
      const rest = x % y;
      const quotient = (x - rest) / y - (rest !== 0 && rest < 0 !== y < 0 ? 1 : 0);
      const floor = Math.floor(quotient);
      return quotient - floor > 0.5 ? floor + 1 : floor || (x / y < 0 ? -0 : 0);
    }
    case "%": {
      const rest = x % y;
      return rest === 0 ? (y < 0 ? -0 : 0) : rest < 0 !== y < 0 ? rest + y : rest;
    }
    default:
      if ((x === 0 && y < 0) || (x < 0 && !Number.isInteger(y)))
        throw new TemplateError(`${x} ** ${y} is not a real number`);
      return x ** y;
  }
}

/** @param {"+" | "-"} sign @param {Value} value */
export function signed(sign, value) {
  const number = asNumber(value);
  if (number === undefined) throw new TemplateError(`${sign}: not for ${typeName(value)}`);
  return sign === "-" ? -number : number;
}

/** Return the indices of a slice of `length` elements. @param {number} length @param {(bigint | null)[]} slice @returns {number[]} */
function indices(length, [start, stop, step]) {
  const by = step === null ? 1 : Number(step);
  if (by === 0) throw new TemplateError("slice: expected a step other than 0");
  const [low, high] = by > 0 ? [0, length] : [-1, length - 1];
  const clip = (/** @type {bigint | null} */ at, /** @type {number} */ none) =>
    at === null ? none : Math.min(Math.max(Number(at) < 0 ? Number(at) + length : Number(at), low), high);
  const [from, to] = [clip(start, by > 0 ? low : high), clip(stop, by > 0 ? high : low)];
  const list = [];
  for (let at = from; by > 0 ? at < to : at > to; at += by) list.push(at);
  return list;
}

/** Return a slice of a list, a tuple or a string; undefined for other types. @param {Value} value @param {Value[]} slice @returns {Value} */
export function sliced(value, slice) {
  if (value instanceof Undefined) value.fail();
  const bounds = slice.map((each) => (each === null ? null : asNumber(each)));
  if (bounds.some((each) => each !== null && typeof each !== "bigint")) return undefined;
  const parts = (/** @type {Value[]} */ all) => indices(all.length, /** @type {any} */ (bounds)).map((at) => all[at]);
  if (typeof value === "string") return parts([...value]).join("");
  if (Array.isArray(value)) return parts(value);
  return value instanceof Tuple ? new Tuple(parts(value.items)) : undefined;
}

/** Return an element by its key; undefined if there is none. @param {Value} value @param {Value} key @returns {Value} */
export function item(value, key) {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Dict)
    return key instanceof Dict || Array.isArray(key) || key instanceof Attributes || key instanceof Undefined
      ? undefined
      : value.get(key);
  const at = asNumber(key);
  const all = typeof value === "string" ? [...value] : Array.isArray(value) ? value : (value?.items ?? null);
  if (typeof at !== "bigint" || !Array.isArray(all)) return undefined;
  return all[Number(at < 0n ? at + BigInt(all.length) : at)];
}

/** Return a number with a number of decimals, rounding half to even. Exact: every float is a fraction of a power of two. @param {number} value @param {number} decimals */
export function fixed(value, decimals) {
  if (!Number.isFinite(value)) return floatText(value);
  let [top, bottom] = [Math.abs(value), 0];
  while (!Number.isInteger(top)) [top, bottom] = [top * 2, bottom + 1];
  const scaled = BigInt(top) * 10n ** BigInt(Math.max(decimals, 0));
  const divisor = (1n << BigInt(bottom)) * 10n ** BigInt(Math.max(-decimals, 0));
  let integer = scaled / divisor;
  const twice = (scaled % divisor) * 2n;
  if (twice > divisor || (twice === divisor && integer % 2n === 1n)) integer++;
  const digits =
    decimals > 0
      ? String(integer).padStart(decimals + 1, "0")
      : String(integer * 10n ** BigInt(Math.max(-decimals, 0)));
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  return sign + (decimals > 0 ? `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}` : digits);
}

/** Format with %. @param {string} text @param {Value} values a tuple, a dict or one value */
export function percent(text, values) {
  const list = values instanceof Tuple ? [...values.items] : [values];
  let used = 0;
  const result = text.replace(
    /%(?:\((.*?)\))?([-+ 0#]*)(\d*)(?:\.(\d+))?(.?)/gsu,
    (all, key, flags, width, precision, kind) => {
      if (kind === "%") return "%";
      if (!"srdixXf".includes(kind) || kind === "" || flags.includes("#") || width.length > 4) {
        throw new TemplateError(`the format ${all} is not supported in a page`);
      }
      const value = key === undefined ? list[used++] : values instanceof Dict ? values.get(key) : undefined;
      if (value === undefined) throw new TemplateError(`no argument for the format ${all}`);
      const formatted =
        kind === "s" || kind === "r"
          ? cut(kind === "s" ? str(value) : repr(value), precision)
          : digits(value, kind, precision);
      const sign =
        kind === "s" || kind === "r"
          ? ""
          : formatted.startsWith("-")
            ? "-"
            : flags.includes("+")
              ? "+"
              : flags.includes(" ")
                ? " "
                : "";
      const body = formatted.startsWith("-") && sign === "-" ? formatted.slice(1) : formatted;
      const missing = Math.max(0, Number(width || 0) - [...(sign + body)].length);
      if (flags.includes("-")) return sign + body + " ".repeat(missing);
      if (flags.includes("0") && kind !== "s" && kind !== "r") return sign + "0".repeat(missing) + body;
      return " ".repeat(missing) + sign + body;
    },
  );
  const plain = values instanceof Dict || elements(values) !== null;
  if (used < list.length && (values instanceof Tuple || !plain))
    throw new TemplateError("%: more arguments than formats");
  return result;
}

/** @param {string} text @param {string | undefined} precision */
const cut = (text, precision) => (precision === undefined ? text : [...text].slice(0, Number(precision)).join(""));

/** @param {Value} value @param {string} kind @param {string | undefined} precision */
function digits(value, kind, precision) {
  const number = asNumber(value);
  if (number === undefined) throw new TemplateError(`%${kind}: expected a number, got ${typeName(value)}`);
  if (kind === "f") return fixed(Number(number), precision === undefined ? 6 : Number(precision));
  const hexadecimal = kind === "x" || kind === "X";
  if (typeof number === "number" && (hexadecimal || !Number.isFinite(number)))
    throw new TemplateError(`%${kind}: expected an integer`);
  const integer = typeof number === "bigint" ? number : BigInt(Math.trunc(number));
  const text = (integer < 0n ? -integer : integer)
    .toString(hexadecimal ? 16 : 10)
    .padStart(Number(precision ?? 0), "0");
  return (integer < 0n ? "-" : "") + (kind === "X" ? text.toUpperCase() : text);
}
