// The models of tokenizers: they map a piece of text to token ids.
import { WebpteError } from "../../errors.js";
import { refuse } from "./patterns.js";

/** @typedef {{vocabulary: Map<string, number>, encode: (piece: string) => number[]}} Model */
const MAX_CACHED_PIECES = 10_000;
const MAX_CACHED_CHARS = 256; // of a piece
const PAIR = 2 ** 26; // above any token id
const encoder = new TextEncoder();

/** @param {any} json @returns {Model} */
export function model(json) {
  const kinds = /** @type {Record<string, (json: any) => Model>} */ ({
    BPE: bpe,
    WordPiece: wordPiece,
    Unigram: unigram,
    WordLevel: wordLevel,
  });
  const make = kinds[json.type ?? (json.merges ? "BPE" : "WordPiece")];
  const model = make ? make(json) : refuse(`the model ${json.type}`);
  /** @type {Map<string, number[]>} */
  const cache = new Map();
  const { encode } = model;
  model.encode = (piece) => {
    const cached = cache.get(piece);
    if (cached) return cached;
    const ids = encode(piece);
    if (piece.length <= MAX_CACHED_CHARS) {
      if (cache.size >= MAX_CACHED_PIECES) cache.clear();
      cache.set(piece, ids);
    }
    return ids;
  };
  return model;
}

/** @param {string} what @returns {never} */
function unknown(what) {
  throw new WebpteError(
    "input",
    `the tokenizer has no token for ${JSON.stringify(what)}, and none for what is unknown`,
  );
}

