// The filters and tests of templates. `webpte bundle` rejects templates that use others of Jinja.
import { toJson } from "./json.js";
import { arithmetic, fixed, percent } from "./operators.js";
import { capitalize, methodOf, replace, reversed, SPACE, splitLines, strip } from "./strings.js";
import {
  asIndex,
  asNumber,
  asString,
  bind,
  compare,
  contains,
  Dict,
  elements,
  equal,
  hash,
  iterate,
  lengthOf,
  Markup,
  Once,
  str,
  TemplateError,
  Tuple,
  truth,
  typeName,
  Undefined,
  View,
} from "./values.js";

/** @typedef {import("./values.js").Value} Value */
/** @typedef {import("./values.js").Named} Named */
/** @typedef {(value: Value, key: Value) => Value} Getter an item or attribute of a value */

/** Return a function that reads an attribute of an item, for filters such as map. @param {Getter} get @param {Value} attribute @param {Value} otherwise @returns {(item: Value) => Value} */
function reader(get, attribute, otherwise = null) {
  if (attribute === null) return (item) => item;
  const path =
    typeof attribute === "string"
      ? attribute.split(".").map((part) => (/^\d+$/.test(part) ? BigInt(part) : part))
      : [attribute];
  return (item) => {
    let current = item;
    for (const key of path) {
      current = get(current, key);
      if (current instanceof Undefined && otherwise !== null) current = otherwise;
    }
    return current;
  };
}

/** Return the key function of sort, unique, min and max. @param {Value} caseSensitive @returns {(value: Value) => Value} */
const folded = (caseSensitive) => (value) =>
  typeof value === "string" && !truth(caseSensitive) ? value.toLowerCase() : value;

/** @param {Value[]} values @param {(value: Value) => Value} key @param {Value} reverse */
function sorted(values, key, reverse) {
  const sign = truth(reverse) ? -1 : 1;
  return values
    .map((value) => [key(value), value])
    .sort(([a], [b]) => sign * compare(a, b))
    .map(([, value]) => value);
}

/** Return the items for which a test holds, or does not. @param {string} name @param {Value} value @param {Value[]} args @param {Named} named @param {Getter} get */
function selected(name, value, args, named, get) {
  const ofAttribute = name.endsWith("attr");
  if (ofAttribute && !args.length) throw new TemplateError(`${name}: the argument attribute is missing`);
  const read = ofAttribute ? reader(get, args[0]) : (/** @type {Value} */ item) => item;
  const [test, ...rest] = ofAttribute ? args.slice(1) : args;
  const holds = (/** @type {Value} */ item) =>
    test === undefined ? truth(item) : truth(runTest(test, item, rest, named));
  const expected = name.startsWith("select");
  return new Once(
    (function* () {
      if (truth(value)) for (const item of iterate(value)) if (holds(read(item)) === expected) yield item;
    })(),
  );
}

/** @param {Value} value @param {Value[]} args @param {Named} named @param {Getter} get */
function mapped(value, args, named, get) {
  let change;
  if (!args.length && named.has("attribute")) {
    const [attribute, otherwise] = bind("map", ["attribute", ["default", null]], [], named);
    change = reader(get, attribute, otherwise);
  } else {
    if (!args.length) throw new TemplateError("map: expected the name of a filter or an attribute");
    change = (/** @type {Value} */ item) => runFilter(args[0], item, args.slice(1), named, get);
  }
  return new Once(
    (function* () {
      if (truth(value)) for (const item of iterate(value)) yield change(item);
    })(),
  );
}

/** @param {Value} value @param {Value} otherwise @param {Value} base */
function toInteger(value, otherwise, base) {
  if (value instanceof Undefined) value.fail();
  const number = asNumber(value);
  if (typeof number === "bigint") return number;
  if (typeof number === "number") return Number.isFinite(number) ? BigInt(Math.trunc(number)) : otherwise;
  if (typeof value !== "string") return otherwise;
  if (asIndex(base, "base") !== 10) throw new TemplateError("int: a base other than 10 is not supported in a page");
  const text = strip(value, null, "both");
  if (/^[+-]?\d+(?:_\d+)*$/.test(text)) return BigInt(text.replace(/[+_]/g, ""));
  const read = toFloat(value, null);
  return read !== null && Number.isFinite(read) ? BigInt(Math.trunc(read)) : otherwise;
}

