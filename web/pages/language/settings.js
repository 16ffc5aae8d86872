/** The settings of a chat: the fields of the page, their part of a request, and a link that carries them. */

import { announce, copyButton, parts } from "./shared.js";

const HASH = "#settings=";
const VARIED_TEMPERATURE = 0.7; // of a regenerated answer, if the model's default is 0

export class Settings {
  #part;
  #model = null;

  constructor(root) {
    this.#part = parts(root);
    const { settings, schema, resetSettings } = this.#part;
    settings.addEventListener("submit", (event) => event.preventDefault());
    schema.oninput = () => this.#showSchemaError("");
    resetSettings.onclick = () => {
      settings.reset();
      this.#showSchemaError("");
      this.#part.linked.hidden = true;
      announce(root, "The settings are those of the model.");
    };
    if (root !== document) return; // a page within another document has no address of its own
    resetSettings.after(copyButton("Copy as a link", () => this.link));
    this.#readLink();
    addEventListener("hashchange", () => this.#readLink());
  }

  /** The fields by name: those with a number, the thinking switch, and the texts. */
  get #fields() {
    return [...this.#part.settings.elements].filter(
      ({ name, id }) => name || ["thinking", "system", "schema"].includes(id),
    );
  }

  /** The address of this page with the settings that are not the model's. */
  get link() {
    const set = this.#fields
      .filter(({ value }) => value.trim() !== "")
      .map(({ name, id, value }) => [name || id, value]);
    const url = new URL(location.href);
    url.hash = set.length ? HASH.slice(1) + encodeURIComponent(JSON.stringify(Object.fromEntries(set))) : "";
    return url.href;
  }

  /** Take the settings of the page's address. What is not a setting is ignored. */
  #readLink() {
    if (!location.hash.startsWith(HASH)) return;
    let linked;
    try {
      linked = new Map(Object.entries(JSON.parse(decodeURIComponent(location.hash.slice(HASH.length)))));
    } catch {
      return;
    }
    for (const field of this.#fields) {
      const value = linked.get(field.name || field.id);
      const isValid = typeof value === "string" && (field.type !== "number" || Number.isFinite(Number(value)));
      if (isValid) field.value = value;
    }
    this.#part.linked.hidden = false;
    this.#part.options.open = true;
  }

  /** Show the model's defaults, and the switch of a model that thinks. */
  ready(model) {
    this.#model = model;
    const { thinking, chat_template: template, sampling } = model.info.language;
    this.#part.thinking.parentElement.hidden = !(thinking ?? /think>|channel\|>|\[THINK\]/.test(template));
    for (const [name, value] of Object.entries(sampling ?? {})) {
      const field = this.#part.settings.elements.namedItem(name);
      if (field) field.placeholder = String(value);
    }
  }

  /** Return whether the settings are valid; show an error beside the field if not. */
  validate() {
    const { schema, settings, options } = this.#part;
    options.open ||= !settings.checkValidity();
    if (!settings.reportValidity()) return false;
    try {
      if (schema.value.trim()) JSON.parse(schema.value);
      return true;
    } catch (error) {
      this.#showSchemaError(`The schema is not valid JSON: ${error.message}`);
      options.open = true;
      schema.focus();
      return false;
    }
  }

  #showSchemaError(text) {
    this.#part.error.textContent = text;
    this.#part.error.hidden = !text;
    this.#part.schema.setAttribute("aria-invalid", String(Boolean(text)));
  }

  /** Return a request for an answer to messages. */
  request(messages) {
    const { settings, thinking, system, schema } = this.#part;
    const instructions = system.value.trim();
    const sent = instructions ? [{ role: "system", content: instructions }, ...messages] : messages;
    const fields = { messages: sent, stream: true, stream_options: { include_usage: true }, return_progress: true };
    for (const field of settings.elements)
      if (field.type === "number" && field.value !== "") fields[field.name] = field.valueAsNumber;
    if (thinking.value) fields.enable_thinking = thinking.value === "on";
    if (schema.value.trim())
      fields.response_format = {
        type: "json_schema",
        json_schema: { name: "answer", schema: JSON.parse(schema.value) },
      };
    return fields;
  }

  /** Return fields for another answer: the defaults and a fixed seed would give the same one again. */
  variation() {
    const { elements } = this.#part.settings;
    const isSet = (name) => elements.namedItem(name).value !== "";
    const greedy = !isSet("temperature") && !this.#model?.info.language.sampling?.temperature;
    return {
      ...(greedy && { temperature: VARIED_TEMPERATURE }),
      ...(!isSet("seed") && { seed: crypto.getRandomValues(new Uint32Array(1))[0] >>> 1 }),
    };
  }

  /** The largest number of tokens of an answer. */
  get maxTokens() {
    const field = this.#part.settings.elements.namedItem("max_tokens");
    return Number(field.value || field.placeholder);
  }
}
