/**
 * @typedef {{ name: string, kind: string, dtype: string, dims: number[], dynamic: boolean[] }} IoSpec  an input or
 *   output of a method
 * @typedef {{
 *   plan: string, wgsl: string, weights: string[], device: "gpu" | "cpu", limits: Record<string, number>,
 *   features: string[], min_subgroup_size: number, cache_slots: number | null,
 *   bytes: { constant: number, state: number, activation: number }
 * }} Variant
 * @typedef {{ bytes: number, type: string, path: string }} FileEntry
 * @typedef {{
 *   format: string, version: number, webpte: string, name: string,
 *   kind: "language" | "encoder" | "image" | "program" | "check",
 *   files: Record<string, FileEntry>,
 *   methods: Record<string, { inputs: IoSpec[], outputs: IoSpec[], variants: Variant[] }>,
 *   language?: any, encoder?: any, image?: any, check?: any[], shapes?: Record<string, number[][][]>
 * }} Manifest
 */
import { reading, WebpteError } from "./errors.js";
import { sha256 } from "./hash.js";

const FORMAT = "webpte bundle";
const VERSION = 2;
const MAX_FILE_BYTES = 2 ** 28; // of a plan; weights are in shards of 16 MiB
const HASH = /^[0-9a-f]{64}$/;
const HASH_PREFIX = '{"sha256":"';
const BODY_OFFSET = HASH_PREFIX.length + 64 + 2; // a quote and a comma follow the hash

/**
 * @param {string | URL} url of a bundle's folder or of its manifest
 * @returns {URL}
 */
export function manifestURL(url) {
  const absolute = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
  if (absolute.pathname.endsWith(".json")) return absolute;
  if (absolute.pathname.endsWith("/index.html")) return new URL("manifest.json", absolute);
  if (!absolute.pathname.endsWith("/")) absolute.pathname += "/";
  return new URL("manifest.json", absolute);
}

/**
 * Return whether the bytes are a complete manifest, by its hash.
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
export async function isIntact(bytes) {
  const head = new TextDecoder().decode(bytes.subarray(0, BODY_OFFSET));
  return (
    head.startsWith(HASH_PREFIX) && head.slice(HASH_PREFIX.length, -2) === (await sha256(bytes.subarray(BODY_OFFSET)))
  );
}

/**
 * @param {Uint8Array} bytes for which `isIntact` holds
 * @returns {Manifest}
 */
export function readManifest(bytes) {
  const manifest = reading("manifest.json", () => JSON.parse(new TextDecoder().decode(bytes)));
  if (manifest?.format !== FORMAT || manifest.version !== VERSION) {
    throw new WebpteError(
      "unsupported",
      `manifest.json: expected a ${FORMAT} of version ${VERSION}, got a ${manifest?.format} of version ${manifest?.version}. ` +
        "Use the player of the bundle, or write it again: webpte bundle MODEL.pte -o DIR.",
    );
  }
  for (const part of ["files", "methods"]) {
    if (!isObject(manifest[part])) throw invalid(part, "an object");
  }
  for (const [sha, entry] of Object.entries(manifest.files)) {
    if (!HASH.test(sha)) throw invalid("files", "names of 64 hexadecimal digits");
    if (!isObject(entry) || typeof entry.path !== "string") throw invalid(`files: ${sha}`, "a file with a path");
    if (!Number.isSafeInteger(entry.bytes) || entry.bytes < 0 || entry.bytes > MAX_FILE_BYTES)
      throw invalid(`files: ${sha}: bytes`, `an integer from 0 to ${MAX_FILE_BYTES}`);
  }
  for (const [name, method] of Object.entries(manifest.methods)) {
    if (!isObject(method) || !Array.isArray(method.variants)) throw invalid(`methods: ${name}`, "variants");
  }
  return manifest;
}

/**
 * Return the URL of a file in the folder of the manifest. A manifest cannot name files outside of it: those of another
 * server, or of the computer that runs Node.
 * @param {string} path
 * @param {URL} base of the manifest
 */
export function fileURL(path, base) {
  const url = URL.canParse(path, base) ? new URL(path, base) : null;
  if (!url?.href.startsWith(new URL(".", base).href)) throw invalid("files", "paths in the bundle's folder", path);
  return url;
}

/** @param {any} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {string} where @param {string} expected @param {string} [got] */
function invalid(where, expected, got) {
  const value = got === undefined ? "" : `, got ${got.slice(0, 80)}`;
  return new WebpteError("damaged", `manifest.json: ${where}: expected ${expected}${value}. Write the bundle again.`);
}