/** Return the byte tokens of a text; null if the vocabulary lacks one. @param {Map<string, number>} vocabulary @param {string} text */
function byteTokens(vocabulary, text) {
  const names = Array.from(encoder.encode(text), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const ids = names.map((name) => vocabulary.get(name));
  return ids.includes(undefined) ? null : /** @type {number[]} */ (ids);
}

/** @param {any} json @returns {Model} */
function bpe(json) {
  const vocabulary = new Map(/** @type {[string, number][]} */ (Object.entries(json.vocab)));
  const prefix = json.continuing_subword_prefix ?? "";
  const suffix = json.end_of_word_suffix ?? "";
  if (json.dropout) refuse("dropout");
  /** By the pair of tokens: the rank, and the merged token. @type {Map<number, [number, number]>} */
  const merges = new Map();
  /** @type {(string | [string, string])[]} */ (json.merges).forEach((merge, rank) => {
    const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
    const [a, b, both] = [left, right, left + right.slice(prefix.length)].map((token) => vocabulary.get(token));
    if (a === undefined || b === undefined || both === undefined) {
      throw new WebpteError("damaged", `the tokenizer has a merge of tokens that it lacks: ${merge}`);
    }
    merges.set(a * PAIR + b, [rank, both]);
  });
  const unknownId = json.unk_token == null ? undefined : vocabulary.get(json.unk_token);

  /** Return the tokens of the characters, before merges. @param {string} piece */
  const characters = (piece) => {
    /** @type {number[]} */
    const ids = [];
    let pending = false;
    const all = [...piece];
    all.forEach((character, at) => {
      const text = (at ? prefix : "") + character + (at === all.length - 1 ? suffix : "");
      const id = vocabulary.get(text);
      if (id !== undefined) {
        if (pending) ids.push(/** @type {number} */ (unknownId));
        pending = false;
        ids.push(id);
        return;
      }
      const bytes = json.byte_fallback ? byteTokens(vocabulary, text) : null;
      if (bytes) ids.push(...bytes);
      else if (json.unk_token != null) {
        if (unknownId === undefined) unknown(character);
        if (pending && !json.fuse_unk) ids.push(unknownId);
        pending = true;
      }
    });
    if (pending) ids.push(/** @type {number} */ (unknownId));
    return ids;
  };

  return {
    vocabulary,
    encode(piece) {
      const id = json.ignore_merges ? vocabulary.get(piece) : undefined;
      return id === undefined ? merge(characters(piece), merges) : [id];
    },
  };
}

/** Merge the pair of the lowest rank, the leftmost of equal ranks, until there is none. @param {number[]} tokens @param {Map<number, [number, number]>} merges */
function merge(tokens, merges) {
  const count = tokens.length;
  const next = Int32Array.from(tokens, (_, at) => (at + 1 < count ? at + 1 : -1));
  const previous = Int32Array.from(tokens, (_, at) => at - 1);
  const heap = new Heap();
  const offer = (/** @type {number} */ at) => {
    const pair = at >= 0 && next[at] >= 0 ? merges.get(tokens[at] * PAIR + tokens[next[at]]) : undefined;
    if (pair) heap.push({ rank: pair[0], at, token: pair[1] });
  };
  for (let at = 0; at < count; at++) offer(at);
  for (let top = heap.pop(); top; top = heap.pop()) {
    const { at, token } = top;
    const right = next[at];
    if (tokens[at] < 0 || right < 0 || merges.get(tokens[at] * PAIR + tokens[right])?.[1] !== token) continue;
    tokens[at] = token;
    tokens[right] = -1;
    next[at] = next[right];
    next[right] = -1;
    if (next[at] >= 0) previous[next[at]] = at;
    offer(previous[at]);
    offer(at);
  }
  return tokens.filter((token) => token >= 0);
}

/** @typedef {{rank: number, at: number, token: number}} Candidate */
class Heap {
  /** @type {Candidate[]} */
  #items = [];

  #less(/** @type {number} */ a, /** @type {number} */ b) {
    const [x, y] = [this.#items[a], this.#items[b]];
    return x.rank < y.rank || (x.rank === y.rank && x.at < y.at);
  }

  #swap(/** @type {number} */ a, /** @type {number} */ b) {
    [this.#items[a], this.#items[b]] = [this.#items[b], this.#items[a]];
  }

  push(/** @type {Candidate} */ item) {
    this.#items.push(item);
    for (let at = this.#items.length - 1; at > 0; ) {
      const up = (at - 1) >> 1;
      if (!this.#less(at, up)) break;
      this.#swap(at, up);
      at = up;
    }
  }

  pop() {
    if (!this.#items.length) return undefined;
    this.#swap(0, this.#items.length - 1);
    const item = this.#items.pop();
    for (let at = 0; ; ) {
      const children = [2 * at + 1, 2 * at + 2].filter((child) => child < this.#items.length);
      const smallest = children.reduce((best, child) => (this.#less(child, best) ? child : best), at);
      if (smallest === at) return item;
      this.#swap(at, smallest);
      at = smallest;
    }
  }
}

/** @param {any} json @returns {Model} */
function wordPiece(json) {
  const vocabulary = new Map(/** @type {[string, number][]} */ (Object.entries(json.vocab)));
  const prefix = json.continuing_subword_prefix ?? "##";
  return {
    vocabulary,
    encode(piece) {
      const all = [...piece];
      const none = () => [vocabulary.get(json.unk_token) ?? unknown(piece)];
      if (all.length > (json.max_input_chars_per_word ?? 100)) return none();
      const ids = [];
      for (let start = 0; start < all.length; ) {
        let end = all.length;
        let id;
        for (; end > start; end--) {
          id = vocabulary.get((start ? prefix : "") + all.slice(start, end).join(""));
          if (id !== undefined) break;
        }
        if (id === undefined) return none();
        ids.push(id);
        start = end;
      }
      return ids;
    },
  };
}

/** @param {any} json @returns {Model} */
function wordLevel(json) {
  const vocabulary = new Map(/** @type {[string, number][]} */ (Object.entries(json.vocab)));
  return { vocabulary, encode: (piece) => [vocabulary.get(piece) ?? vocabulary.get(json.unk_token) ?? unknown(piece)] };
}

/** @param {any} json @returns {Model} */
function unigram(json) {
  const pieces = /** @type {[string, number][]} */ (json.vocab);
  const vocabulary = new Map(pieces.map(([piece], id) => [piece, id]));
  const maxLength = pieces.reduce((max, [piece]) => Math.max(max, piece.length), 0);
  const unknownScore = pieces.reduce((min, [, score]) => Math.min(min, score), Infinity) - 10;
  return {
    vocabulary,
    encode(text) {
      /** The best segmentation up to each position: score, start and id of its last piece. @type {([number, number, number] | undefined)[]} */
      const best = [[0, 0, -1]];
      const offer = (
        /** @type {number} */ from,
        /** @type {number} */ to,
        /** @type {number} */ score,
        /** @type {number} */ id,
      ) => {
        const sum = score + /** @type {number[]} */ (best[from])[0];
        const current = best[to];
        if (!current || sum > current[0]) best[to] = [sum, from, id];
      };
      for (let from = 0; from < text.length; ) {
        const step = /** @type {number} */ (text.codePointAt(from)) > 0xffff ? 2 : 1;
        let single = false;
        for (let to = from + 1; to <= Math.min(text.length, from + maxLength); to++) {
          const id = vocabulary.get(text.slice(from, to));
          if (id === undefined) continue;
          offer(from, to, pieces[id][1], id);
          single ||= to - from === step;
        }
        if (!single) offer(from, from + step, unknownScore, json.unk_id ?? -1);
        from += step;
      }
      /** @type {string[]} */
      const reversed = [];
      let unknownText = "";
      for (let to = text.length; to > 0; ) {
        const [, from, id] = /** @type {number[]} */ (best[to]);
        if (id === (json.unk_id ?? -1)) unknownText = text.slice(from, to) + unknownText;
        else {
          if (unknownText) reversed.push(unknownText);
          unknownText = "";
          reversed.push(text.slice(from, to));
        }
        to = from;
      }
      if (unknownText) reversed.push(unknownText);
      return reversed.reverse().flatMap((each) => {
        const id = vocabulary.get(each);
        if (id !== undefined) return [id];
        return (json.byte_fallback && byteTokens(vocabulary, each)) || [json.unk_id ?? unknown(each)];
      });
    },
  };
}
