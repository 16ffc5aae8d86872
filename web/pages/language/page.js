/** A chat with the bundled language model. */

import { Conversations } from "./conversations.js";
import { Attachments, previews } from "./images.js";
import { renderMarkdown } from "./markdown.js";
import { announce, loadModel, make, parts, plural, showError } from "./shared.js";

/** Return the content of a message with images. */
const contentParts = (text, images) => [
  ...images.map(({ url }) => ({ type: "image_url", image_url: { url } })),
  ...(text ? [{ type: "text", text }] : []),
];

/** Return a request with the settings of the page. */
function request(part, messages) {
  const sent = messages
    .filter(({ content, images }) => content || images)
    .map(({ role, content, images, reasoning_content }) => ({
      role,
      content: images ? contentParts(content, images) : content,
      ...(reasoning_content && { reasoning_content }),
    }));
  const fields = { messages: sent, stream: true, stream_options: { include_usage: true } };
  for (const field of part.settings.elements)
    if (field.type === "number" && field.value !== "") fields[field.name] = field.valueAsNumber;
  if (part.thinking.value) fields.enable_thinking = part.thinking.value === "on";
  const system = part.system.value.trim();
  if (system) fields.messages = [{ role: "system", content: system }, ...sent];
  const schema = part.schema.value.trim();
  if (schema)
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) } };
  return fields;
}

const NEAR_END_PIXELS = 80;
const VARIED_TEMPERATURE = 0.7; // of a regenerated answer, if the model's default is 0

/** Shows streamed text, drawn at most once per frame. It keeps the end visible unless the user has scrolled up. */
class Bubble {
  #log;
  #body;
  #drawn = true;
  #note = null;
  #text = "";
  #thought = make("div", { className: "text" });
  #folded = null;
  reasoning = "";

  constructor(log, role) {
    this.#log = log;
    this.#body = make("div", { className: "text" });
    this.element = make("article", { className: role });
    this.element.append(
      make("h2", { className: "unseen", textContent: role === "user" ? "You" : "Model" }),
      this.#body,
    );
    log.append(this.element);
    this.#scroll(true);
  }

  get text() {
    return this.#text;
  }

