import assert from "node:assert/strict";
import { test } from "node:test";
import { Files } from "../src/files.js";
import { inspect } from "../src/program.js";
import { bundle, FakeServer, FakeStore, manifestBytes } from "./support/bundle.js";
import { withGPU } from "./support/gpu.js";

const BASE = new URL("https://a.example/site/manifest.json");

async function opened(texts = { "a.bin": "hello" }, arrange = (_bodies) => {}) {
  const { bodies, shas } = await bundle(texts);
  arrange(bodies);
  const [server, store, damaged] = [new FakeServer(bodies), new FakeStore(), []];
  const files = new Files(BASE, store, (name) => damaged.push(name), server.fetch);
  await files.open();
  server.asked.length = 0;
  return { files, server, store, damaged, shas };
}

test("a file is fetched once and then read from the store", async () => {
  const { files, server, shas } = await opened();
  const cached = [];
  assert.equal(await files.text(shas[0]), "hello");
  await files.bytes(shas[0], { onCached: (bytes) => cached.push(bytes) });
  assert.deepEqual(server.asked, [["/site/a.bin", "no-store"]]);
  assert.deepEqual(cached, [5]);
});

test("without a persistent store the browser's cache may keep files", async () => {
  const { files, server, store, shas } = await opened();
  store.persistent = false;
  await files.bytes(shas[0]);
  assert.deepEqual(server.asked, [["/site/a.bin", "default"]]);
});

test("a damaged file in the store is replaced", async () => {
  const { files, server, store, damaged, shas } = await opened();
  store.kept.set(shas[0], new TextEncoder().encode("hellx"));
  assert.equal(await files.text(shas[0]), "hello");
  assert.deepEqual(damaged, ["a.bin in the local store"]);
  assert.equal(server.asked.length, 1);
  assert.equal(new TextDecoder().decode(store.kept.get(shas[0])), "hello");
});

test("a damaged transfer is fetched again past every cache, and progress counts it once", async () => {
  const { files, server, damaged, shas } = await opened({ "a.bin": "hello" }, (bodies) => {
    bodies["/site/a.bin"] = ["hellx", "hello"];
  });
  let sum = 0;
  await files.bytes(shas[0], { onBytes: (bytes) => (sum += bytes) });
  assert.deepEqual(
    server.asked.map(([, cache]) => cache),
    ["no-store", "reload"],
  );
  assert.deepEqual(damaged, ["a.bin"]);
  assert.equal(sum, 5);
});

test("a file that is damaged twice fails and is not kept", async () => {
  for (const wrong of ["hellx", "hell", "hello, longer than the manifest says"]) {
    const { files, store, shas } = await opened({ "a.bin": "hello" }, (bodies) => (bodies["/site/a.bin"] = wrong));
    await assert.rejects(files.bytes(shas[0]), { code: "damaged", message: /a\.bin/ });
    assert.equal(store.kept.has(shas[0]), false);
  }
});

test("a broken transfer is tried three times", async () => {
  const broken = new TypeError("connection reset");
  const twice = await opened({ "a.bin": "hello" }, (bodies) => (bodies["/site/a.bin"] = [broken, broken, "hello"]));
  assert.equal(await twice.files.text(twice.shas[0]), "hello");
  const { files, server, shas } = await opened({ "a.bin": "hello" }, (bodies) => (bodies["/site/a.bin"] = broken));
  await assert.rejects(files.bytes(shas[0]), {
    code: "network",
    message: /a\.bin cannot be fetched.*connection reset/,
  });
  assert.equal(server.asked.length, 3);
});

test("an HTTP error is not tried again", async () => {
  const { files, server, shas } = await opened({ "a.bin": "hello" }, (bodies) => delete bodies["/site/a.bin"]);
  await assert.rejects(files.bytes(shas[0]), { code: "network", message: /404 Not Found/ });
  assert.equal(server.asked.length, 1);
});

test("a stopped load is neither tried again nor kept", async () => {
  const { files, server, store, shas } = await opened();
  const stop = new AbortController();
  const loading = files.bytes(shas[0], { signal: stop.signal, onBytes: () => stop.abort() });
  await assert.rejects(loading, { code: "aborted" });
  assert.equal(server.asked.length, 1);
  assert.equal(store.kept.has(shas[0]), false);
  await assert.rejects(files.bytes(shas[0], { signal: stop.signal }), { code: "aborted" });
  assert.equal(server.asked.length, 1);
});

test("bytes are written into the caller's memory", async () => {
  const { files, shas } = await opened();
  const into = new Uint8Array(64).fill(7);
  const found = await files.bytes(shas[0], { into });
  assert.equal(found.buffer, into.buffer);
  assert.equal(found.length, 5);
  assert.equal(into[5], 7);
});

test("a file that the manifest does not name is damaged", async () => {
  const { files } = await opened();
  await assert.rejects(files.bytes("0".repeat(64)), { code: "damaged", message: /0000/ });
});

test("without a network the last visit's manifest serves", async () => {
  const { store } = await opened();
  const offline = new FakeServer({});
  const files = new Files(BASE, store, () => {}, offline.fetch);
  assert.equal((await files.open()).name, "fake");
  assert.deepEqual(offline.asked, [["/site/manifest.json", "no-cache"]]);
  const elsewhere = new Files(new URL("https://b.example/manifest.json"), store, () => {}, offline.fetch);
  await assert.rejects(elsewhere.open(), { code: "network" });
  store.kept.set(store.adopted[0], new TextEncoder().encode("damaged"));
  await assert.rejects(new Files(BASE, store, () => {}, offline.fetch).open(), { code: "network" });
});

test("a manifest that does not match its own hash is damaged", async () => {
  const bytes = await manifestBytes();
  bytes[bytes.length - 3] ^= 1;
  const files = new Files(BASE, new FakeStore(), () => {}, new FakeServer({ "/site/manifest.json": bytes }).fetch);
  await assert.rejects(files.open(), { code: "damaged" });
});

test("inspect counts the weights that this adapter needs, each file once, and the stored ones", async () => {
  const { bodies, shas, files } = await bundle({ "a.bin": "hello", "b.bin": "hello, world", "c.bin": "f16 weights" });
  const variant = { plan: "p", device: "gpu", limits: {}, min_subgroup_size: 0, cache_slots: null };
  const plain = { ...variant, features: [], weights: [shas[0], shas[1]] };
  const methods = {
    forward: { variants: [{ ...plain, features: ["shader-f16"], weights: [shas[2]] }, plain] },
    encode: { variants: [{ ...plain, weights: [shas[1]] }] },
  };
  bodies["/site/manifest.json"] = await manifestBytes({ name: "Tiny", kind: "language", files, methods });
  const [server, store] = [new FakeServer(bodies), new FakeStore()];
  store.kept.set(shas[1], new Uint8Array(12));
  const adapter = { info: { vendor: "acme" }, features: new Set(), limits: {} };
  await withGPU({ requestAdapter: async () => adapter }, async () => {
    const about = await inspect(BASE, { store, fetch: server.fetch });
    assert.deepEqual(about, { name: "Tiny", kind: "language", bytes: 17, cached: 12 });
  });
  assert.deepEqual(
    server.asked.map(([path]) => path),
    ["/site/manifest.json"],
  );
});
