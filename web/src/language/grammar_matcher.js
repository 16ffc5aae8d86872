// Constrained generation: the tokens that an automaton allows next, as masks over the vocabulary.
import { WebpteError } from "../errors.js";

// The chat module imports all that it needs for schemas from here, at once.
export { compileSchema } from "./schema.js";

/** @typedef {import("./automaton.js").State} State */
/** @typedef {import("./automaton.js").Automaton} Automaton */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

/** All tokens as a prefix tree over their bytes, in preorder. */
export class Vocabulary {
  /** @type {string[]} the bytes of each token as characters; "" for special tokens */
  texts;
  #byte;
  #depth;
  #subtreeEnd; // the first node after the subtree of a node
  #token; // the last token of a node, or -1
  #sameBytes; // the previous token with the same bytes, or -1

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
    const [byte, depth, subtreeEnd, token] = [[], [], [], []];
    this.#sameBytes = new Int32Array(size).fill(-1);
    /** @type {number[]} */
    const path = [];
    let last = "";
    for (const number of order) {
      const text = this.texts[number];
      let common = 0;
      while (common < text.length && text[common] === last[common]) common++;
      while (path.length > common) subtreeEnd[/** @type {number} */ (path.pop())] = byte.length;
      for (let at = common; at < text.length; at++) {
        path.push(byte.length);
        byte.push(text.charCodeAt(at));
        depth.push(at);
        subtreeEnd.push(0);
        token.push(-1);
      }
      const node = path[path.length - 1];
      this.#sameBytes[number] = token[node];
      token[node] = number;
      last = text;
    }
    for (const node of path) subtreeEnd[node] = byte.length;
    this.#byte = Uint8Array.from(byte);
    this.#depth = Uint16Array.from(depth);
    this.#subtreeEnd = Int32Array.from(subtreeEnd);
    this.#token = Int32Array.from(token);
  }

  /** Return a bit for each token that may come in a state, 32 to a word, the lowest first. @param {Automaton} automaton @param {State} state */
  mask(automaton, state) {
    if (state.mask) return state.mask;
    const [bytes, depths, tokens] = [this.#byte, this.#depth, this.#token];
    const words = new Int32Array(Math.ceil(this.texts.length / 32));
    /** @type {State[]} */
    const path = [state];
    for (let node = 0; node < bytes.length; ) {
      const depth = depths[node];
      const parent = path[depth];
      const cached = parent.to[bytes[node]];
      const next = cached === undefined ? automaton.step(parent, bytes[node]) : cached;
      if (next) {
        for (let token = tokens[node]; token >= 0; token = this.#sameBytes[token])
          words[token >> 5] |= 1 << (token & 31);
        path[depth + 1] = next;
        node++;
      } else {
        node = this.#subtreeEnd[node];
      }
    }
    if (state.accepting) for (const token of this.ends) words[token >> 5] |= 1 << (token & 31);
    state.mask = words;
    return words;
  }
}

/** The state of one generation in its grammar: the allowed tokens, and whether it is complete. */
export class GrammarMatcher {
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

  /** Whether only an end-of-text token may follow. */
  get ended() {
    return !this.#state.links.length;
  }

  /** Return a bit for each token that may come next. */
  mask() {
    const mask = this.#vocabulary.mask(this.#automaton, this.#state);
    if (!mask.some((word) => word)) {
      throw new WebpteError("input", "json_schema: no token of the vocabulary begins the text that must come next.");
    }
    return mask;
  }

  /** Advance by the next token of the text. @param {number} token */
  take(token) {
    for (const character of this.#vocabulary.texts[token]) {
      const next = this.#automaton.step(this.#state, character.charCodeAt(0));
      if (!next) throw new WebpteError("input", `token ${token} is not allowed next by json_schema`);
      this.#state = next;
    }
  }
}
