// The global names of templates: range, namespace, dates and others.
import {
  Attributes,
  asIndex,
  asString,
  bind,
  Dict,
  elements,
  equal,
  iterate,
  Range,
  str,
  TemplateError,
  Undefined,
} from "./values.js";

/** @typedef {import("./values.js").Value} Value */
/** @typedef {import("./values.js").Callable} Callable */

/** The error of raise_exception: the template rejects the messages. */
export class Refusal extends TemplateError {}

const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");
const MONTHS = "January February March April May June July August September October November December".split(" ");

/** Return a date as Python's strftime writes it, in the C locale. @param {Date} date @param {string} format @returns {string} */
export function strftime(date, format) {
  const pad = (/** @type {number} */ number, digits = 2, fill = "0") => String(number).padStart(digits, fill);
  const [year, month, day, weekday] = [date.getFullYear(), date.getMonth(), date.getDate(), date.getDay()];
  const [hour, minute, second] = [date.getHours(), date.getMinutes(), date.getSeconds()];
  const dayOfYear = Math.round((Date.UTC(year, month, day) - Date.UTC(year, 0, 1)) / 864e5);
  const nested = (/** @type {string} */ inner) => strftime(date, inner);
  /** @type {Record<string, () => string>} */
  const parts = {
    "%": () => "%",
    A: () => DAYS[weekday],
    B: () => MONTHS[month],
    C: () => pad(Math.floor(year / 100)),
    D: () => nested("%m/%d/%y"),
    F: () => nested("%Y-%m-%d"),
    H: () => pad(hour),
    I: () => pad(hour % 12 || 12),
    M: () => pad(minute),
    R: () => nested("%H:%M"),
    S: () => pad(second),
    T: () => nested("%H:%M:%S"),
    U: () => pad(Math.floor((dayOfYear + 7 - weekday) / 7)),
    W: () => pad(Math.floor((dayOfYear + 7 - ((weekday + 6) % 7)) / 7)),
    X: () => nested("%H:%M:%S"),
    Y: () => String(year),
    a: () => DAYS[weekday].slice(0, 3),
    b: () => MONTHS[month].slice(0, 3),
    c: () => nested("%a %b %e %H:%M:%S %Y"),
    d: () => pad(day),
    e: () => pad(day, 2, " "),
    h: () => MONTHS[month].slice(0, 3),
    j: () => pad(dayOfYear + 1, 3),
    m: () => pad(month + 1),
    n: () => "\n",
    p: () => (hour < 12 ? "AM" : "PM"),
    t: () => "\t",
    u: () => String(weekday || 7),
    w: () => String(weekday),
    x: () => nested("%m/%d/%y"),
    y: () => pad(year % 100),
    z: () => "",
    Z: () => "",
  };
  return format.replace(/%(-?)(.?)/gsu, (all, bare, part) => {
    if (!Object.hasOwn(parts, part))
      throw new TemplateError(`strftime_now: the format ${all} is not supported in a page`);
    const text = parts[part]();
    return bare ? text.replace(/^[0 ]+(?=.)/, "") : text;
  });
}

/** @type {Callable} */
const range = (args) => {
  const numbers = args.map((each) => BigInt(asIndex(each, "range")));
  if (!numbers.length || numbers.length > 3) throw new TemplateError("range: expected one to three integers");
  return numbers.length === 1 ? new Range(0n, numbers[0], 1n) : new Range(numbers[0], numbers[1], numbers[2] ?? 1n);
};

/** Return the pairs of dict() and namespace(). @param {Value[]} args @param {Map<string, Value>} named @returns {[Value, Value][]} */
function pairs(args, named) {
  if (args.length > 1) throw new TemplateError("expected one argument, and named ones");
  const pairs =
    args[0] instanceof Dict ? args[0].items() : [...iterate(args[0] ?? [])].map((each) => elements(each) ?? []);
  if (pairs.some((each) => each.length !== 2)) throw new TemplateError("expected pairs");
  return /** @type {[Value, Value][]} */ ([...pairs, ...named]);
}

/** @type {Callable} */
const cycler = (args) => {
  if (!args.length) throw new TemplateError("cycler: expected at least one item");
  let at = 0;
  const attributes = new Map([["current", args[0]]]);
  const go = (/** @type {number} */ to) => {
    at = to % args.length;
    attributes.set("current", args[at]);
  };
  attributes.set("next", () => {
    const current = args[at];
    go(at + 1);
    return current;
  });
  attributes.set("reset", () => {
    go(0);
    return null;
  });
  return new Attributes(attributes);
};

/** @type {Callable} */
const joiner = (args, named) => {
  const [separator] = bind("joiner", [["sep", ", "]], args, named);
  let used = false;
  return () => {
    const text = used ? separator : "";
    used = true;
    return text;
  };
};

/** @type {Record<string, Value>} */
export const GLOBALS = {
  range,
  cycler,
  joiner,
  dict: /** @type {Callable} */ ((args, named) => new Dict(pairs(args, named))),
  namespace: /** @type {Callable} */ ((args, named) => new Attributes(new Map(pairs(args, named)), true)),
  raise_exception: /** @type {Callable} */ (
    (args, named) => {
      throw new Refusal(str(bind("raise_exception", ["message"], args, named)[0]));
    }
  ),
  strftime_now: /** @type {Callable} */ (
    (args, named) => strftime(new Date(), asString(bind("strftime_now", ["form"], args, named)[0], "strftime_now"))
  ),
};

/** Return the variable `loop`. @param {Value[]} items @param {number} at @param {{seen: Value}} changes */
export function loopOf(items, at, changes) {
  const [index, length] = [BigInt(at), BigInt(items.length)];
  return new Attributes(
    new Map(
      /** @type {[string, Value][]} */ ([
        ["index", index + 1n],
        ["index0", index],
        ["revindex", length - index],
        ["revindex0", length - index - 1n],
        ["first", at === 0],
        ["last", at === items.length - 1],
        ["length", length],
        ["depth", 1n], // recursive loops are not supported
        ["depth0", 0n],
        ["previtem", at ? items[at - 1] : new Undefined("there is no previous item")],
        ["nextitem", at < items.length - 1 ? items[at + 1] : new Undefined("there is no next item")],
        ["cycle", (/** @type {Value[]} */ args) => args[at % args.length]],
        ["changed", (/** @type {Value[]} */ args) => changed(args, changes)],
      ]),
    ),
  );
}

/** Return whether the values differ from the last call's. @param {Value[]} args @param {{seen: Value}} changes */
function changed(args, changes) {
  const differs = !equal(changes.seen, args);
  changes.seen = args;
  return differs;
}
