/** A chat with the bundled language model. */

import { rendered } from "./markdown.js";
import { begin, complain, make, parts, say } from "./shared.js";

/** What the settings ask for, by the names of the API. */
function request(part, messages) {
  const asked = { messages: [...messages], stream: true, stream_options: { include_usage: true } };
  for (const field of part.settings.elements)
    if (field.type === "number" && field.value !== "") asked[field.name] = field.valueAsNumber;
  const system = part.system.value.trim();
  if (system) asked.messages = [{ role: "system", content: system }, ...messages];
  const schema = part.schema.value.trim();
  if (schema)
    asked.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(schema) } };
  return asked;
}

/** Show text as it grows, once a frame at most, and keep the end in sight unless somebody scrolled away from it. */
class Bubble {
  #log;
  #body;
  #drawn = true;
  #text = "";

  constructor(log, role) {
    this.#log = log;
    this.#body = make("div", { className: "text" });
    this.element = make("article", { className: role });
    this.element.append(
      make("h2", { className: "unseen", textContent: role === "user" ? "You" : "Model" }),
      this.#body,
    );
    log.append(this.element);
    this.#keep(true);
  }

  get text() {
    return this.#text;
  }

  set text(text) {
    this.#text = text;
    if (this.#drawn) requestAnimationFrame(() => this.draw());
    this.#drawn = false;
  }

  draw() {
    this.#drawn = true;
    const near = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 80;
    this.#body.replaceChildren(...rendered(this.#text));
    this.#keep(near);
  }

  #keep(near) {
    if (near) this.#log.scrollTop = this.#log.scrollHeight;
  }
}

class Chat {
  #root;
  #part;
  #model;
  #messages = [];
  #abort = null;
  #bubble = null;

  constructor(root) {
    this.#root = root;
    this.#part = parts(root);
    const { composer, message, stop, again, fresh, schema, settings } = this.#part;
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
    again.onclick = () => this.#regenerate();
    fresh.onclick = () => this.#fresh();
    schema.oninput = () => this.#blame("");
  }

  ready(model) {
    this.#model = model;
    this.#show();
    this.#room(0);
    this.#part.message.focus();
    say(this.#root, "The model is ready.");
  }

  #show() {
    const { send, stop, again, fresh, log } = this.#part;
    const busy = this.#abort !== null;
    send.disabled = busy || !this.#model;
    stop.hidden = !busy;
    again.hidden = busy || this.#messages.length === 0;
    fresh.disabled = this.#messages.length === 0;
    log.setAttribute("aria-busy", String(busy));
  }

  #room(used) {
    const { context } = this.#model.info.language;
    this.#part.room.textContent = `${Math.max(0, context - used)} of ${context} tokens of context left`;
  }

  #blame(text) {
    this.#part.wrong.textContent = text;
    this.#part.wrong.hidden = !text;
    this.#part.schema.setAttribute("aria-invalid", String(Boolean(text)));
  }

  #stop() {
    this.#abort?.abort();
  }

  #fresh() {
    this.#stop();
    this.#messages = [];
    this.#part.log.replaceChildren(this.#part.hint);
    this.#part.speed.textContent = "";
    this.#room(0);
    this.#show();
    this.#part.message.focus();
  }

  async #send() {
    const content = this.#part.message.value.trim();
    if (!content || this.#abort || !this.#model || !this.#sound()) return;
    this.#part.message.value = "";
    this.#messages.push({ role: "user", content });
    this.#part.hint.remove();
    const bubble = new Bubble(this.#part.log, "user");
    bubble.text = content;
    await this.#answer();
  }

  /** Whether what was set can be asked for; if not, it is said beside the field. */
  #sound() {
    const { schema, settings } = this.#part;
    if (!settings.reportValidity()) return false;
    try {
      if (schema.value.trim()) JSON.parse(schema.value);
      return true;
    } catch (error) {
      this.#blame(`The schema is not JSON: ${error.message}`);
      settings.firstElementChild.open = true;
      schema.focus();
      return false;
    }
  }

  async #regenerate() {
    if (this.#abort || !this.#sound()) return;
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop();
    this.#bubble?.element.remove();
    await this.#answer();
  }

  async #answer() {
    const abort = new AbortController();
    this.#abort = abort;
    const messages = this.#messages;
    const bubble = new Bubble(this.#part.log, "assistant");
    this.#bubble = bubble;
    this.#show();
    say(this.#root, "The model is answering.");
    bubble.element.classList.add("writing");
    try {
      await this.#stream({ ...request(this.#part, messages), signal: abort.signal }, bubble);
    } catch (error) {
      if (error?.code === "aborted" || abort.signal.aborted) say(this.#root, "Stopped.");
      else this.#failed(error, bubble);
    }
    bubble.draw();
    bubble.element.classList.remove("writing");
    if (bubble.text) messages.push({ role: "assistant", content: bubble.text });
    else if (!bubble.element.classList.contains("note")) bubble.element.remove();
    this.#abort = null;
    this.#show();
  }

  async #stream(asked, bubble) {
    let pieces = 0;
    let began = 0;
    let reason = null;
    for await (const chunk of await this.#model.chat.completions.create(asked)) {
      const choice = chunk.choices[0];
      if (choice?.delta?.content) {
        bubble.text += choice.delta.content;
        began ||= performance.now();
        this.#speed(pieces++, began);
      }
      reason = choice?.finish_reason ?? reason;
      if (chunk.usage) this.#used(chunk.usage, began);
    }
    say(this.#root, bubble.text);
    if (reason === "length") this.#cut(bubble);
  }

  #speed(tokens, began) {
    const seconds = (performance.now() - began) / 1000;
    if (tokens > 0 && seconds > 0) this.#part.speed.textContent = `${(tokens / seconds).toFixed(1)} tokens/s`;
  }

  #used(usage, began) {
    this.#speed(usage.completion_tokens - 1, began);
    this.#room(usage.total_tokens);
  }

  #cut(bubble) {
    const asked = this.#part.settings.elements.namedItem("max_tokens").value;
    const why = asked
      ? `Cut after ${asked} tokens, as the settings say.`
      : "The context is full. Begin a new chat to go on.";
    bubble.element.append(make("p", { className: "quiet", textContent: why }));
    say(this.#root, why);
  }

  #failed(error, bubble) {
    const note = make("div");
    bubble.element.classList.add("note");
    bubble.element.append(note);
    complain(note, error, "Try again", () => this.#regenerate());
  }
}

export async function start(page) {
  const chat = new Chat(page.root);
  chat.ready(await begin(page));
}