/** @param {Value} value @param {Value} otherwise */
function toFloat(value, otherwise) {
  if (value instanceof Undefined) value.fail();
  const number = asNumber(value);
  if (number !== undefined) return Number(number);
  if (typeof value !== "string") return otherwise;
  const text = strip(value, null, "both");
  if (/^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?$/i.test(text))
    return Number(text.replaceAll("_", ""));
  const [, sign, word] = /^([+-]?)(inf|infinity|nan)$/i.exec(text) ?? [];
  return word ? (sign === "-" ? -1 : 1) * (/nan/i.test(word) ? NaN : Infinity) : otherwise;
}

/** @param {Value} value @param {Value} precision @param {Value} method */
function round(value, precision, method) {
  const number = asNumber(value);
  if (number === undefined) throw new TemplateError(`round: expected a number, got ${typeName(value)}`);
  const decimals = asIndex(precision, "precision");
  if (method === "common") {
    if (typeof number === "number") return Number.isFinite(number) ? Number(fixed(number, decimals)) : number;
    if (decimals >= 0) return number;
    const unit = 10n ** BigInt(-decimals);
    const rest = ((number % unit) + unit) % unit;
    const down = number - rest;
    const up = rest * 2n > unit || (rest * 2n === unit && (down / unit) % 2n !== 0n);
    return up ? down + unit : down;
  }
  if (method !== "ceil" && method !== "floor") throw new TemplateError("round: expected common, ceil or floor");
  const scale = 10 ** decimals;
  return Math[/** @type {"ceil"} */ (method)](Number(number) * scale) / scale;
}

/** @param {Value} text @param {Value} width @param {Value} first @param {Value} blank */
function indented(text, width, first, blank) {
  const margin = typeof width === "string" ? width : " ".repeat(Math.max(0, asIndex(width, "width")));
  const lines = splitLines(`${asString(text, "indent")}\n`);
  const rest = lines.slice(1).map((line) => (line || truth(blank) ? margin + line : line));
  return (truth(first) ? margin : "") + [lines[0], ...rest].join("\n");
}

/** @param {Value} value @param {boolean} largest @param {Value} caseSensitive @param {Value} attribute @param {Getter} get */
function extreme(value, largest, caseSensitive, attribute, get) {
  const read = reader(get, attribute);
  const key = (/** @type {Value} */ item) => folded(caseSensitive)(read(item));
  const all = [...iterate(value)];
  if (!all.length) return new Undefined("No aggregated item, sequence was empty.");
  return all.reduce((best, item) =>
    (largest ? compare(key(item), key(best)) > 0 : compare(key(item), key(best)) < 0) ? item : best,
  );
}

/** @param {Value} value @param {Value} caseSensitive @param {Value} attribute @param {Getter} get */
function* unique(value, caseSensitive, attribute, get) {
  const seen = new Set();
  const read = reader(get, attribute);
  for (const item of iterate(value)) {
    const key = hash(folded(caseSensitive)(read(item)));
    if (!seen.has(key)) yield item;
    seen.add(key);
  }
}

/** @param {Value} value @param {Value} caseSensitive @param {Value} by @param {Value} reverse */
function dictSorted(value, caseSensitive, by, reverse) {
  if (!(value instanceof Dict)) throw new TemplateError(`dictsort: expected a dict, got ${typeName(value)}`);
  if (by !== "key" && by !== "value") throw new TemplateError("dictsort: expected key or value");
  const pairs = value.items().map((pair) => new Tuple(pair));
  return sorted(pairs, ({ items }) => folded(caseSensitive)(items[by === "key" ? 0 : 1]), reverse);
}

/** @param {Value} value */
function backwards(value) {
  if (typeof value === "string") return reversed(value);
  const items = elements(value) ?? (value instanceof Dict ? [...iterate(value)] : null);
  return items ? new Once([...items].reverse()) : [...iterate(value)].reverse();
}

const WORD_STARTS = new RegExp(`([-${SPACE}({\\[<]+)`, "u");
/** @param {string} text */
function title(text) {
  const large = (/** @type {string} */ word) => {
    const [first, ...rest] = word;
    return first === undefined ? "" : first.toUpperCase() + rest.join("").toLowerCase();
  };
  return text.split(WORD_STARTS).map(large).join("");
}

