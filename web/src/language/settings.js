// What a caller may ask of an answer, checked before anything is touched. Names are OpenAI's; ranges and defaults are
// those of the native player, which has the same sampler.
import { WebpteError } from "../errors.js";

const LARGEST = 2 ** 31 - 1; // integers travel to the device in 32 bits
export const MOST_TOPS = 20;
const MOST_BIASES = 1024;
/**
 * Numbers: lowest, highest, default, and whether they are whole.
 * @type {Record<string, [number, number, number, boolean?]>}
 */
const NUMBERS = {
  max_tokens: [1, LARGEST, 256, true],
  temperature: [0, 1e6, 0],
  top_k: [0, LARGEST, 0, true],
  top_p: [0, 1, 1],
  min_p: [0, 1, 0],
  repetition_penalty: [0.01, 100, 1],
  presence_penalty: [-100, 100, 0],
  frequency_penalty: [-100, 100, 0],
  seed: [0, LARGEST, 0, true],
  top_logprobs: [0, MOST_TOPS, 0, true],
  n: [1, 1, 1, true],
};
const OTHERS = [
  ..."messages prompt parse_special stop logit_bias logprobs response_format max_completion_tokens".split(" "),
  ..."stream stream_options return_token_ids model user".split(" "),
];

/**
 * @typedef {object} Settings
 * @property {number} max_tokens
 * @property {number} temperature 0 takes the likeliest
 * @property {number} top_k
 * @property {number} top_p
 * @property {number} min_p
 * @property {number} repetition_penalty
 * @property {number} presence_penalty
 * @property {number} frequency_penalty
 * @property {number} seed
 * @property {number} top_logprobs
 * @property {Map<number, number>} logit_bias
 * @property {string[]} stop
 * @property {boolean} logprobs
 * @property {object | boolean | null} schema
 */

/** @param {string} message */
const refuse = (message) => new WebpteError("input", message);

/** @param {any} request @param {number} vocabulary @returns {Settings} */
export function settingsFrom(request, vocabulary) {
  for (const name of Object.keys(request)) {
    if (!(name in NUMBERS) && !OTHERS.includes(name)) {
      throw refuse(`there is no setting ${name}; there are ${[...Object.keys(NUMBERS), ...OTHERS].join(", ")}`);
    }
  }
  const given = { ...request, max_tokens: request.max_tokens ?? request.max_completion_tokens };
  /** @type {any} */
  const found = {};
  for (const [name, [low, high, usual, whole]] of Object.entries(NUMBERS)) {
    found[name] = number(name, given[name] ?? usual, low, high, whole);
  }
  if (found.top_p === 0) throw refuse("top_p is above 0 and at most 1, not 0");
  if (found.temperature > 0 && found.temperature < 1e-6) {
    throw refuse(`temperature is 0, or between 1e-6 and 1e6, not ${found.temperature}`);
  }
  if (typeof (given.logprobs ?? false) !== "boolean") throw refuse(`logprobs is true or false, not ${given.logprobs}`);
  return {
    ...found,
    logit_bias: biases(given.logit_bias ?? {}, vocabulary),
    stop: stops(given.stop ?? []),
    logprobs: given.logprobs === true || found.top_logprobs > 0,
    schema: schemaOf(given.response_format),
  };
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high @param {boolean} [whole] */
function number(name, value, low, high, whole) {
  if (typeof value !== "number" || !(whole ? Number.isInteger(value) : Number.isFinite(value))) {
    throw refuse(`${name} is a ${whole ? "whole" : "finite"} number, not ${shown(value)}`);
  }
  if (value < low || value > high) throw refuse(`${name} is between ${low} and ${high}, not ${value}`);
  return value;
}

/** @param {unknown} value @param {number} vocabulary @returns {Map<number, number>} */
function biases(value, vocabulary) {
  if (typeof value !== "object" || !value) throw refuse(`logit_bias maps tokens to numbers; it is ${shown(value)}`);
  const entries = Object.entries(value);
  if (entries.length > MOST_BIASES) {
    throw refuse(`logit_bias holds ${entries.length} tokens; ${MOST_BIASES} are the most`);
  }
  return new Map(
    entries.map(([key, bias]) => {
      const token = /^\d+$/.test(key) ? Number(key) : key;
      return [
        number("logit_bias holds tokens, each of which", token, 0, vocabulary - 1, true),
        number(`logit_bias holds numbers; that of token ${key}`, bias, -100, 100),
      ];
    }),
  );
}

/** @param {unknown} value @returns {string[]} */
function stops(value) {
  const texts = typeof value === "string" ? [value] : value;
  if (!Array.isArray(texts)) throw refuse(`stop is a text or a list of texts, not ${shown(value)}`);
  for (const text of texts) {
    if (typeof text !== "string" || !text) throw refuse(`stop holds ${shown(text)}, not a text of some characters`);
  }
  return texts;
}

/** @param {any} format */
function schemaOf(format) {
  switch (format?.type ?? "text") {
    case "text":
      return null;
    case "json_object":
      return { type: "object" };
    case "json_schema": {
      const schema = format.json_schema?.schema;
      if (typeof schema === "boolean" || (typeof schema === "object" && schema)) return schema;
      throw refuse("response_format of type json_schema needs json_schema: {schema}");
    }
    default:
      throw refuse(`response_format is text, json_object or json_schema, not ${shown(format.type)}`);
  }
}

/** Token ids, each in the vocabulary. @param {unknown[]} given @param {number} vocabulary @returns {number[]} */
export function tokensFrom(given, vocabulary) {
  return given.map((token, at) => number(`token ${at} of the prompt`, token, 0, vocabulary - 1, true));
}

/** @param {unknown} value */
const shown = (value) => (JSON.stringify(value) ?? String(value)).slice(0, 40);
