// The filter tojson: Python's json.dumps, with the defaults of chat templates.
import {
  asIndex,
  bind,
  compare,
  Dict,
  elements,
  floatText,
  Markup,
  str,
  TemplateError,
  Tuple,
  truth,
  typeName,
} from "./values.js";

/** @typedef {import("./values.js").Value} Value */
const PARAMETERS = /** @type {import("./values.js").Parameters} */ ([
  ["ensure_ascii", false],
  ["indent", null],
  ["separators", null],
  ["sort_keys", false],
]);

/** @param {Value} value @param {Value[]} args @param {Map<string, Value>} named @returns {string} */
export function toJson(value, args, named) {
  const [ascii, indent, separators, sorted] = bind("tojson", PARAMETERS, args, named);
  const step =
    indent === null ? null : typeof indent === "string" ? indent : " ".repeat(Math.max(0, asIndex(indent, "indent")));
  const [between, colon] =
    separators === null ? [step === null ? ", " : ",", ": "] : /** @type {Value[]} */ (elements(separators));
  const text = (/** @type {string} */ each) => {
    const quoted = JSON.stringify(each);
    if (!truth(ascii)) return quoted;
    return quoted.replace(/[^\0-\x7e]|\x7f/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  };
  const scalar = (/** @type {Value} */ each) => {
    if (each === null) return "null";
    if (typeof each === "number") return floatText(each).replace("nan", "NaN").replace("inf", "Infinity");
    return typeof each === "boolean" || typeof each === "bigint" ? String(each) : undefined;
  };
  /** @param {string} open @param {string[]} parts @param {string} close @param {string} margin */
  const wrapped = (open, parts, close, margin) => {
    if (!parts.length) return open + close;
    if (step === null) return open + parts.join(between) + close;
    return `${open}\n${margin}${step}${parts.join(`${between}\n${margin}${step}`)}\n${margin}${close}`;
  };
  /** @param {Value} each @param {string} margin @returns {string} */
  const write = (each, margin) => {
    const plain = typeof each === "string" || each instanceof Markup ? text(str(each)) : scalar(each);
    if (plain !== undefined) return plain;
    const deeper = margin + (step ?? "");
    if (each instanceof Dict) {
      const pairs = each.items();
      if (truth(sorted)) pairs.sort(([a], [b]) => compare(a, b));
      const key = (/** @type {Value} */ name) => (typeof name === "string" ? name : scalar(name));
      return wrapped(
        "{",
        pairs.map(([name, part]) => `${text(required(key(name), name))}${colon}${write(part, deeper)}`),
        "}",
        margin,
      );
    }
    const items = Array.isArray(each) || each instanceof Tuple ? elements(each) : null;
    return wrapped(
      "[",
      required(items, each).map((part) => write(part, deeper)),
      "]",
      margin,
    );
  };
  return write(value, "");
}

/** @template T @param {T | null | undefined} converted @param {Value} value @returns {T} */
function required(converted, value) {
  if (converted === null || converted === undefined) throw new TemplateError(`tojson: ${typeName(value)} is not JSON`);
  return converted;
}