  set text(text) {
    this.#text = text;
    if (this.#drawn) requestAnimationFrame(() => this.draw());
    this.#drawn = false;
  }

  /** Add to the thought. */
  think(text) {
    this.reasoning += text;
    if (!this.#folded) {
      this.#folded = make("details", { className: "thought quiet" }, make("summary"), this.#thought);
      this.#body.before(this.#folded);
    }
    this.text = this.#text;
  }

  /** Show images above the text. */
  set images(images) {
    this.#body.before(previews(images));
    this.#scroll(true);
  }

  draw() {
    this.#drawn = true;
    if (this.#folded) {
      this.#folded.firstChild.textContent = this.#text ? "Thought" : "Thinking …";
      this.#thought.textContent = this.reasoning;
    }
    const near = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR_END_PIXELS;
    this.#body.replaceChildren(...renderMarkdown(this.#text));
    this.#scroll(near);
  }

  /** Add a note under the text, or remove it. */
  note(text) {
    this.#note?.remove();
    this.#note = text ? make("p", { className: "quiet", textContent: text }) : null;
    if (this.#note) this.element.append(this.#note);
    this.#scroll(true);
  }

  #scroll(near) {
    if (near) this.#log.scrollTop = this.#log.scrollHeight;
  }
}

class Chat {
  #root;
  #part;
  #model;
  #setModel;
  #loaded = new Promise((resolve) => {
    this.#setModel = resolve;
  });
  /** Of the user and the model; `note` of an answer is shown below it. */
  #messages = [];
  #conversations;
  #attachments;
  #abort = null;
  #bubble = null;

  constructor(root) {
    this.#root = root;
    this.#part = parts(root);
    this.#attachments = new Attachments(root);
    const { composer, message, stop, regenerate, newChat, deleteChat, earlier, schema, settings } = this.#part;
    composer.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    settings.addEventListener("submit", (event) => event.preventDefault());
    message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.#part.log.parentElement.addEventListener("keydown", (event) => event.key === "Escape" && this.#stop());
    stop.onclick = () => this.#stop();
    regenerate.onclick = () => this.#regenerate();
    newChat.onclick = () => this.#open(() => this.#conversations.begin());
    deleteChat.onclick = () => this.#open(() => this.#conversations.remove());
    earlier.onchange = () => this.#open(() => this.#conversations.open(earlier.value));
    schema.oninput = () => this.#showSchemaError("");
    // Several bundles can have the same origin. A page within another document shares its storage: there, in memory.
    this.#conversations = new Conversations(root === document ? `webpte chats ${location.pathname}` : null);
    this.#restore();
  }

  ready(model) {
    this.#model = model;
    this.#attachments.allow(Boolean(model.info.language.images));
    this.#showDefaults();
    this.#showContext();
    this.#part.message.focus();
    announce(this.#root, "The model is ready.");
    this.#setModel(model);
  }

  #show() {
    const { send, stop, regenerate, newChat, deleteChat, earlier, log } = this.#part;
    const busy = this.#abort !== null;
    send.disabled = busy;
    stop.hidden = !busy;
    regenerate.hidden = busy || this.#messages.length === 0;
    newChat.disabled = deleteChat.hidden = this.#messages.length === 0;
    const others = this.#conversations.others.map(({ id, title }) => make("option", { value: id, textContent: title }));
    const first = make("option", { value: "", textContent: "Earlier chats", selected: true, disabled: true });
    earlier.replaceChildren(first, ...others);
    earlier.hidden = others.length === 0;
    log.setAttribute("aria-busy", String(busy));
  }

  /** Show the model's defaults, and the switch of a model that thinks. */
  #showDefaults() {
    const { thinking, chat_template: template } = this.#model.info.language;
    this.#part.thinking.parentElement.hidden = !(thinking ?? /think>|channel\|>|\[THINK\]/.test(template));
    for (const [name, value] of Object.entries(this.#model.info.language.sampling ?? {})) {
      const field = this.#part.settings.elements.namedItem(name);
      if (field) field.placeholder = String(value);
    }
  }

  /** Show the rest of the context. How many tokens a restored conversation uses is known after its next answer. */
  #showContext(used = this.#messages.length ? null : 0) {
    if (!this.#model) return;
    const { context_length: context } = this.#model.info.language;
    this.#part.context.textContent =
      used === null ? "" : `${Math.max(0, context - used)} of ${context} tokens of context left`;
  }

  #showSchemaError(text) {
    this.#part.error.textContent = text;
    this.#part.error.hidden = !text;
    this.#part.schema.setAttribute("aria-invalid", String(Boolean(text)));
  }

  #stop() {
    this.#abort?.abort();
  }

  /** Show another conversation: a new or an earlier one. */
  #open(change) {
    this.#stop();
    change();
    this.#restore();
    this.#part.message.focus();
  }

  /** Show the messages of the current conversation. */
  #restore() {
    this.#messages = [...this.#conversations.messages];
    this.#bubble = null;
    this.#part.log.replaceChildren(...(this.#messages.length ? [] : [this.#part.hint]));
    for (const { role, content, images, note, reasoning_content } of this.#messages) {
      const bubble = new Bubble(this.#part.log, role);
      if (images) bubble.images = images;
      if (reasoning_content) bubble.think(reasoning_content);
      bubble.text = content;
      bubble.draw();
      if (note) bubble.note(note);
      this.#bubble = role === "assistant" ? bubble : null;
    }
    this.#part.speed.textContent = "";
    this.#showContext();
    this.#show();
  }

  async #send() {
    const content = this.#part.message.value.trim();
    if (this.#abort || !(content || this.#attachments.any) || !this.#validate()) return;
    this.#part.message.value = "";
    const images = this.#attachments.take();
    this.#messages.push({ role: "user", content, ...(images.length && { images }) });
    this.#part.hint.remove();
    const bubble = new Bubble(this.#part.log, "user");
    if (images.length) bubble.images = images;
    bubble.text = content;
    this.#conversations.save(this.#messages);
    await this.#answer();
  }

  /** Return whether the settings are valid; show an error beside the field if not. */
  #validate() {
    const { schema, settings } = this.#part;
    if (!settings.reportValidity()) return false;
    try {
      if (schema.value.trim()) JSON.parse(schema.value);
      return true;
    } catch (error) {
      this.#showSchemaError(`The schema is not valid JSON: ${error.message}`);
      settings.firstElementChild.open = true;
      schema.focus();
      return false;
    }
  }

  async #regenerate() {
    if (this.#abort || !this.#validate()) return;
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop();
    this.#bubble?.element.remove();
    await this.#answer(this.#variation());
  }

  /** Return settings for another answer: the defaults and a fixed seed would give the same one again. */
  #variation() {
    const { elements } = this.#part.settings;
    const isSet = (name) => elements.namedItem(name).value !== "";
    const greedy = !isSet("temperature") && !this.#model?.info.language.sampling?.temperature;
    return {
      ...(greedy && { temperature: VARIED_TEMPERATURE }),
      ...(!isSet("seed") && { seed: crypto.getRandomValues(new Uint32Array(1))[0] >>> 1 }),
    };
  }

  async #answer(variation = {}) {
    const abort = new AbortController();
    this.#abort = abort;
    const messages = this.#messages;
    const conversations = this.#conversations;
    const bubble = new Bubble(this.#part.log, "assistant");
    let note = null;
    this.#bubble = bubble;
    this.#show();
    try {
      await this.#waitForModel(bubble, abort.signal);
      announce(this.#root, "The model is answering.");
      bubble.element.classList.add("writing");
      await this.#stream({ ...request(this.#part, messages), ...variation, signal: abort.signal }, bubble);
    } catch (error) {
      if (error?.code === "aborted" || abort.signal.aborted) note = "(stopped)";
      else this.#showFailure(error, bubble);
    }
    if (note) this.#note(note, bubble);
    bubble.draw();
    bubble.element.classList.remove("writing");
    this.#abort = null;
    // Unless another conversation is shown by now.
    if (messages === this.#messages) {
      const { text: content, reasoning } = bubble;
      const thought = reasoning && { reasoning_content: reasoning };
      if (content || reasoning || note)
        messages.push({ role: "assistant", content, ...thought, ...(note && { note }) });
      conversations.save(messages);
    }
    this.#show();
  }

  /** Wait until the model has loaded, and show that the message is queued. */
  async #waitForModel(bubble, signal) {
    if (this.#model) return;
    this.#note("The message is queued until the model has loaded.", bubble);
    await new Promise((resolve, reject) => {
      this.#loaded.then(resolve);
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    bubble.note("");
  }

  #note(text, bubble) {
    bubble.note(text);
    announce(this.#root, text);
  }

  async #stream(chatRequest, bubble) {
    let tokens = 0;
    let started = 0;
    let reason = null;
    for await (const chunk of await this.#model.chat.completions.create(chatRequest)) {
      const choice = chunk.choices[0];
      const { content, reasoning_content: thought } = choice?.delta ?? {};
      if (thought) bubble.think(thought);
      if (content) bubble.text += content;
      if (content || thought) {
        started ||= performance.now();
        this.#showSpeed(tokens++, started);
      }
      reason = choice?.finish_reason ?? reason;
      if (chunk.usage) {
        tokens = chunk.usage.completion_tokens;
        this.#showUsage(chunk.usage, started);
      }
    }
    announce(this.#root, bubble.text);
    if (reason === "length") this.#showLimit(bubble, tokens);
  }

  #showSpeed(tokens, started) {
    const seconds = (performance.now() - started) / 1000;
    if (tokens > 0 && seconds > 0) this.#part.speed.textContent = `${(tokens / seconds).toFixed(1)} tokens/s`;
  }

  #showUsage(usage, started) {
    this.#showSpeed(usage.completion_tokens - 1, started);
    this.#showContext(usage.total_tokens);
  }

  #showLimit(bubble, tokens) {
    const field = this.#part.settings.elements.namedItem("max_tokens");
    const limit = Number(field.value || field.placeholder);
    const text =
      tokens >= limit
        ? `Ended at the limit of ${plural(limit, "token")} in the settings.`
        : "The context is full. Start a new chat to continue.";
    this.#note(text, bubble);
  }

  #showFailure(error, bubble) {
    const note = make("div");
    bubble.element.classList.add("note");
    bubble.element.append(note);
    showError(note, error, "Try again", () => this.#regenerate());
  }
}

export async function start(page) {
  const chat = new Chat(page.root);
  chat.ready(await loadModel(page));
}
