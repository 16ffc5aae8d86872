/** A message of a chat: its text as it streams, its images, its reasoning, and the buttons below it. */

import { previews } from "./images.js";
import { renderMarkdown } from "./markdown.js";
import { make } from "./shared.js";

const NEAR_END_PIXELS = 80;

/** Shows streamed text, drawn at most once per frame. It keeps the end visible unless the user has scrolled up. */
export class Bubble {
  #log;
  #body;
  #drawn = true;
  #note = null;
  #text = "";
  #reasoningText = make("div", { className: "text" });
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

  /** Add to the reasoning. */
  think(text) {
    this.reasoning += text;
    if (!this.#folded) {
      this.#folded = make("details", { className: "thought quiet" }, make("summary"), this.#reasoningText);
      this.#body.before(this.#folded);
    }
    this.text = this.#text;
  }

  /** Show images above the text. */
  set images(images) {
    this.#body.before(previews(images));
    this.#scroll(true);
  }

  /** Show buttons below the text. */
  set actions(buttons) {
    this.element.append(make("div", { className: "row actions" }, ...buttons));
  }

  draw() {
    this.#drawn = true;
    if (this.#folded) {
      this.#folded.firstChild.textContent = this.#text ? "Thought" : "Thinking …";
      this.#reasoningText.textContent = this.reasoning;
    }
    const near = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR_END_PIXELS;
    this.#body.replaceChildren(...renderMarkdown(this.#text));
    this.#scroll(near);
  }

  /** Show how much of the prompt is read, until the first text. */
  showPrompt({ processed, total }) {
    this.note(`Reading the prompt: ${processed} of ${total} tokens`);
    const line = make("progress", { max: total, value: processed });
    line.setAttribute("aria-label", "Prompt");
    this.#note.append(line);
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
