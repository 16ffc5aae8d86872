// Chat templates: the prompt that messages become.
import { WebpteError } from "../errors.js";
import { Refusal } from "./jinja/globals.js";
import { render } from "./jinja/render.js";

/** @typedef {{role: string, content?: unknown, tool_calls?: unknown, [key: string]: unknown}} Message */

/** What templates find beside the messages. @type {Record<string, unknown>} */
const DEFAULTS = { tools: null, documents: null, add_generation_prompt: true };

/** The prompt that a template makes of messages, each with `role` and `content`, or `tool_calls` in its place.
 * @param {string} template @param {Message[]} messages @param {Record<string, unknown>} variables special tokens by name, and others */
export function renderChat(template, messages, variables = {}) {
  if (!Array.isArray(messages)) throw new WebpteError("input", "messages are a list of objects with role and content");
  messages.forEach((message, at) => {
    if (
      typeof message !== "object" ||
      !message ||
      !("role" in message) ||
      !("content" in message || "tool_calls" in message)
    ) {
      throw new WebpteError("input", `message ${at} needs the keys role and content`);
    }
  });
  try {
    return render(template, { ...DEFAULTS, ...variables, messages });
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    const what = error instanceof Refusal ? "the chat template refuses these messages" : "the chat template failed";
    throw new WebpteError("input", `${what}: ${message}`, { cause: error });
  }
}

/**
 * The tokens of messages, as a template writes them. Special tokens are those of the template: in the strings of
 * messages they are text, so that no message can forge the end of its turn.
 * @param {import("./tokenizer.js").Tokenizer} tokenizer
 * @param {string} template
 * @param {Message[]} messages
 * @param {Record<string, unknown>} variables
 */
export function encodeChat(tokenizer, template, messages, variables = {}) {
  const marked = tokenizer.marked({ messages, tools: variables.tools ?? null });
  const same = JSON.stringify(marked) === JSON.stringify({ messages, tools: variables.tools ?? null });
  if (same) return tokenizer.encode(renderChat(template, messages, variables));
  return tokenizer.encodeMarked(renderChat(template, marked.messages, { ...variables, tools: marked.tools }));
}
