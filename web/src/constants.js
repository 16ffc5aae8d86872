/**
 * Constants on a device, shared by all methods that need the same bytes. They are loaded shard by shard, with at most
 * two shards in memory; a shard is dropped as soon as it is written to the device.
 * @typedef {import("./plan.js").BufferSpec} BufferSpec
 * @typedef {import("./plan.js").Constant} Constant
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {{ buffer: GPUBuffer, users: number, filled: Promise<void> }} Entry
 * @typedef {{ offset: number, bytes: number, put: (data: Uint8Array<ArrayBuffer>) => void }} Piece  a range of a shard
 */
import { padded } from "./tensors.js";

const MAX_SHARDS_IN_MEMORY = 2;
const USAGE = 0x80 | 0x4 | 0x8; // storage, copy from, copy to

export class Constants {
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  #device;
  #files;
  #progress;

  /**
   * @param {GPUDevice} device
   * @param {import("./files.js").Files} files
   * @param {import("./progress.js").Progress} progress
   */
  constructor(device, files, progress) {
    this.#device = device;
    this.#files = files;
    this.#progress = progress;
  }

  /**
   * Return the constant buffers of a plan by number, and the constants that the host reads. Start to load them.
   * @param {Plan} plan
   * @param {number[]} hostConstants values
   * @param {AbortSignal} signal
   * @returns {{
   *   keys: string[], buffers: Map<number, GPUBuffer>, host: Map<number, ArrayBuffer>, filled: Promise<unknown>
   * }}  keys: for `release`
   */
  claim(plan, hostConstants, signal) {
    /** @type {Map<string, Piece[]>} by shard */
    const pieces = new Map();
    /** @type {string[]} */
    const keys = [];
    const buffers = new Map();
    const host = new Map();
    /** @type {Entry[]} */
    const added = [];
    /** @type {Promise<void>[]} */
    const pending = [];
    plan.document.buffers.forEach((spec, number) => {
      if (!spec.fill) return;
      const spans = spec.fill.spans.map(([file, ...range]) => [plan.document.files[file].sha256, ...range]);
      const key = JSON.stringify([spec.bytes, spans]);
      let entry = this.#entries.get(key);
      if (entry) {
        pending.push(entry.filled);
      } else {
        const buffer = this.#device.createBuffer({ label: spec.fill.name, size: spec.bytes, usage: USAGE });
        entry = { buffer, users: 0, filled: Promise.resolve() };
        this.#entries.set(key, entry);
        added.push(entry);
        this.#addPieces(pieces, plan, spec.fill, (at, data) => this.#write(buffer, at, data));
      }
      entry.users++;
      keys.push(key);
      buffers.set(number, entry.buffer);
    });
    for (const value of hostConstants) {
      const constant = /** @type {Constant} */ (plan.spec(value).constant);
      const data = new Uint8Array(constant.spans.reduce((sum, span) => sum + span[2], 0));
      this.#addPieces(pieces, plan, constant, (at, piece) => data.set(piece, at));
      host.set(value, data.buffer);
    }
    const loaded = this.#load(pieces, signal);
    for (const entry of added) entry.filled = loaded;
    const filled = Promise.all([...pending, loaded]);
    filled.catch(() => {}); // the caller handles the error when it awaits the promise
    return { keys, buffers, host, filled };
  }

  /** @param {Iterable<string>} keys */
  release(keys) {
    for (const key of keys) {
      const entry = this.#entries.get(key);
      if (!entry || --entry.users > 0) continue;
      entry.buffer.destroy();
      this.#entries.delete(key);
    }
  }

  /**
   * @param {Map<string, Piece[]>} pieces
   * @param {Plan} plan
   * @param {Constant} constant
   * @param {(at: number, data: Uint8Array<ArrayBuffer>) => void} put
   */
  #addPieces(pieces, plan, constant, put) {
    let at = 0;
    for (const [file, offset, bytes] of constant.spans) {
      const { sha256 } = plan.document.files[file];
      const begin = at;
      pieces.set(sha256, [...(pieces.get(sha256) ?? []), { offset, bytes, put: (data) => put(begin, data) }]);
      at += bytes;
    }
  }

  /**
   * @param {Map<string, Piece[]>} pieces
   * @param {AbortSignal} signal
   */
  async #load(pieces, signal) {
    const queue = [...pieces];
    const sizes = queue.map(([sha]) => this.#files.manifest.files[sha].bytes);
    this.#progress.weights.total += sizes.reduce((sum, bytes) => sum + bytes, 0);
    const loop = async () => {
      if (!queue.length) return;
      const memory = new Uint8Array(Math.max(...sizes)); // reused for all shards of this loop
      for (let next = queue.shift(); next; next = queue.shift()) await this.#shard(next[0], next[1], memory, signal);
    };
    await Promise.all(Array.from({ length: MAX_SHARDS_IN_MEMORY }, loop));
  }

  /**
   * @param {string} sha
   * @param {Piece[]} pieces
   * @param {Uint8Array<ArrayBuffer>} into
   * @param {AbortSignal} signal
   */
  async #shard(sha, pieces, into, signal) {
    const data = await this.#files.bytes(sha, {
      signal,
      into,
      onBytes: (bytes) => this.#progress.add("weights", bytes),
      onCached: (bytes) => this.#progress.add("weights", bytes, bytes),
    });
    for (const { offset, bytes, put } of pieces) put(data.subarray(offset, offset + bytes));
    this.#device.queue.submit([]); // frees the queue's copies before the next shard is read
    await this.#device.queue.onSubmittedWorkDone();
  }

  /**
   * @param {GPUBuffer} buffer
   * @param {number} at
   * @param {Uint8Array<ArrayBuffer>} data
   */
  #write(buffer, at, data) {
    const even = data.length - (data.length % 4);
    if (even) this.#device.queue.writeBuffer(buffer, at, data, 0, even);
    if (even === data.length) return;
    const rest = new Uint8Array(padded(data.length - even));
    rest.set(data.subarray(even));
    this.#device.queue.writeBuffer(buffer, at + even, rest);
  }
}
