// The settings of a request, checked before anything is computed. Names are OpenAI's; ranges and defaults are those of
// webpte in Python, which has the same sampler.
import { inputError } from "../errors.js";

const MAX_INT32 = 2 ** 31 - 1; // the device has 32-bit integers
export const MAX_TOP_LOGPROBS = 20;
const MAX_BIASED_TOKENS = 1024;
/**
 * Numbers: lowest, highest, default, and whether they are integers.
 * @type {Record<string, [number, number, number, boolean?]>}
 */
const NUMBERS = {
  max_tokens: [1, MAX_INT32, 1024, true],
  temperature: [0, 1e6, 0],
  top_k: [0, MAX_INT32, 0, true],
  top_p: [0, 1, 1],
  min_p: [0, 1, 0],
  repetition_penalty: [0.01, 100, 1],
  presence_penalty: [-100, 100, 0],
  frequency_penalty: [-100, 100, 0],
  dry_multiplier: [0, 100, 0],
  dry_allowed_length: [1, MAX_INT32, 6, true],
  seed: [0, MAX_INT32, 0, true],
  top_logprobs: [0, MAX_TOP_LOGPROBS, 0, true],
  n: [1, 1, 1, true],
};
const OTHERS = [
  ..."messages prompt parse_special stop logit_bias logprobs response_format max_completion_tokens".split(" "),
  ..."stream stream_options return_token_ids model user enable_thinking reasoning_effort".split(" "),
];

/**
 * @typedef {object} SamplingParams
 * @property {number} max_tokens
 * @property {number} temperature 0 takes the most probable token
 * @property {number} top_k
 * @property {number} top_p
 * @property {number} min_p
 * @property {number} repetition_penalty
 * @property {number} presence_penalty
 * @property {number} frequency_penalty
 * @property {number} dry_multiplier
 * @property {number} dry_allowed_length
 * @property {number} seed
 * @property {number} top_logprobs
 * @property {Map<number, number>} logit_bias
 * @property {string[]} stop
 * @property {boolean} logprobs
 * @property {object | boolean | null} schema
 */

const FILTERS = ["temperature", "top_k", "top_p", "min_p"];
const PENALTIES = [
  ..."repetition_penalty presence_penalty frequency_penalty dry_multiplier dry_allowed_length".split(" "),
];

/**
 * Return a request with a model's defaults for what it does not set. If it sets any filter or penalty, or a format, the
 * default penalties do not apply.
 * @param {any} request
 * @param {Record<string, number>} defaults
 */
export function applyDefaults(request, defaults) {
  const isSet = (/** @type {string} */ name) => request[name] !== undefined && request[name] !== null;
  const explicit = [...FILTERS, ...PENALTIES].some(isSet) || (request.response_format?.type ?? "text") !== "text";
  const names = Object.keys(defaults).filter((name) => !isSet(name) && !(explicit && PENALTIES.includes(name)));
  return { ...request, ...Object.fromEntries(names.map((name) => [name, defaults[name]])) };
}

/** Return the checked settings of a request. @param {any} request @param {number} vocabulary @returns {SamplingParams} */
export function samplingParamsFrom(request, vocabulary) {
  const names = [...Object.keys(NUMBERS), ...OTHERS];
  for (const name of Object.keys(request)) {
    if (!names.includes(name)) throw inputError("request", `settings out of ${names.join(", ")}`, name);
  }
  const settings = { ...request, max_tokens: request.max_tokens ?? request.max_completion_tokens };
  /** @type {any} */
  const numbers = {};
  for (const [name, [low, high, fallback, isInteger]] of Object.entries(NUMBERS)) {
    numbers[name] = number(name, settings[name] ?? fallback, low, high, isInteger);
  }
  if (numbers.top_p === 0) throw inputError("top_p", "a number above 0 and at most 1", 0);
  if (numbers.temperature > 0 && numbers.temperature < 1e-6) {
    throw inputError("temperature", "0, or a number from 1e-6 to 1e6", numbers.temperature);
  }
  if (typeof (settings.logprobs ?? false) !== "boolean") {
    throw inputError("logprobs", "true or false", settings.logprobs);
  }
  return {
    ...numbers,
    logit_bias: logitBias(settings.logit_bias ?? {}, vocabulary),
    stop: stopStrings(settings.stop ?? []),
    logprobs: settings.logprobs === true || numbers.top_logprobs > 0,
    schema: schemaOf(settings.response_format),
  };
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high @param {boolean} [isInteger] */
function number(name, value, low, high, isInteger) {
  const kind = isInteger ? "an integer" : "a finite number";
  const valid = typeof value === "number" && (isInteger ? Number.isInteger(value) : Number.isFinite(value));
  if (!valid || value < low || value > high) throw inputError(name, `${kind} from ${low} to ${high}`, value);
  return value;
}

/** @param {unknown} value @param {number} vocabulary @returns {Map<number, number>} */
function logitBias(value, vocabulary) {
  if (typeof value !== "object" || !value) throw inputError("logit_bias", "an object of tokens and numbers", value);
  const entries = Object.entries(value);
  if (entries.length > MAX_BIASED_TOKENS) {
    throw inputError("logit_bias", `at most ${MAX_BIASED_TOKENS} tokens`, entries.length);
  }
  return new Map(
    entries.map(([key, bias]) => {
      const token = /^\d+$/.test(key) ? Number(key) : key;
      return [
        number("token of logit_bias", token, 0, vocabulary - 1, true),
        number(`logit_bias[${key}]`, bias, -100, 100),
      ];
    }),
  );
}

/** @param {unknown} value @returns {string[]} */
function stopStrings(value) {
  const strings = typeof value === "string" ? [value] : value;
  if (!Array.isArray(strings)) throw inputError("stop", "a string or a list of strings", value);
  for (const string of strings) {
    if (typeof string !== "string" || !string) throw inputError("stop", "strings of at least one character", string);
  }
  return strings;
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
      throw inputError("response_format.json_schema.schema", "an object or a boolean", schema);
    }
    default:
      throw inputError("response_format.type", "text, json_object or json_schema", format.type);
  }
}

/** Return token ids, all of which are in the vocabulary. @param {unknown[]} tokens @param {number} vocabulary */
export function tokensFrom(tokens, vocabulary) {
  return tokens.map((token, at) => number(`prompt[${at}]`, token, 0, vocabulary - 1, true));
}
