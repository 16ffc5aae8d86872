/** A chat with the bundled language model. */

import { Bubble } from "./bubble.js";
import { ChatList } from "./chat_list.js";
import { Conversations } from "./conversations.js";
import { Attachments } from "./images.js";
import { Settings } from "./settings.js";
import { announce, copyButton, loadModel, make, parts, plural, showError } from "./shared.js";

const COLUMNS_PIXELS = 1000; // from this width on, chats and settings are beside the conversation
const SUGGESTIONS = [
  "What can you help me with?",
  "Explain in two sentences what a GPU does.",
  "Write a Python function that reverses a string.",
  "Give me three ideas for a rainy afternoon.",
];

/** Return the content of a message with images. */
const contentParts = (text, images) => [
  ...images.map(({ url }) => ({ type: "image_url", image_url: { url } })),
  ...(text ? [{ type: "text", text }] : []),
];

/** Return messages as a request has them. */
const toSend = (messages) =>
  messages
    .filter(({ content, images }) => content || images)
    .map(({ role, content, images, reasoning_content }) => ({
      role,
      content: images ? contentParts(content, images) : content,
      ...(reasoning_content && { reasoning_content }),
    }));

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
  #list;
  #settings;
  #attachments;
  #abort = null;
  #bubble = null;
  #edited = null; // the number of the message that the next one replaces

  constructor(root) {
    this.#root = root;
    this.#part = parts(root);
    this.#settings = new Settings(root);
    this.#attachments = new Attachments(root);
    // Several bundles can have the same origin. A page within another document shares its storage: there, in memory.
    this.#conversations = new Conversations(root === document ? `webpte chats ${location.pathname}` : null);
    this.#list = new ChatList(root, this.#conversations, (change) => this.#open(change));
    const { composer, message, stop, regenerate, cancelEdit, log, suggestions } = this.#part;
    composer.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    log.parentElement.addEventListener("keydown", (event) => event.key === "Escape" && this.#stop());
    stop.onclick = () => this.#stop();
    regenerate.onclick = () => this.#regenerate();
    cancelEdit.onclick = () => this.#endEdit();
    suggestions.append(...SUGGESTIONS.map((text) => this.#suggestion(text)));
    this.#arrangeColumns();
    this.#restore();
  }

  ready(model) {
    this.#model = model;
    const takesImages = Boolean(model.info.language.images);
    this.#attachments.allow(takesImages);
    this.#part.looks.hidden = !takesImages;
    this.#settings.ready(model);
    this.#showContext();
    this.#part.message.focus();
    announce(this.#root, "The model is ready.");
    this.#setModel(model);
  }

  #suggestion(text) {
    const onclick = () => {
      this.#part.message.value = text;
      this.#send();
    };
    return make("button", { type: "button", textContent: text, onclick });
  }

  /** Show chats and settings beside the conversation while there is room. */
  #arrangeColumns() {
    const { log, chats, options } = this.#part;
    const main = log.closest("main");
    let wide = null;
    new ResizeObserver(() => {
      const isWide = main.parentNode.host ? false : innerWidth >= COLUMNS_PIXELS;
      if (isWide === wide) return;
      wide = isWide;
      main.classList.toggle("columns", isWide);
      chats.open = isWide;
      options.open = isWide || !this.#part.linked.hidden;
    }).observe(main);
  }

  #show() {
    const { send, stop, regenerate, log, editing } = this.#part;
    const busy = this.#abort !== null;
    send.disabled = busy;
    stop.hidden = !busy;
    regenerate.hidden = busy || this.#messages.length === 0;
    editing.hidden = this.#edited === null;
    for (const button of log.querySelectorAll(".edit")) button.disabled = busy;
    log.setAttribute("aria-busy", String(busy));
    this.#list.show();
  }

  /** Show the rest of the context. How many tokens a restored conversation uses is known after its next answer. */
  #showContext(used = this.#messages.length ? null : 0) {
    const context = this.#model?.info.language.context_length;
    const known = context !== undefined && used !== null;
    this.#part.context.textContent = known ? `${Math.max(0, context - used)} of ${context} tokens of context left` : "";
  }

  #stop() {
    this.#abort?.abort();
  }

  /** Show another conversation: a new or an earlier one. */
  #open(change) {
    this.#stop();
    change();
    this.#endEdit();
    this.#restore();
    this.#part.message.focus();
  }

  /** Show the messages of the current conversation. */
  #restore() {
    this.#messages = [...this.#conversations.messages];
    this.#draw();
    this.#part.speed.textContent = "";
    this.#showContext();
    this.#show();
  }

  #draw() {
    this.#bubble = null;
    this.#part.log.replaceChildren(...(this.#messages.length ? [] : [this.#part.hint]));
    for (const [number, message] of this.#messages.entries()) {
      const bubble = this.#showMessage(message, number);
      this.#bubble = message.role === "assistant" ? bubble : null;
    }
  }

  #showMessage({ role, content, images, note, reasoning_content }, number) {
    const bubble = new Bubble(this.#part.log, role);
    if (images) bubble.images = images;
    if (reasoning_content) bubble.think(reasoning_content);
    bubble.text = content;
    bubble.draw();
    if (note) bubble.note(note);
    if (role === "user") {
      const onclick = () => this.#edit(number);
      bubble.actions = [make("button", { type: "button", className: "edit", textContent: "Edit", onclick })];
    } else if (content) bubble.actions = [copyButton("Copy answer", () => content)];
    return bubble;
  }

  /** Put a message back into the composer. The next one replaces it and what follows. */
  #edit(number) {
    if (this.#abort) return;
    const { content, images } = this.#messages[number];
    this.#edited = number;
    this.#part.message.value = content;
    this.#attachments.set(images ?? []);
    this.#part.message.focus();
    this.#show();
  }

  #endEdit() {
    if (this.#edited === null) return;
    this.#edited = null;
    this.#part.message.value = "";
    this.#attachments.set([]);
    this.#show();
  }

  async #send() {
    const content = this.#part.message.value.trim();
    if (this.#abort || !(content || this.#attachments.any) || !this.#settings.validate()) return;
    const images = this.#attachments.take();
    if (this.#edited !== null) {
      this.#messages.length = this.#edited;
      this.#edited = null;
      this.#draw();
    }
    this.#part.message.value = "";
    const message = { role: "user", content, ...(images.length && { images }) };
    this.#messages.push(message);
    this.#part.hint.remove();
    this.#showMessage(message, this.#messages.length - 1);
    this.#conversations.save(this.#messages);
    await this.#answer();
  }

  async #regenerate() {
    if (this.#abort || !this.#settings.validate()) return;
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop();
    this.#bubble?.element.remove();
    await this.#answer(this.#settings.variation());
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
      const request = this.#settings.request(toSend(messages));
      await this.#stream({ ...request, ...variation, signal: abort.signal }, bubble);
    } catch (error) {
      bubble.note("");
      if (error?.code === "aborted" || abort.signal.aborted) note = "(stopped)";
      else this.#showFailure(error, bubble);
    }
    if (note) this.#note(note, bubble);
    bubble.draw();
    bubble.element.classList.remove("writing");
    if (bubble.text) bubble.actions = [copyButton("Copy answer", () => bubble.text)];
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
      if (chunk.prompt_progress) bubble.showPrompt(chunk.prompt_progress);
      const choice = chunk.choices[0];
      const { content, reasoning_content: thought } = choice?.delta ?? {};
      if (thought) bubble.think(thought);
      if (content) bubble.text += content;
      if (content || thought) {
        if (!started) bubble.note("");
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
    const limit = this.#settings.maxTokens;
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
