/**
 * The local store of files: the origin-private file system, the Cache API if that is missing, or none. Errors and
 * timeouts of a store never fail a load: the file is fetched again.
 * @typedef {{
 *   persistent: boolean,
 *   get(name: string, into?: Uint8Array<ArrayBuffer> | null): Promise<Uint8Array<ArrayBuffer> | null>,
 *   put(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 *   delete(name: string): Promise<void>,
 *   adopt(manifest: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 *   names(): Promise<string[]>,
 * }} Store  names consist of letters, digits and hyphens
 * @typedef {{
 *   read(name: string): Promise<ReadableStream<Uint8Array> | null>,
 *   write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 *   remove(name: string): Promise<unknown>, names(): Promise<string[]>
 * }} Directory
 */
import { within } from "./errors.js";

const CHUNK_BYTES = 1 << 18; // of a read
// For each read or write: in Chromium, the read of a file may never end if another tab replaces or removes the file.
const TIMEOUT_MS = 5000;
export const MANIFEST = "manifest-"; // prefix of names

/** @type {Store} stores nothing */
export const noStore = {
  persistent: false,
  get: async () => null,
  put: async () => {},
  delete: async () => {},
  adopt: async () => {},
  names: async () => [],
};

/** @returns {Promise<Store>} */
export async function openStore() {
  for (const open of [openFolder, openCache]) {
    try {
      return new DirectoryStore(await open());
    } catch {
      // It does not exist, or a private window must not use it.
    }
  }
  return noStore;
}

/** @implements {Store} */
class DirectoryStore {
  persistent = true;
  #directory;

  /** @param {Directory} directory */
  constructor(directory) {
    this.#directory = directory;
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer> | null} [into] */
  async get(name, into) {
    try {
      const stream = await within(this.#directory.read(name), TIMEOUT_MS);
      return stream && (await drain(stream, TIMEOUT_MS, into));
    } catch {
      return null;
    }
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes */
  async put(name, bytes) {
    try {
      await within(this.#directory.write(name, bytes), TIMEOUT_MS);
    } catch {
      this.persistent = false; // most likely the disk is full
    }
  }

  /** @param {string} name */
  async delete(name) {
    await this.#directory.remove(name).catch(() => {});
  }

  /** Return the names of all stored files. */
  names() {
    return within(this.#directory.names(), TIMEOUT_MS).catch(() => []);
  }

  /**
   * Store a manifest in place of the last one from the same address, and remove files that no manifest lists.
   * @param {string} manifest
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  async adopt(manifest, bytes) {
    await this.put(manifest, bytes);
    const names = await this.names();
    const referenced = new Set();
    for (const name of names.filter((each) => each.startsWith(MANIFEST))) {
      for (const file of filesOf(await this.get(name))) referenced.add(file);
    }
    for (const name of names) {
      if (!name.startsWith(MANIFEST) && !referenced.has(name)) await this.delete(name);
    }
  }
}

/**
 * Return the contents of a stream. If they exceed `into`, the file is damaged, and nothing is returned.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {number} timeout in milliseconds, for each read
 * @param {Uint8Array<ArrayBuffer> | null} [into] memory to reuse, because browsers free large buffers late
 * @param {(bytes: number) => void} [onBytes]
 */
export async function drain(stream, timeout, into, onBytes) {
  if (!into) return new Uint8Array(await within(new Response(/** @type {any} */ (stream)).arrayBuffer(), timeout));
  let at = 0;
  const { read, cancel } = openReader(stream);
  try {
    for (;;) {
      const { done, value } = await within(read(), timeout);
      if (done || !value) return into.subarray(0, at);
      if (at + value.length > into.length) return new Uint8Array(0);
      into.set(value, at);
      at += value.length;
      onBytes?.(value.length);
    }
  } finally {
    cancel();
  }
}

/**
 * Open a reader of a stream that reuses one buffer, if the stream supports that.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {{ read: () => Promise<{ done: boolean, value?: Uint8Array }>, cancel: () => void }}
 */
function openReader(stream) {
  /** @param {ReadableStreamBYOBReader | ReadableStreamDefaultReader} reader */
  const cancelling = (reader) => () => void reader.cancel().catch(() => {}); // not awaited, because it may never end
  try {
    const reader = stream.getReader({ mode: "byob" });
    let memory = new ArrayBuffer(CHUNK_BYTES);
    const read = async () => {
      const { done, value } = await reader.read(new Uint8Array(memory));
      if (value) memory = value.buffer;
      return { done, value };
    };
    return { read, cancel: cancelling(reader) };
  } catch {
    const reader = stream.getReader();
    return { read: () => reader.read(), cancel: cancelling(reader) };
  }
}

/** @param {Uint8Array | null} manifest @returns {string[]} */
function filesOf(manifest) {
  try {
    return Object.keys(JSON.parse(new TextDecoder().decode(manifest ?? undefined)).files);
  } catch {
    return []; // a damaged manifest is fetched again, with its files
  }
}

/** @returns {Promise<Directory>} */
async function openFolder() {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle("webpte", { create: true });
  return {
    read: async (name) => (await (await folder.getFileHandle(name)).getFile()).stream(),
    write: async (name, bytes) => writeFile(await folder.getFileHandle(name, { create: true }), bytes),
    remove: (name) => folder.removeEntry(name),
    names: () => toList(folder.keys()),
  };
}

/** @param {AsyncIterable<string>} names */
async function toList(names) {
  const list = [];
  for await (const name of names) list.push(name);
  return list;
}

/** @param {FileSystemFileHandle} file @param {Uint8Array<ArrayBuffer>} bytes */
async function writeFile(file, bytes) {
  if (file.createWritable) {
    const stream = await file.createWritable(); // the file changes when the stream is closed
    await stream.write(bytes);
    await stream.close();
    return;
  }
  const access = await /** @type {any} */ (file).createSyncAccessHandle(); // Safari before 26, in workers
  access.truncate(0);
  access.write(bytes);
  access.close();
}

/** @returns {Promise<Directory>} */
async function openCache() {
  const cache = await caches.open("webpte");
  const base = "https://webpte.invalid/"; // not an address of any site
  return {
    read: async (name) => (await cache.match(base + name))?.body ?? null,
    write: (name, bytes) => cache.put(base + name, new Response(bytes)),
    remove: (name) => cache.delete(base + name),
    names: async () => (await cache.keys()).map(({ url }) => url.slice(base.length)),
  };
}
