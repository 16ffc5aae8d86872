import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { drain, noStore, openStore } from "../src/store.js";

const text = (string) => new TextEncoder().encode(string);
const streamOf = (...pieces) =>
  new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(text(piece));
      controller.close();
    },
  });
const bytesOf = (bytes) => new Blob([bytes]).stream();

/** A folder of the origin-private file system, in memory. */
class FakeFolder {
  files = new Map();
  full = false;

  async getFileHandle(name, { create = false } = {}) {
    if (!create && !this.files.has(name)) throw new DOMException("not there", "NotFoundError");
    return {
      getFile: async () => new Blob([this.files.get(name)]),
      createWritable: async () => {
        let written = new Uint8Array(0);
        return {
          write: async (bytes) => {
            if (this.full) throw new DOMException("full", "QuotaExceededError");
            written = bytes.slice();
          },
          close: async () => void this.files.set(name, written),
        };
      },
    };
  }

  async removeEntry(name) {
    if (!this.files.delete(name)) throw new DOMException("not there", "NotFoundError");
  }

  async *keys() {
    yield* this.files.keys();
  }
}

function provide(folder) {
  const storage = { getDirectory: async () => ({ getDirectoryHandle: async () => folder }) };
  Object.defineProperty(globalThis, "navigator", { value: { storage }, configurable: true });
}

const before = ["navigator", "caches"].map(
  (name) => /** @type {const} */ ([name, Object.getOwnPropertyDescriptor(globalThis, name)]),
);
afterEach(() => {
  for (const [name, descriptor] of before) {
    delete globalThis[name];
    if (descriptor) Object.defineProperty(globalThis, name, descriptor);
  }
});

test("files stay in the folder from visit to visit", async () => {
  provide(new FakeFolder());
  const store = await openStore();
  assert.equal(store.persistent, true);
  assert.equal(await store.get("a"), null);
  await store.put("a", text("hello"));
  const later = await openStore();
  assert.deepEqual(await later.get("a"), text("hello"));
  const into = new Uint8Array(8);
  assert.equal((await later.get("a", into)).buffer, into.buffer);
  await later.delete("a");
  await later.delete("a"); // what is not there is not an error
  assert.equal(await later.get("a"), null);
});

test("a full disk does not fail a load, and the store stops calling itself persistent", async () => {
  const folder = new FakeFolder();
  provide(folder);
  const store = await openStore();
  folder.full = true;
  await store.put("a", text("hello"));
  assert.equal(store.persistent, false);
  assert.equal(await store.get("a"), null);
});

test("a new manifest removes the files that no manifest names any more", async () => {
  const folder = new FakeFolder();
  provide(folder);
  const store = await openStore();
  const manifest = (...names) => text(JSON.stringify({ files: Object.fromEntries(names.map((name) => [name, {}])) }));
  for (const name of ["old", "shared", "other", "stray"]) await store.put(name, text(name));
  await store.adopt("manifest-b", manifest("other"));
  assert.deepEqual([...folder.files.keys()].sort(), ["manifest-b", "other"]);
  for (const name of ["old", "shared"]) await store.put(name, text(name));
  await store.adopt("manifest-a", manifest("old", "shared"));
  await store.adopt("manifest-a", manifest("shared", "new"));
  assert.deepEqual([...folder.files.keys()].sort(), ["manifest-a", "manifest-b", "other", "shared"]);
});

test("a damaged manifest in the store protects nothing and breaks nothing", async () => {
  const folder = new FakeFolder();
  provide(folder);
  const store = await openStore();
  folder.files.set("manifest-x", text("{"));
  folder.files.set("a", text("a"));
  await store.adopt("manifest-y", text('{"files":{}}'));
  assert.equal(folder.files.has("a"), false);
});

test("without a folder the Cache API serves, and without both nothing is kept", async () => {
  const entries = new Map();
  globalThis.caches = /** @type {any} */ ({
    open: async () => ({
      match: async (url) => entries.get(url)?.clone(),
      put: async (url, response) => void entries.set(url, response),
      delete: async (url) => entries.delete(url),
      keys: async () => [...entries.keys()].map((url) => ({ url })),
    }),
  });
  const store = await openStore();
  await store.put("a", text("hello"));
  assert.deepEqual(await store.get("a"), text("hello"));
  assert.deepEqual([...entries.keys()], ["https://webpte.invalid/a"]);
  await store.adopt("manifest-a", text('{"files":{}}'));
  assert.deepEqual([...entries.keys()], ["https://webpte.invalid/manifest-a"]);
  delete globalThis.caches;
  assert.equal(await openStore(), noStore);
  await noStore.put("a", text("hello"));
  assert.equal(await noStore.get("a"), null);
});

test("drain joins the pieces of a stream, byte streams and others", async () => {
  assert.deepEqual(await drain(streamOf("ab", "c", "de"), 1000), text("abcde"));
  for (const stream of [streamOf("ab", "c", "de"), bytesOf(text("abcde"))]) {
    const into = new Uint8Array(5);
    let counted = 0;
    const found = await drain(stream, 1000, into, (bytes) => (counted += bytes));
    assert.deepEqual(found, text("abcde"));
    assert.equal(found.buffer, into.buffer);
    assert.equal(counted, 5);
  }
});

test("drain reads more than one piece of a long byte stream", async () => {
  const long = Uint8Array.from({ length: (1 << 18) * 2 + 17 }, (_, at) => (at * 31) & 255);
  assert.deepEqual(await drain(bytesOf(long), 1000, new Uint8Array(long.length)), long);
});

test("drain takes nothing of what exceeds the memory, and less of what ends early", async () => {
  assert.equal((await drain(streamOf("abc", "def"), 1000, new Uint8Array(5))).length, 0);
  assert.equal((await drain(streamOf("abc"), 1000, new Uint8Array(5))).length, 3);
});

test("drain does not wait for a stream that stalls", async () => {
  const keepAlive = setTimeout(() => {}, 1000);
  let cancelled = false;
  const stalled = new ReadableStream({
    pull: () => new Promise(() => {}),
    cancel: () => {
      cancelled = true;
    },
  });
  await assert.rejects(drain(stalled, 10, new Uint8Array(5)), /stalled/);
  assert.equal(cancelled, true);
  clearTimeout(keepAlive);
});
