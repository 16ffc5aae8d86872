/**
 * The files of a bundle, from the local store or the network, verified by their hash.
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./store.js").Store} Store
 * @typedef {(bytes: number) => void} OnBytes
 * @typedef {(url: URL, options: RequestInit) => Promise<Response>} Fetch
 */
import { throwIfAborted, WebpteError, within } from "./errors.js";
import { sha256 } from "./hash.js";
import { fileURL, isIntact, readManifest } from "./manifest.js";
import { drain, MANIFEST } from "./store.js";

const MAX_ATTEMPTS = 3; // to fetch a file
const RETRY_MS = 200; // before the second attempt, and twice that before the third
const STALL_MS = 60_000; // without a byte, after which a transfer is restarted

export class Files {
  /** @type {Manifest} */ manifest = /** @type {any} */ (null);
  #base;
  #store;
  #onDamaged;
  #fetch;

  /**
   * @param {URL} base of the manifest
   * @param {Store} store
   * @param {(name: string) => void} onDamaged called with the name of a damaged file that is fetched again
   * @param {Fetch} fetch
   */
  constructor(base, store, onDamaged, fetch) {
    this.#base = base;
    this.#store = store;
    this.#onDamaged = onDamaged;
    this.#fetch = fetch;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const name = MANIFEST + (await sha256(new TextEncoder().encode(this.#base.href)));
    let bytes;
    try {
      bytes = await this.#fetchVerified("manifest.json", this.#base, null, isIntact, "no-cache", signal);
    } catch (error) {
      const stored = error instanceof WebpteError && error.code === "network" ? await this.#store.get(name) : null;
      if (!stored || !(await isIntact(stored))) throw error; // without a network, the manifest of the last visit is used
      bytes = stored;
    }
    this.manifest = readManifest(bytes);
    await this.#store.adopt(name, bytes);
    return this.manifest;
  }

  /**
   * @param {string} sha
   * @param {{
   *   signal?: AbortSignal | null, into?: Uint8Array<ArrayBuffer>, onBytes?: OnBytes, onCached?: OnBytes
   * }} [options]  into: the caller's memory, large enough
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  async bytes(sha, { signal, into, onBytes, onCached } = {}) {
    throwIfAborted(signal);
    const entry = Object.hasOwn(this.manifest.files, sha) && this.manifest.files[sha];
    if (!entry) throw new WebpteError("damaged", `manifest.json does not list the file ${sha}.`);
    /** @param {Uint8Array<ArrayBuffer>} bytes */
    const isValid = async (bytes) => bytes.length === entry.bytes && (await sha256(bytes)) === sha;
    const memory = into?.subarray(0, entry.bytes) ?? new Uint8Array(entry.bytes);
    const stored = await this.#store.get(sha, memory);
    if (stored) {
      if (await isValid(stored)) {
        onCached?.(stored.length);
        return stored;
      }
      this.#onDamaged(`${entry.path} in the local store`);
      await this.#store.delete(sha);
    }
    const url = fileURL(entry.path, this.#base);
    const mode = this.#store.persistent ? "no-store" : "default"; // the visitor's disk needs one copy only
    const bytes = await this.#fetchVerified(entry.path, url, memory, isValid, mode, signal, onBytes);
    throwIfAborted(signal);
    await this.#store.put(sha, bytes);
    return bytes;
  }

  /**
   * @param {string} sha
   * @param {AbortSignal | null} [signal]
   */
  async text(sha, signal) {
    return new TextDecoder().decode(await this.bytes(sha, { signal }));
  }

  /**
   * Return a file from the network. A damaged file is fetched once more, without any cache.
   * @param {string} name
   * @param {URL} url
   * @param {Uint8Array<ArrayBuffer> | null} into
   * @param {(bytes: Uint8Array<ArrayBuffer>) => Promise<boolean>} isValid
   * @param {RequestCache} cache
   * @param {AbortSignal | null} [signal]
   * @param {OnBytes} [onBytes]
   */
  async #fetchVerified(name, url, into, isValid, cache, signal, onBytes) {
    const first = await download(this.#fetch, name, url, into, cache, signal, onBytes);
    if (await isValid(first)) return first;
    this.#onDamaged(name);
    onBytes?.(-first.length);
    const second = await download(this.#fetch, name, url, into, "reload", signal, onBytes);
    if (await isValid(second)) return second;
    throw new WebpteError(
      "damaged",
      `${name} is damaged: its SHA-256 did not match in two downloads. Upload the bundle again.`,
    );
  }
}

/**
 * @param {Fetch} fetch
 * @param {string} name
 * @param {URL} url
 * @param {Uint8Array<ArrayBuffer> | null} into memory of the expected size
 * @param {RequestCache} cache
 * @param {AbortSignal | null} [signal]
 * @param {OnBytes} [onBytes]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function download(fetch, name, url, into, cache, signal, onBytes) {
  for (let attempt = 1; ; attempt++) {
    let received = 0;
    /** @type {OnBytes} */
    const count = (bytes) => {
      received += bytes;
      onBytes?.(bytes);
    };
    const stop = new AbortController();
    try {
      const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
      const { ok, status, statusText, body } = await within(fetch(url, { signal: either, cache }), STALL_MS);
      if (!ok) throw new WebpteError("network", `${name}: the server responded with ${status} ${statusText}`);
      return body ? await drain(body, STALL_MS, into, count) : new Uint8Array(0);
    } catch (error) {
      stop.abort(); // end the rest of the transfer
      throwIfAborted(signal);
      onBytes?.(-received);
      if (error instanceof WebpteError) throw error;
      if (attempt === MAX_ATTEMPTS)
        throw new WebpteError("network", `${name} cannot be fetched: ${error}`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS * attempt));
    }
  }
}
