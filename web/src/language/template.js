// Chat templates: what the vendored engine makes of messages.
import { Environment, Interpreter, parse, tokenize } from "../../vendor/jinja.js";
import { WebpteError } from "../errors.js";

/** @typedef {{role: string, content: unknown, [key: string]: unknown}} Message */

/** What templates find beside the messages. @type {Record<string, unknown>} */
const GLOBALS = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
  tools: null,
  documents: null,
  add_generation_prompt: true,
  range: (/** @type {number} */ first, /** @type {number} */ end, step = 1) => {
    const [from, to] = end === undefined ? [0, first] : [first, end];
    return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, at) => from + at * step);
  },
  raise_exception: (/** @type {string} */ message) => {
    throw new Error(message);
  },
  strftime_now: (/** @type {string} */ format) => {
    const now = new Date();
    const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
    /** @type {Record<string, string | number>} */
    const parts = {
      Y: now.getFullYear(),
      m: two(now.getMonth() + 1),
      d: two(now.getDate()),
      H: two(now.getHours()),
      M: two(now.getMinutes()),
      S: two(now.getSeconds()),
      "%": "%",
      b: now.toLocaleDateString("en", { month: "short" }),
      B: now.toLocaleDateString("en", { month: "long" }),
      a: now.toLocaleDateString("en", { weekday: "short" }),
      A: now.toLocaleDateString("en", { weekday: "long" }),
    };
    return format.replace(/%(.)/g, (all, part) => String(parts[part] ?? all));
  },
};

/** The prompt that a template makes of messages.
 * @param {string} template @param {Message[]} messages @param {Record<string, string>} texts special tokens by name */
export function renderChat(template, messages, texts = {}) {
  if (!Array.isArray(messages)) throw new WebpteError("input", "messages are a list of objects with role and content");
  messages.forEach((message, at) => {
    if (typeof message !== "object" || !message || !("role" in message) || !("content" in message)) {
      throw new WebpteError("input", `message ${at} needs the keys role and content`);
    }
  });
  // {% generation %} marks what a model said, for training; the engine does not know it.
  const known = template.replace(
    /\{%([-+]?\s*)(end)?generation(\s*[-+]?)%\}/g,
    (_, before, end, behind) => `{%${before}${end ? "endif" : "if true"}${behind}%}`,
  );
  try {
    const environment = new Environment();
    const given = { ...GLOBALS, ...texts, messages };
    for (const [name, value] of Object.entries(given)) environment.set(name, value);
    return new Interpreter(environment).run(parse(tokenize(known, { lstrip_blocks: true, trim_blocks: true }))).value;
  } catch (error) {
    throw new WebpteError("input", `the chat template refuses these messages: ${/** @type {Error} */ (error).message}`);
  }
}
