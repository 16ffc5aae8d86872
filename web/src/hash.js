import { WebpteError } from "./errors.js";

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<string>} in hex
 */
export async function sha256(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new WebpteError("webgpu-missing", "WebGPU requires a secure page: open it over https or on localhost.");
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
