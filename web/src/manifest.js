/**
 * @typedef {{ kind: string, dtype: string, dims: number[], dynamic: boolean[] }} Border  an input or output of a method
 * @typedef {{
 *   plan: string, wgsl: string, weights: string[], device: "gpu" | "cpu", limits: Record<string, number>,
 *   features: string[], subgroup: number, slots: number | null,
 *   bytes: { constant: number, state: number, activation: number }
 * }} Variant
 * @typedef {{ bytes: number, type: string, path: string }} FileEntry
 * @typedef {{
 *   format: string, version: number, webpte: string, name: string,
 *   kind: "language" | "encoder" | "image" | "program" | "check",
 *   files: Record<string, FileEntry>,
 *   methods: Record<string, { inputs: Border[], outputs: Border[], variants: Variant[] }>,
 *   language?: any, encoder?: any, image?: any, check?: any[], shapes?: Record<string, number[][][]>
 * }} Manifest
 */
import { WebpteError } from "./errors.js";
import { sha256 } from "./hash.js";

const HEAD = '{"sha256":"';
const BODY = HEAD.length + 64 + 2; // behind the hash come a quote and a comma

/**
 * @param {string | URL} url of a bundle's folder or of its manifest
 * @returns {URL}
 */
export function manifestURL(url) {
  const found = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
  if (found.pathname.endsWith(".json")) return found;
  if (found.pathname.endsWith("/index.html")) return new URL("manifest.json", found);
  if (!found.pathname.endsWith("/")) found.pathname += "/";
  return new URL("manifest.json", found);
}

/**
 * Whether the bytes are a manifest, whole.
 * @param {Uint8Array<ArrayBuffer>} bytes
 */
export async function isWhole(bytes) {
  const head = new TextDecoder().decode(bytes.subarray(0, BODY));
  return head.startsWith(HEAD) && head.slice(HEAD.length, -2) === (await sha256(bytes.subarray(BODY)));
}

/**
 * @param {Uint8Array} bytes that are whole
 * @returns {Manifest}
 */
export function readManifest(bytes) {
  const manifest = JSON.parse(new TextDecoder().decode(bytes));
  if (manifest.format !== "webpte bundle" || manifest.version !== 1) {
    throw new WebpteError(
      "unsupported",
      `manifest.json is a ${manifest.format} of version ${manifest.version}; take the player that it came with.`,
    );
  }
  return manifest;
}
