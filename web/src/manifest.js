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
import { WebpteError } from "./errors.js";
import { sha256 } from "./hash.js";

const FORMAT = "webpte bundle";
const VERSION = 2;
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
  const manifest = JSON.parse(new TextDecoder().decode(bytes));
  if (manifest.format !== FORMAT || manifest.version !== VERSION) {
    throw new WebpteError(
      "unsupported",
      `manifest.json: expected a ${FORMAT} of version ${VERSION}, got a ${manifest.format} of version ${manifest.version}. ` +
        "Use the player of the bundle, or write it again: webpte bundle MODEL.pte -o DIR.",
    );
  }
  return manifest;
}
