// Chat templates: render messages to a prompt.
import { inputError, WebpteError } from "../errors.js";
import { Refusal } from "./jinja/globals.js";
import { render } from "./jinja/render.js";

/** @typedef {{role: string, content?: unknown, tool_calls?: unknown, [key: string]: unknown}} Message */

/** Variables of templates beside the messages. @type {Record<string, unknown>} */
const DEFAULTS = { tools: null, documents: null, add_generation_prompt: true };

/** Return the prompt of messages. Each has `role`, and `content` or `tool_calls`.
 * @param {string} template @param {Message[]} messages @param {Record<string, unknown>} variables special tokens by name, and others */
export function renderChat(template, messages, variables = {}) {
  if (!Array.isArray(messages)) throw inputError("messages", "a list of objects with role and content", messages);
  messages.forEach((message, at) => {
    if (
      typeof message !== "object" ||
      !message ||
      !("role" in message) ||
      !("content" in message || "tool_calls" in message)
    ) {
      throw inputError(`messages[${at}]`, "an object with role and content", message);
    }
  });
  try {
    return render(template, { ...DEFAULTS, ...variables, messages });
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    const what = error instanceof Refusal ? "the chat template rejected the messages" : "the chat template failed";
    throw new WebpteError("input", `${what}: ${message}`, { cause: error });
  }
}

/**
 * Return the tokens of messages. Special tokens of the template are recognized; those in the strings of messages are
 * text, so that no message can forge the end of its turn.
 * @param {import("./tokenizer.js").Tokenizer} tokenizer
 * @param {string} template
 * @param {Message[]} messages
 * @param {Record<string, unknown>} variables
 * @param {(text: string) => string} [expanded] what to encode instead of a rendered text
 */
export function encodeChat(tokenizer, template, messages, variables = {}, expanded = (text) => text) {
  const marked = tokenizer.addMarks({ messages, tools: variables.tools ?? null });
  const same = JSON.stringify(marked) === JSON.stringify({ messages, tools: variables.tools ?? null });
  if (same) return tokenizer.encode(expanded(renderChat(template, messages, variables)));
  return tokenizer.encodeMarked(expanded(renderChat(template, marked.messages, { ...variables, tools: marked.tools })));
}
