// A bundle in memory: its manifest, its files, and a server and a store that hold them.
import { sha256 } from "../../src/hash.js";

/** The bytes of a manifest, with its own hash before the rest. */
export async function manifestBytes(changes = {}) {
  const manifest = { format: "webpte bundle", version: 2, name: "fake", kind: "program", files: {}, methods: {} };
  const body = JSON.stringify({ ...manifest, ...changes }).slice(1);
  const hash = await sha256(new TextEncoder().encode(body));
  return new TextEncoder().encode(`{"sha256":"${hash}",${body}`);
}

/** A store over a Map that remembers what it was asked. */
export class FakeStore {
  kept = new Map();
  persistent = true;
  adopted = [];

  async get(name, into) {
    const bytes = this.kept.get(name);
    if (!bytes || !into) return bytes ?? null;
    into.set(bytes);
    return into.subarray(0, bytes.length);
  }

  async put(name, bytes) {
    this.kept.set(name, bytes.slice());
  }

  async delete(name) {
    this.kept.delete(name);
  }

  async names() {
    return [...this.kept.keys()];
  }

  async adopt(name, bytes) {
    this.adopted.push(name);
    this.kept.set(name, bytes.slice());
  }
}

/** Bodies by path; each may be a list of what the server answers one after the other. */
export class FakeServer {
  asked = [];

  constructor(bodies) {
    this.bodies = bodies;
  }

  fetch = async (url, { cache, signal }) => {
    this.asked.push([url.pathname, cache]);
    signal?.throwIfAborted();
    const answers = this.bodies[url.pathname];
    const answer = Array.isArray(answers) ? (answers.length > 1 ? answers.shift() : answers[0]) : answers;
    if (answer instanceof Error) throw answer;
    if (answer === undefined) return new Response("", { status: 404, statusText: "Not Found" });
    return new Response(answer);
  };
}

/** A bundle of some files, as a server has it. */
export async function bundle(texts) {
  const bodies = {};
  const files = {};
  const shas = [];
  for (const [name, text] of Object.entries(texts)) {
    const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
    const sha = await sha256(bytes);
    files[sha] = { bytes: bytes.length, type: "test", path: name };
    bodies[`/site/${name}`] = bytes;
    shas.push(sha);
  }
  bodies["/site/manifest.json"] = await manifestBytes({ files });
  return { bodies, shas, files };
}
