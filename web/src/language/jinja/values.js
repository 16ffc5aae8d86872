// Values of templates, with Python's behavior: an integer is a bigint, a float a number, none is null, a list an array.
// Other types are the classes below. A callable is a function of positional and named arguments.

/** @typedef {any} Value */
/** @typedef {Map<string, Value>} Named */
/** @typedef {(args: Value[], named: Named) => Value} Callable */

export class TemplateError extends Error {}

/** A variable, attribute or item that does not exist. It prints as nothing; most operations on it fail. */
export class Undefined {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }
  /** @returns {never} */
  fail() {
    throw new TemplateError(`${this.name} is undefined`);
  }
}

/** A string of HTML, the result of `safe` and `escape`. Text that is added to it is escaped. */
export class Markup {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
  /** The HTML of a value. @param {Value} value */
  static of(value) {
    if (value instanceof Markup) return value;
    return new Markup(str(value).replace(/[&<>'"]/g, (character) => `&${ENTITIES[character]};`));
  }
}
const ENTITIES = /** @type {Record<string, string>} */ ({ "&": "amp", "<": "lt", ">": "gt", "'": "#39", '"': "#34" });

export class Tuple {
  /** @param {Value[]} items */
  constructor(items) {
    this.items = items;
  }
}

export class Range {
  /** @param {bigint} start @param {bigint} stop @param {bigint} step */
  constructor(start, stop, step) {
    if (step === 0n) throw new TemplateError("range: expected a step other than 0");
    const span = step > 0n ? stop - start + step - 1n : start - stop - step - 1n;
    const length = span > 0n ? span / (step > 0n ? step : -step) : 0n;
    if (length > 100_000n) throw new TemplateError(`range: expected at most 100,000 elements, got ${length}`);
    this.text = step === 1n ? `range(${start}, ${stop})` : `range(${start}, ${stop}, ${step})`;
    this.items = Array.from({ length: Number(length) }, (_, at) => start + BigInt(at) * step);
  }
}

export class Dict {
  /** @type {Map<string, [Value, Value]>} */
  #entries = new Map();

  /** @param {Iterable<[Value, Value]>} pairs */
  constructor(pairs = []) {
    for (const [key, value] of pairs) this.set(key, value);
  }
  get size() {
    return this.#entries.size;
  }
  /** @param {Value} key @param {Value} value */
  set(key, value) {
    const hashed = hash(key);
    this.#entries.set(hashed, [this.#entries.get(hashed)?.[0] ?? key, value]);
  }
  /** @param {Value} key @returns {Value | undefined} */
  get(key) {
    return this.#entries.get(hash(key))?.[1];
  }
  /** @param {Value} key */
  has(key) {
    return this.#entries.has(hash(key));
  }
  items() {
    return [...this.#entries.values()];
  }
}

/** The result of keys(), values() and items() of a dict. */
export class View {
  /** @param {"keys" | "values" | "items"} kind @param {Dict} dict */
  constructor(kind, dict) {
    this.kind = kind;
    this.dict = dict;
  }
  get items() {
    const pairs = this.dict.items();
    if (this.kind === "items") return pairs.map((pair) => new Tuple(pair));
    return pairs.map(([key, value]) => (this.kind === "keys" ? key : value));
  }
}

/** A generator: it can be read once, is always true, and has no length. */
export class Once {
  /** @param {Iterable<Value>} values */
  constructor(values) {
    this.iterator = values[Symbol.iterator]();
  }
  [Symbol.iterator]() {
    // Not the iterator itself: leaving a loop early would close it.
    return { next: () => this.iterator.next() };
  }
}

/** An object with attributes: a namespace, a loop, a cycler. */
export class Attributes {
  /** @param {Named} attributes @param {boolean} printable whether it can be printed */
  constructor(attributes, printable = false) {
    this.attributes = attributes;
    this.printable = printable;
  }
}

/** A value of JavaScript, as JSON would carry it. @param {unknown} value @returns {Value} */
export function fromJs(value) {
  if (typeof value === "number") return Number.isSafeInteger(value) ? BigInt(value) : value;
  if (value === undefined || value === null) return null;
  if (Array.isArray(value)) return value.map(fromJs);
  if (typeof value === "object") {
    return new Dict(
      Object.entries(value)
        .filter(([, part]) => part !== undefined)
        .map(([key, part]) => [key, fromJs(part)]),
    );
  }
  if (typeof value === "function" || typeof value === "symbol") throw new TemplateError("a function is not JSON");
  return value;
}

/** Return the hash key of a value; equal keys have the same. @param {Value} key @returns {string} */
export function hash(key) {
  if (typeof key === "string") return `s${key}`;
  const number = asNumber(key);
  if (number !== undefined) return `n${number}`;
  if (key === null) return "null";
  if (key instanceof Tuple) return `t${key.items.map((item) => `${hash(item).length}:${hash(item)}`).join()}`;
  throw new TemplateError(`${typeName(key)} cannot be the key of a dict`);
}

/** Return a value as a number; a boolean is 0 or 1. @param {Value} value @returns {bigint | number | undefined} */
export function asNumber(value) {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return typeof value === "bigint" || typeof value === "number" ? value : undefined;
}

/** @param {Value} value @param {string} what @returns {number} */
export function asIndex(value, what) {
  const number = asNumber(value);
  if (typeof number !== "bigint") throw new TemplateError(`${what}: expected an integer, got ${typeName(value)}`);
  return Number(number);
}

/** @param {Value} value @param {string} what @returns {string} */
export function asString(value, what) {
  if (typeof value !== "string") throw new TemplateError(`${what}: expected a string, got ${typeName(value)}`);
  return value;
}

/** The name of a value's type, in Python. @param {Value} value */
export function typeName(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return "list";
  const names = { bigint: "int", number: "float", boolean: "bool", string: "str", function: "function" };
  return names[/** @type {"string"} */ (typeof value)] ?? value.constructor.name.toLowerCase();
}

/** The elements of a list, a tuple, a range or a view; null for anything else. @param {Value} value @returns {Value[] | null} */
export function elements(value) {
  if (Array.isArray(value)) return value;
  return value instanceof Tuple || value instanceof Range || value instanceof View ? value.items : null;
}

/** @param {Value} value @returns {Iterable<Value>} */
export function iterate(value) {
  const items = elements(value);
  if (items) return items;
  if (typeof value === "string" || value instanceof Once) return value;
  if (value instanceof Dict) return value.items().map(([key]) => key);
  if (value instanceof Undefined) return [];
  throw new TemplateError(`${typeName(value)} is not iterable`);
}

/** @param {Value} value @returns {number} */
export function lengthOf(value) {
  if (typeof value === "string" || value instanceof Markup) return codePoints(str(value));
  if (value instanceof Once || value instanceof Attributes) throw new TemplateError(`${typeName(value)} has no length`);
  return [...iterate(value)].length;
}

/** @param {string} text */
function codePoints(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** @param {Value} value @returns {boolean} */
export function truth(value) {
  if (value === null || value instanceof Undefined) return false;
  if (typeof value === "string" || value instanceof Markup) return str(value) !== "";
  const number = asNumber(value);
  if (number !== undefined) return number !== 0n && number !== 0;
  if (value instanceof Dict) return value.size > 0;
  const items = elements(value);
  return items ? items.length > 0 : true;
}

/** @param {Value} a @param {Value} b @returns {boolean} */
export function equal(a, b) {
  const [x, y] = [asNumber(a), asNumber(b)];
  // biome-ignore lint/suspicious/noDoubleEquals: 1n and 1 are equal
  if (x !== undefined && y !== undefined) return x == y;
  if (Array.isArray(a) && Array.isArray(b)) return sameItems(a, b);
  if (a instanceof Tuple && b instanceof Tuple) return sameItems(a.items, b.items);
  if (a instanceof Range && b instanceof Range) return sameItems(a.items, b.items);
  if (a instanceof Undefined && b instanceof Undefined) return true;
  if (a instanceof Dict && b instanceof Dict) {
    return a.size === b.size && a.items().every(([key, value]) => b.has(key) && equal(value, b.get(key)));
  }
  return plain(a) === plain(b);
}

/** @param {Value} value */
const plain = (value) => (value instanceof Markup ? value.text : value);

/** @param {Value[]} a @param {Value[]} b */
function sameItems(a, b) {
  return a.length === b.length && a.every((item, at) => equal(item, b[at]));
}

/** Below 0, 0 or above it, as a is less, equal or more; NaN where neither holds. @param {Value} a @param {Value} b @returns {number} */
export function compare(a, b) {
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x !== undefined && y !== undefined) {
    if (Number.isNaN(x) || Number.isNaN(y)) return NaN;
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (typeof a === "string" && typeof b === "string") return compareTexts(a, b);
  const [left, right] =
    Array.isArray(a) && Array.isArray(b) ? [a, b] : a instanceof Tuple && b instanceof Tuple ? [a.items, b.items] : [];
  if (!left || !right) throw new TemplateError(`cannot compare ${typeName(a)} with ${typeName(b)}`);
  for (let at = 0; at < Math.min(left.length, right.length); at++) {
    if (!equal(left[at], right[at])) return compare(left[at], right[at]);
  }
  return left.length - right.length;
}

/** By code points, as Python does; code units sort astral characters before U+E000. @param {string} a @param {string} b */
function compareTexts(a, b) {
  const [left, right] = [a[Symbol.iterator](), b[Symbol.iterator]()];
  for (;;) {
    const [x, y] = [left.next().value, right.next().value];
    if (x === undefined || y === undefined) return (x === undefined ? 0 : 1) - (y === undefined ? 0 : 1);
    if (x !== y) return /** @type {number} */ (x.codePointAt(0)) - /** @type {number} */ (y.codePointAt(0));
  }
}

/** @param {Value} item @param {Value} container @returns {boolean} */
export function contains(item, container) {
  const text = plain(container);
  if (typeof text === "string") return text.includes(asString(plain(item), "in"));
  if (container instanceof Dict) return container.has(item);
  for (const each of iterate(container)) if (each === item || equal(each, item)) return true;
  return false;
}

/** A value as a template prints it: Python's str(). @param {Value} value @returns {string} */
export function str(value) {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  return value instanceof Undefined ? "" : repr(value);
}

/** As Python's repr() writes a value. @param {Value} value @returns {string} */
export function repr(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number") return floatText(value);
  if (typeof value === "string") return textRepr(value);
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`;
  if (value instanceof Tuple) return `(${value.items.map(repr).join(", ")}${value.items.length === 1 ? "," : ""})`;
  if (value instanceof Dict) return pairsRepr(value.items());
  if (value instanceof View) return `dict_${value.kind}(${repr(value.items)})`;
  if (value instanceof Range) return value.text;
  if (value instanceof Markup) return `Markup(${textRepr(value.text)})`;
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Attributes && value.printable) return `<Namespace ${pairsRepr([...value.attributes])}>`;
  throw new TemplateError(`${typeName(value)} cannot be printed`);
}

/** @param {[Value, Value][]} pairs */
function pairsRepr(pairs) {
  return `{${pairs.map(([key, value]) => `${repr(key)}: ${repr(value)}`).join(", ")}}`;
}

/** @param {number} value */
export function floatText(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [digits, power] = value.toExponential().split("e"); // the shortest digits that are read back as the same number
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const plain =
    exponent < 0 ? value.toFixed(Math.max(0, digits.replace(/[-.]/g, "").length - 1 - exponent)) : String(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}

const ESCAPES = /** @type {Record<string, string>} */ ({ "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" });

/** @param {string} text */
function textRepr(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\']|[\p{C}\p{Z}]/gu, (character) => {
    if (character === " ") return character;
    if (character === "'") return quote === "'" ? "\\'" : "'";
    const code = /** @type {number} */ (character.codePointAt(0));
    const hex = code.toString(16);
    if (ESCAPES[character]) return ESCAPES[character];
    return code < 0x100
      ? `\\x${hex.padStart(2, "0")}`
      : code < 0x10000
        ? `\\u${hex.padStart(4, "0")}`
        : `\\U${hex.padStart(8, "0")}`;
  });
  return quote + escaped + quote;
}

/** Names of parameters, those with a default as pairs. @typedef {(string | [string, Value])[]} Parameters */

/** Arguments in the order of parameters. @param {string} what @param {Parameters} parameters @param {Value[]} args @param {Named} named @returns {Value[]} */
export function bind(what, parameters, args, named) {
  if (args.length > parameters.length) {
    throw new TemplateError(`${what}: expected at most ${parameters.length} arguments, got ${args.length}`);
  }
  const names = parameters.map((each) => (typeof each === "string" ? each : each[0]));
  for (const name of named.keys()) {
    const at = names.indexOf(name);
    if (at < 0) throw new TemplateError(`${what}: unexpected argument ${name}`);
    if (at < args.length) throw new TemplateError(`${what}: two values for the argument ${name}`);
  }
  return parameters.map((each, at) => {
    if (at < args.length) return args[at];
    if (named.has(names[at])) return named.get(names[at]);
    if (typeof each === "string") throw new TemplateError(`${what}: the argument ${each} is missing`);
    return each[1];
  });
}