/** @param {Value} value @param {boolean} last @returns {Value} */
function end(value, last) {
  if (last && value instanceof Once) throw new TemplateError("last: expected a sequence");
  const all = last ? [...iterate(value)].slice(-1) : iterate(value);
  for (const item of all) return item;
  return new Undefined("No item, sequence was empty.");
}

/** With their parameters; the getter comes last. @type {Record<string, [import("./values.js").Parameters, (value: Value, ...rest: Value[]) => Value]>} */
const FILTERS = {
  abs: [
    [],
    (value) => {
      const number = asNumber(value);
      if (number === undefined) throw new TemplateError(`abs: expected a number, got ${typeName(value)}`);
      return number < 0 || Object.is(number, -0) ? -number : number;
    },
  ],
  capitalize: [[], (value) => capitalize(str(value))],
  default: [
    [
      ["default_value", ""],
      ["boolean", false],
    ],
    (value, otherwise, boolean) =>
      value instanceof Undefined || (truth(boolean) && !truth(value)) ? otherwise : value,
  ],
  dictsort: [
    [
      ["case_sensitive", false],
      ["by", "key"],
      ["reverse", false],
    ],
    dictSorted,
  ],
  escape: [[], (value) => Markup.of(value)],
  first: [[], (value) => end(value, false)],
  float: [[["default", 0]], toFloat],
  indent: [
    [
      ["width", 4n],
      ["first", false],
      ["blank", false],
    ],
    indented,
  ],
  int: [
    [
      ["default", 0n],
      ["base", 10n],
    ],
    toInteger,
  ],
  items: [
    [],
    (value) => {
      if (!(value instanceof Dict || value instanceof Undefined))
        throw new TemplateError(`items: expected a dict, got ${typeName(value)}`);
      return new Once(value instanceof Dict ? new View("items", value).items : []);
    },
  ],
  join: [
    [
      ["d", ""],
      ["attribute", null],
    ],
    (value, between, attribute, get) =>
      [...iterate(value)].map((item) => str(reader(get, attribute)(item))).join(str(between)),
  ],
  last: [[], (value) => end(value, true)],
  length: [[], (value) => BigInt(lengthOf(value))],
  list: [[], (value) => [...iterate(value)]],
  lower: [[], (value) => str(value).toLowerCase()],
  max: [
    [
      ["case_sensitive", false],
      ["attribute", null],
    ],
    (value, sensitive, attribute, get) => extreme(value, true, sensitive, attribute, get),
  ],
  min: [
    [
      ["case_sensitive", false],
      ["attribute", null],
    ],
    (value, sensitive, attribute, get) => extreme(value, false, sensitive, attribute, get),
  ],
  replace: [
    ["old", "new", ["count", null]],
    (value, old, now, count) => replace(str(value), str(old), str(now), count === null ? -1 : asIndex(count, "count")),
  ],
  reverse: [[], backwards],
  round: [
    [
      ["precision", 0n],
      ["method", "common"],
    ],
    round,
  ],
  safe: [[], (value) => (value instanceof Markup ? value : new Markup(str(value)))],
  sort: [
    [
      ["reverse", false],
      ["case_sensitive", false],
      ["attribute", null],
    ],
    (value, reverse, sensitive, attribute, get) => {
      const keys = typeof attribute === "string" ? attribute.split(",") : [attribute];
      const readers = keys.map((key) => reader(get, key));
      return sorted([...iterate(value)], (item) => readers.map((read) => folded(sensitive)(read(item))), reverse);
    },
  ],
  string: [[], (value) => (value instanceof Markup ? value : str(value))],
  sum: [
    [
      ["attribute", null],
      ["start", 0n],
    ],
    (value, attribute, start, get) => {
      if (asNumber(start) === undefined) throw new TemplateError(`sum: expected a number, got ${typeName(start)}`);
      return [...iterate(value)].reduce((sum, item) => arithmetic("+", sum, reader(get, attribute)(item)), start);
    },
  ],
  title: [[], (value) => title(str(value))],
  trim: [[["chars", null]], (value, characters) => strip(str(value), characters, "both")],
  unique: [
    [
      ["case_sensitive", false],
      ["attribute", null],
    ],
    (value, sensitive, attribute, get) => new Once(unique(value, sensitive, attribute, get)),
  ],
  upper: [[], (value) => str(value).toUpperCase()],
};
const OTHER_NAMES = /** @type {Record<string, string>} */ ({ count: "length", d: "default", e: "escape" });

