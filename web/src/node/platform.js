/** What pages have and JavaScript outside pages may lack: WebGPU, and files as addresses. */
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { fileURLToPath, pathToFileURL } from "node:url";
import { WebpteError } from "../errors.js";

/** Dawn offers matrix units, and f16 on NVIDIA's GPUs, only to programs that ask for unfinished features. */
const UNFINISHED = "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia";

/**
 * Provide `navigator.gpu` and the globals of WebGPU: the runtime's own, or those of the package "webgpu" (Dawn).
 * @param {boolean} [matrixUnits] whether Dawn may use those of the GPU
 */
export async function provideWebGPU(matrixUnits = false) {
  const { navigator } = /** @type {any} */ (globalThis);
  if (navigator?.gpu) return;
  let webgpu;
  try {
    webgpu = await import("webgpu");
  } catch (cause) {
    const fix = "Install a package that does: npm install webgpu";
    throw new WebpteError("webgpu-missing", `This runtime does not provide WebGPU. ${fix}`, { cause });
  }
  Object.assign(globalThis, webgpu.globals);
  const gpu = webgpu.create(matrixUnits ? [UNFINISHED] : []);
  if (navigator) Object.defineProperty(navigator, "gpu", { value: gpu });
  else Object.defineProperty(globalThis, "navigator", { value: { gpu } });
}

/**
 * @param {string | URL} location an address, or the path of a folder
 * @returns {URL}
 */
export function addressOf(location) {
  if (location instanceof URL) return location;
  const isAddress = /^[a-z][a-z0-9+.-]+:/i.test(location); // C: is a drive
  return isAddress ? new URL(location) : pathToFileURL(location);
}

/**
 * The global `fetch`, which also reads addresses of files.
 * @type {import("../files.js").Fetch}
 */
export async function fetchOrRead(url, options) {
  if (url.protocol !== "file:") return fetch(url, options);
  try {
    const file = await open(url);
    return new Response(/** @type {any} */ (Readable.toWeb(file.createReadStream())));
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== "ENOENT") throw error;
    const fix = "Write a bundle there: webpte bundle MODEL.pte -o DIR";
    throw new WebpteError("network", `${fileURLToPath(url)} does not exist. ${fix}`, { cause: error });
  }
}
