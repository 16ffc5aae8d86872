// Rows of embeddings on the device: the latest outputs of an encoder, which decoder steps read.

import { firstOf, isToken } from "./parts.js";

/** @typedef {() => import("./images/processors.js").EncoderInput[]} Inputs */

export class EmbeddingPool {
  /** By the first id of their tile, the least recently used first. @type {Map<number, number>} */
  #blocks = new Map();
  #numBlocks;
  #rows;
  #encode;

  /**
   * @param {number} numBlocks @param {number} rows of a block
   * @param {(inputs: Inputs, row: number) => Promise<void>} encode runs the encoder, and stores its output at a row
   */
  constructor(numBlocks, rows, encode) {
    this.#numBlocks = numBlocks;
    this.#rows = rows;
    this.#encode = encode;
  }

  /** Record that the device holds nothing any more. */
  invalidate() {
    this.#blocks.clear();
  }

  /**
   * Encode what the first ids need, at most `maxEncoded` tiles. Return how many of the ids a step can compute.
   * @param {number[]} ids @param {Map<number, Inputs>} inputs by the first id of a tile @param {number} maxEncoded
   */
  async hold(ids, inputs, maxEncoded) {
    const used = new Set();
    for (const [at, id] of ids.entries()) {
      const tile = isToken(id) ? null : firstOf(id);
      if (tile === null || used.has(tile)) continue;
      let block = this.#blocks.get(tile);
      if (block === undefined) {
        block = maxEncoded-- > 0 ? this.#freeBlock(used) : undefined;
        if (block === undefined) return at;
        await this.#encode(/** @type {Inputs} */ (inputs.get(tile)), block * this.#rows);
      }
      this.#blocks.delete(tile); // it becomes the most recently used
      this.#blocks.set(tile, block);
      used.add(tile);
    }
    return ids.length;
  }

  /** Return a block that no tile in use has. @param {Set<number>} used */
  #freeBlock(used) {
    const taken = new Set(this.#blocks.values());
    for (let block = 0; block < this.#numBlocks; block++) if (!taken.has(block)) return block;
    const oldest = [...this.#blocks.keys()].find((tile) => !used.has(tile));
    if (oldest === undefined) return undefined;
    const block = this.#blocks.get(oldest);
    this.#blocks.delete(oldest);
    return block;
  }

  /** Return the token that reads a row which is held. @param {number} id */
  token(id) {
    const first = firstOf(id);
    return -1 - (this.#blocks.get(first) ?? 0) * this.#rows - (id - first);
  }
}
