/**
 * Where files stay from visit to visit: the origin-private file system, the Cache API where that is missing, or
 * nowhere. A store never makes a load fail or wait for ever: what it cannot keep or give is fetched again.
 * @typedef {{
 *   lasting: boolean,
 *   get(name: string, into?: Uint8Array<ArrayBuffer> | null): Promise<Uint8Array<ArrayBuffer> | null>,
 *   put(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 *   delete(name: string): Promise<void>,
 *   adopt(manifest: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 * }} Store  names are of letters, digits and hyphens
 * @typedef {{
 *   read(name: string): Promise<ReadableStream<Uint8Array> | null>,
 *   write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>,
 *   remove(name: string): Promise<unknown>, names(): Promise<string[]>
 * }} Shelf
 */
import { within } from "./errors.js";

const PIECE = 1 << 18; // bytes that are read at once
// Milliseconds for each thing that is read or written. Chromium can forget to tell that a file that is being read was
// replaced or removed meanwhile, as by another tab.
const PATIENCE = 5000;
export const MANIFEST = "manifest-"; // begins the names of those

/** @type {Store} keeps nothing */
export const nowhere = {
  lasting: false,
  get: async () => null,
  put: async () => {},
  delete: async () => {},
  adopt: async () => {},
};

/** @returns {Promise<Store>} */
export async function openStore() {
  for (const open of [openFolder, openCache]) {
    try {
      return new ShelfStore(await open());
    } catch {
      // It is missing, or private windows may not use it.
    }
  }
  return nowhere;
}

/** @implements {Store} */
class ShelfStore {
  lasting = true;
  #shelf;

  /** @param {Shelf} shelf */
  constructor(shelf) {
    this.#shelf = shelf;
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer> | null} [into] */
  async get(name, into) {
    try {
      const stream = await within(this.#shelf.read(name), PATIENCE);
      return stream && (await drain(stream, PATIENCE, into));
    } catch {
      return null;
    }
  }

  /** @param {string} name @param {Uint8Array<ArrayBuffer>} bytes */
  async put(name, bytes) {
    try {
      await within(this.#shelf.write(name, bytes), PATIENCE);
    } catch {
      this.lasting = false; // most likely the disk is full
    }
  }

  /** @param {string} name */
  async delete(name) {
    await this.#shelf.remove(name).catch(() => {});
  }

  /**
   * Keep a manifest instead of the last one from the same place, and no files but those that some manifest names.
   * @param {string} manifest
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  async adopt(manifest, bytes) {
    await this.put(manifest, bytes);
    const names = await within(this.#shelf.names(), PATIENCE).catch(() => []);
    const wanted = new Set();
    for (const name of names.filter((each) => each.startsWith(MANIFEST))) {
      for (const file of filesOf(await this.get(name))) wanted.add(file);
    }
    for (const name of names) {
      if (!name.startsWith(MANIFEST) && !wanted.has(name)) await this.delete(name);
    }
  }
}

/**
 * All of a stream. What goes beyond the memory that is given is not taken: it is damaged anyway.
 * @param {ReadableStream<Uint8Array>} stream
 * @param {number} patience in milliseconds, for each piece
 * @param {Uint8Array<ArrayBuffer> | null} [into] memory to use again, as engines are slow to give back what is large
 * @param {(bytes: number) => void} [onBytes]
 */
export async function drain(stream, patience, into, onBytes) {
  if (!into) return new Uint8Array(await within(new Response(/** @type {any} */ (stream)).arrayBuffer(), patience));
  let at = 0;
  const { read, cancel } = reading(stream);
  try {
    for (;;) {
      const { done, value } = await within(read(), patience);
      if (done || !value) return into.subarray(0, at);
      if (at + value.length > into.length) return new Uint8Array(0);
      into.set(value, at);
      at += value.length;
      onBytes?.(value.length);
    }
  } finally {
    cancel(); // what is left of it
  }
}

/**
 * The pieces of a stream, if it lets us all in the same memory.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {{ read: () => Promise<{ done: boolean, value?: Uint8Array }>, cancel: () => void }}
 */
function reading(stream) {
  /** @param {ReadableStreamBYOBReader | ReadableStreamDefaultReader} reader */
  const cancelling = (reader) => () => void reader.cancel().catch(() => {}); // nobody waits for it: it may never end
  try {
    const reader = stream.getReader({ mode: "byob" });
    let memory = new ArrayBuffer(PIECE);
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
    return []; // damaged: its files are fetched again with it
  }
}

/** @returns {Promise<Shelf>} */
async function openFolder() {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle("webpte", { create: true });
  return {
    read: async (name) => (await (await folder.getFileHandle(name)).getFile()).stream(),
    write: async (name, bytes) => writeFile(await folder.getFileHandle(name, { create: true }), bytes),
    remove: (name) => folder.removeEntry(name),
    names: () => collected(folder.keys()),
  };
}

/** @param {AsyncIterable<string>} names */
async function collected(names) {
  const list = [];
  for await (const name of names) list.push(name);
  return list;
}

/** @param {FileSystemFileHandle} file @param {Uint8Array<ArrayBuffer>} bytes */
async function writeFile(file, bytes) {
  if (file.createWritable) {
    const stream = await file.createWritable(); // nothing of it shows before it is closed
    await stream.write(bytes);
    await stream.close();
    return;
  }
  const access = await /** @type {any} */ (file).createSyncAccessHandle(); // Safari before 26, in workers
  access.truncate(0);
  access.write(bytes);
  access.close();
}

/** @returns {Promise<Shelf>} */
async function openCache() {
  const cache = await caches.open("webpte");
  const base = "https://webpte.invalid/"; // entries are for us, not for the pages of any site
  return {
    read: async (name) => (await cache.match(base + name))?.body ?? null,
    write: (name, bytes) => cache.put(base + name, new Response(bytes)),
    remove: (name) => cache.delete(base + name),
    names: async () => (await cache.keys()).map(({ url }) => url.slice(base.length)),
  };
}
