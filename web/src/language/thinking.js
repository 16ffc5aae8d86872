// A thought before the answer: its tags, and the split of a response into reasoning and answer.
import { StopStringBuffer } from "./stream.js";

/** What families of models write around a thought. */
const TAGS = [
  { begin: "<think>", end: "</think>", label: "", separator: "\n\n" },
  { begin: "<|channel>", end: "<channel|>", label: "thought", separator: "" },
  { begin: "[THINK]", end: "[/THINK]", label: "", separator: "\n\n" },
];
const FIELDS = ["reasoning_content", "reasoning", "thinking"]; // of messages, as different templates name it
const MAX_TAG_TOKENS = 32; // of a tag, its label and the white space after them, at the end of a prompt

/** Return the tags that a chat template mentions, or undefined. @param {string | null} template */
export const thoughtTags = (template) =>
  TAGS.find(({ begin, end }) => template?.includes(begin) || template?.includes(end));

/** Return messages whose `reasoning_content` has the name that a template reads, or none. @param {string} template
 * @param {import("./template.js").Message[]} messages */
export const withReasoningFields = (template, messages) =>
  messages.map((message) => {
    if (message?.reasoning_content === undefined) return message;
    const { reasoning_content: thought, ...rest } = message;
    const names = FIELDS.filter((name) => template.includes(name));
    return { ...rest, ...Object.fromEntries(names.map((name) => [name, thought])) };
  });

/**
 * Return how the response to a prompt may begin; null if the prompt has ended the thought. With `enabled` false, a
 * template without a switch gets an empty thought: its tokens are added to the prompt.
 * @param {string | null} template @param {import("./tokenizer.js").Tokenizer} tokenizer @param {number[]} prompt
 * @param {boolean | null | undefined} enabled @param {boolean} constrained
 */
export function thoughtAfter(template, tokenizer, prompt, enabled, constrained) {
  const tags = thoughtTags(template);
  if (!tags) return null;
  const isSpecial = (/** @type {number} */ token) => tokenizer.specials.has(token);
  const texts = prompt
    .slice(-MAX_TAG_TOKENS)
    .map((id) => (isSpecial(id) ? tokenizer.text(id) : tokenizer.decode([id])));
  const tail = texts.join("").trimEnd();
  if (tail.endsWith(tags.end)) return null;
  const isOpen = (tail.endsWith(tags.label) ? tail.slice(0, tail.length - tags.label.length) : tail)
    .trimEnd()
    .endsWith(tags.begin);
  if (enabled === false && !template?.includes("enable_thinking")) {
    prompt.push(...tokenizer.encode(`${isOpen ? "" : tags.begin}\n${tags.end}${tags.separator}`));
    return null;
  }
  return new ReasoningSplitter(tags, tokenizer.id(tags.begin), tokenizer.id(tags.end), isOpen, constrained);
}

/** Finds where a thought begins and ends: by the tokens of its tags, or in the text if the tags have none. */
export class ReasoningSplitter {
  #tags;
  #end;
  #held = ""; // at the start: what may become the tag; in the thought: white space, or its label
  #hasText = false;
  #trimming = false; // white space before the answer
  numTokens = 0; // of the thought

  /** @param {typeof TAGS[0]} tags @param {number | undefined} beginId @param {number | undefined} endId
   * @param {boolean} isOpen @param {boolean} [constrained] */
  constructor(tags, beginId, endId, isOpen, constrained = false) {
    this.#tags = { ...tags };
    this.beginId = beginId;
    this.endId = endId;
    /** @type {"start" | "thought" | "answer"} */
    this.state = isOpen ? "thought" : "start";
    // The constraint begins after the token of a tag: a tag without a token begins no thought.
    if (constrained && (endId === undefined || beginId === undefined)) this.state = "answer";
    this.#end = new StopStringBuffer(endId === undefined ? [tags.end] : []);
  }

  /** Return whether a token is a tag here. A tag has no text. @param {number} token */
  isTag(token) {
    if (this.state === "start") return token === this.beginId;
    return this.state === "thought" && (token === this.endId || (token === this.beginId && !this.#hasText));
  }

  /** Add a token and the text that it completes. @param {number} token @param {string} text */
  push(token, text) {
    if (this.state !== "answer") this.numTokens++;
    if (this.state === "thought") return this.#thought(token, text);
    if (this.state === "answer") return { reasoning: "", text: this.#answer(text) };
    if (this.isTag(token)) {
      [this.state, this.#held] = ["thought", ""];
      return { reasoning: "", text: "" };
    }
    this.#held += text;
    const begin = this.beginId === undefined ? this.#tags.begin : "";
    const head = this.#held.trimStart();
    if (begin && head.startsWith(begin)) {
      [this.state, this.#held] = ["thought", ""];
      return this.#thought(token, head.slice(begin.length));
    }
    if (begin.startsWith(head)) return { reasoning: "", text: "" };
    [this.state, this.numTokens] = ["answer", 0];
    return { reasoning: "", text: this.#held };
  }

  /** Add the last text; return all that is held back. @param {string} text */
  flush(text) {
    if (this.state === "start") return { reasoning: "", text: this.#held + text };
    if (this.state === "answer") return { reasoning: "", text: this.#answer(text) };
    return { reasoning: this.#clean(this.#end.flush(text)) + this.#rest(), text: "" };
  }

  /** @param {number} token @param {string} text */
  #thought(token, text) {
    const reasoning = this.#clean(this.#end.push(text));
    if (token !== this.endId && !this.#end.found) return { reasoning, text: "" };
    [this.state, this.#trimming] = ["answer", true];
    const after = this.#end.held.slice(this.#tags.end.length);
    return { reasoning: reasoning + this.#rest(), text: this.#answer(after) };
  }

  /** @param {string} text */
  #answer(text) {
    if (!this.#trimming) return text;
    const answer = text.trimStart();
    this.#trimming = !answer;
    return answer;
  }

  /** Return what a text adds to the reasoning, without white space around it and its label. @param {string} text */
  #clean(text) {
    this.#held += text;
    if (!this.#hasText) {
      const { label } = this.#tags;
      this.#held = this.#held.trimStart();
      if (label && this.#held.startsWith(`${label}\n`)) {
        this.#held = this.#held.slice(label.length).trimStart();
        this.#tags.label = "";
      }
      if (this.#tags.label.startsWith(this.#held.trimEnd())) return "";
      this.#hasText = true;
    }
    const out = this.#held.trimEnd();
    this.#held = this.#held.slice(out.length);
    return out;
  }

  #rest() {
    const rest = this.#held.trim();
    this.#held = "";
    return rest === this.#tags.label ? "" : rest;
  }
}
