// Which tokens may come next in a text that an automaton follows.
import { WebpteError } from "../errors.js";

// Those who follow a schema need both.
export { automatonOf } from "./schema.js";

/** @typedef {import("./schema_items.js").State} State */
/** @typedef {import("./schema_items.js").Automaton} Automaton */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

/** All tokens by their bytes: a tree, each node before those below it. */
export class Vocabulary {
  /** @type {string[]} bytes of each token, a character for each; "" for those that are no text */
  texts;
  #byte;
  #depth;
  #behind; // the first node that is not below
  #token; // the last token of a node, or -1
  #twin; // the token before it with the same bytes, or -1

  /** @param {Tokenizer} tokenizer @param {number} size @param {Set<number>} ends */
  constructor(tokenizer, size, ends) {
    this.ends = [...ends].filter((token) => token < size);
    this.texts = Array.from({ length: size }, (_, token) => {
      const bytes = tokenizer.specials.has(token) || ends.has(token) ? null : tokenizer.bytes(token);
      return bytes ? String.fromCharCode(...bytes) : "";
    });
    const order = this.texts.flatMap((text, token) => (text ? [token] : []));
    order.sort((a, b) => (this.texts[a] < this.texts[b] ? -1 : this.texts[a] > this.texts[b] ? 1 : a - b));
    /** @type {number[][]} */
    const [byte, depth, behind, token] = [[], [], [], []];
    this.#twin = new Int32Array(size).fill(-1);
    /** @type {number[]} */
    const path = [];
    let last = "";
    for (const number of order) {
      const text = this.texts[number];
      let alike = 0;
      while (alike < text.length && text[alike] === last[alike]) alike++;
      while (path.length > alike) behind[/** @type {number} */ (path.pop())] = byte.length;
      for (let at = alike; at < text.length; at++) {
        path.push(byte.length);
        byte.push(text.charCodeAt(at));
        depth.push(at);
        behind.push(0);
        token.push(-1);
      }
      const node = path[path.length - 1];
      this.#twin[number] = token[node];
      token[node] = number;
      last = text;
    }
    for (const node of path) behind[node] = byte.length;
    this.#byte = Uint8Array.from(byte);
    this.#depth = Uint16Array.from(depth);
    this.#behind = Int32Array.from(behind);
    this.#token = Int32Array.from(token);
  }

  /** Words of a bit for each token that may come in a state. @param {Automaton} automaton @param {State} state */
  mask(automaton, state) {
    if (state.mask) return state.mask;
    const [bytes, depths, behind, tokens, twins] = [this.#byte, this.#depth, this.#behind, this.#token, this.#twin];
    const words = new Int32Array(Math.ceil(this.texts.length / 32));
    /** @type {State[]} */
    const path = [state];
    for (let node = 0; node < bytes.length; ) {
      const depth = depths[node];
      const above = path[depth];
      const known = above.to[bytes[node]];
      const found = known === undefined ? automaton.step(above, bytes[node]) : known;
      if (found) {
        for (let token = tokens[node]; token >= 0; token = twins[token]) words[token >> 5] |= 1 << (token & 31);
        path[depth + 1] = found;
        node++;
      } else {
        node = behind[node];
      }
    }
    if (state.accepting) for (const token of this.ends) words[token >> 5] |= 1 << (token & 31);
    state.mask = words;
    return words;
  }
}

/** Follows one answer. */
export class Guide {
  #vocabulary;
  #automaton;
  /** @type {State} */
  #state;

  /** @param {Vocabulary} vocabulary @param {Automaton & {start: State}} automaton */
  constructor(vocabulary, automaton) {
    this.#vocabulary = vocabulary;
    this.#automaton = automaton;
    this.#state = automaton.start;
  }

  /** Nothing may follow but an end. */
  get ended() {
    return !this.#state.links.length;
  }

  /** A bit for each token that may come next. */
  mask() {
    const mask = this.#vocabulary.mask(this.#automaton, this.#state);
    if (!mask.some((word) => word)) {
      throw new WebpteError("input", "the schema needs text that no token of the vocabulary can begin");
    }
    return mask;
  }

  /** The next token of the answer, which its mask allows. @param {number} token */
  take(token) {
    for (const character of this.#vocabulary.texts[token]) {
      const next = this.#automaton.step(this.#state, character.charCodeAt(0));
      if (!next) throw new WebpteError("input", `token ${token} is not allowed here by the schema`);
      this.#state = next;
    }
  }
}
