/**
 * The files of a bundle: from the local store or the network, and never believed before their hash is right.
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./store.js").Store} Store
 * @typedef {(bytes: number) => void} OnBytes
 * @typedef {(url: URL, options: RequestInit) => Promise<Response>} Fetch
 */
import { throwIfAborted, WebpteError, within } from "./errors.js";
import { sha256 } from "./hash.js";
import { isWhole, readManifest } from "./manifest.js";
import { drain, MANIFEST } from "./store.js";

const TRIES = 3; // of a file whose transfer breaks off
const PAUSE = 200; // milliseconds before the second one, and twice that before the third
const PATIENCE = 60_000; // milliseconds without a byte, after which a transfer counts as broken off

export class Files {
  /** @type {Manifest} */ manifest = /** @type {any} */ (null);
  #base;
  #store;
  #refused;
  #fetch;

  /**
   * @param {URL} base of the manifest
   * @param {Store} store
   * @param {(name: string) => void} refused is told what was damaged and is fetched again
   * @param {Fetch} fetch
   */
  constructor(base, store, refused, fetch) {
    this.#base = base;
    this.#store = store;
    this.#refused = refused;
    this.#fetch = fetch;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const name = MANIFEST + (await sha256(new TextEncoder().encode(this.#base.href)));
    let bytes;
    try {
      bytes = await this.#fetched("manifest.json", this.#base, null, isWhole, "no-cache", signal);
    } catch (error) {
      const kept = error instanceof WebpteError && error.code === "network" ? await this.#store.get(name) : null;
      if (!kept || !(await isWhole(kept))) throw error; // without a network, the last visit's will do
      bytes = kept;
    }
    this.manifest = readManifest(bytes);
    await this.#store.adopt(name, bytes);
    return this.manifest;
  }

  /**
   * @param {string} sha
   * @param {{
   *   signal?: AbortSignal | null, into?: Uint8Array<ArrayBuffer>, onBytes?: OnBytes, onCached?: OnBytes
   * }} [options]  into: memory that is the caller's, and large enough
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  async bytes(sha, { signal, into, onBytes, onCached } = {}) {
    throwIfAborted(signal);
    const entry = this.manifest.files[sha];
    if (!entry) throw new WebpteError("damaged", `The bundle's manifest names no file ${sha}.`);
    /** @param {Uint8Array<ArrayBuffer>} bytes */
    const whole = async (bytes) => bytes.length === entry.bytes && (await sha256(bytes)) === sha;
    const memory = into?.subarray(0, entry.bytes) ?? new Uint8Array(entry.bytes);
    const kept = await this.#store.get(sha, memory);
    if (kept) {
      if (await whole(kept)) {
        onCached?.(kept.length);
        return kept;
      }
      this.#refused(`${entry.path} in the local store`);
      await this.#store.delete(sha);
    }
    const url = new URL(entry.path, this.#base);
    const mode = this.#store.lasting ? "no-store" : "default"; // one copy on the visitor's disk is enough
    const bytes = await this.#fetched(entry.path, url, memory, whole, mode, signal, onBytes);
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
   * A file from the network. One that is damaged is fetched once more, past every cache.
   * @param {string} name
   * @param {URL} url
   * @param {Uint8Array<ArrayBuffer> | null} into
   * @param {(bytes: Uint8Array<ArrayBuffer>) => Promise<boolean>} whole
   * @param {RequestCache} cache
   * @param {AbortSignal | null} [signal]
   * @param {OnBytes} [onBytes]
   */
  async #fetched(name, url, into, whole, cache, signal, onBytes) {
    const first = await download(this.#fetch, name, url, into, cache, signal, onBytes);
    if (await whole(first)) return first;
    this.#refused(name);
    onBytes?.(-first.length);
    const second = await download(this.#fetch, name, url, into, "reload", signal, onBytes);
    if (await whole(second)) return second;
    throw new WebpteError(
      "damaged",
      `${name} is damaged: twice its contents did not match their SHA-256. Upload the bundle again.`,
    );
  }
}

/**
 * @param {Fetch} fetch
 * @param {string} name
 * @param {URL} url
 * @param {Uint8Array<ArrayBuffer> | null} into memory of the size that it should have
 * @param {RequestCache} cache
 * @param {AbortSignal | null} [signal]
 * @param {OnBytes} [onBytes]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function download(fetch, name, url, into, cache, signal, onBytes) {
  for (let attempt = 1; ; attempt++) {
    let taken = 0;
    /** @type {OnBytes} */
    const count = (bytes) => {
      taken += bytes;
      onBytes?.(bytes);
    };
    const stop = new AbortController();
    try {
      const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
      const { ok, status, statusText, body } = await within(fetch(url, { signal: either, cache }), PATIENCE);
      if (!ok) throw new WebpteError("network", `${name}: the server answers ${status} ${statusText}`);
      return body ? await drain(body, PATIENCE, into, count) : new Uint8Array(0);
    } catch (error) {
      stop.abort(); // whatever is left of it
      throwIfAborted(signal);
      onBytes?.(-taken);
      if (error instanceof WebpteError) throw error;
      if (attempt === TRIES) throw new WebpteError("network", `${name} cannot be fetched: ${error}`, { cause: error });
      await new Promise((resolve) => setTimeout(resolve, PAUSE * attempt));
    }
  }
}