const OF_MARKUP = ["default", "escape", "length", "safe", "string"];

/** @param {string} name @param {Value} value @param {Value[]} args @param {Named} named @param {Getter} get @returns {Value} */
export function runFilter(name, value, args, named, get) {
  switch (name) {
    case "tojson":
      return toJson(value, args, named);
    case "map":
      return mapped(value, args, named, get);
    case "select":
    case "reject":
    case "selectattr":
    case "rejectattr":
      return selected(name, value, args, named, get);
    case "format":
      return percent(str(value), named.size ? new Dict(named) : new Tuple(args));
  }
  const canonical = OTHER_NAMES[name] ?? name;
  if (!Object.hasOwn(FILTERS, canonical)) throw new TemplateError(`the filter ${name} is not supported in a page`);
  if (value instanceof Markup && !OF_MARKUP.includes(canonical))
    throw new TemplateError(`${name} after safe or escape is not supported in a page`);
  const [parameters, filter] = FILTERS[canonical];
  return filter(value, ...bind(name, parameters, args, named), get);
}

/** @param {Value} value */
function isIterable(value) {
  try {
    iterate(value);
    return true;
  } catch {
    return false;
  }
}

/** @param {Value} value @param {string} method */
const textTest = (value, method) =>
  /** @type {import("./values.js").Callable} */ (methodOf(str(value), method))([], new Map());
/** @param {Value} value @param {Value} divisor */
const divisible = (value, divisor) => equal(arithmetic("%", value, divisor), 0n);

/** @type {Record<string, (value: Value, ...args: Value[]) => boolean>} */
const TESTS = {
  boolean: (value) => typeof value === "boolean",
  callable: (value) => typeof value === "function",
  defined: (value) => !(value instanceof Undefined),
  divisibleby: divisible,
  eq: equal,
  even: (value) => divisible(value, 2n),
  false: (value) => value === false,
  float: (value) => typeof value === "number",
  ge: (a, b) => compare(a, b) >= 0,
  gt: (a, b) => compare(a, b) > 0,
  in: contains,
  integer: (value) => typeof value === "bigint",
  iterable: isIterable,
  le: (a, b) => compare(a, b) <= 0,
  lower: (value) => textTest(value, "islower"),
  lt: (a, b) => compare(a, b) < 0,
  mapping: (value) => value instanceof Dict,
  ne: (a, b) => !equal(a, b),
  none: (value) => value === null,
  number: (value) => asNumber(value) !== undefined,
  odd: (value) => equal(arithmetic("%", value, 2n), 1n),
  sameas: (a, b) => a === b,
  sequence: (value) =>
    isIterable(value) && !(value instanceof Once || value instanceof View || value instanceof Undefined),
  string: (value) => typeof value === "string" || value instanceof Markup,
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: (value) => textTest(value, "isupper"),
};
const OTHER_TESTS = /** @type {Record<string, string>} */ ({
  "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le", equalto: "eq", greaterthan: "gt", lessthan: "lt",
}); // biome-ignore format: a table

/** @param {string} name @param {Value} value @param {Value[]} args @param {Named} named */
export function runTest(name, value, args, named) {
  const canonical = OTHER_TESTS[name] ?? name;
  if (!Object.hasOwn(TESTS, canonical)) throw new TemplateError(`the test ${name} is not supported in a page`);
  if (args.length !== TESTS[canonical].length - 1 || named.size) throw new TemplateError(`${name}: wrong arguments`);
  return TESTS[canonical](value, ...args);
}

const BY_CASE = ["format", "map", "reject", "rejectattr", "select", "selectattr", "tojson"];
/** All that a template may use; `webpte bundle` rejects the others. */
export const FILTER_NAMES = [...Object.keys(FILTERS), ...Object.keys(OTHER_NAMES), ...BY_CASE];
export const TEST_NAMES = [...Object.keys(TESTS), ...Object.keys(OTHER_TESTS)];
