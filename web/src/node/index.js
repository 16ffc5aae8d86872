/** The entry of the package in Node, Deno and Bun: `load` and `openProgram` also take the path of a folder. */
import { Worker } from "node:worker_threads";
import * as player from "../index.js";
import { addressOf, fetchOrRead, provideWebGPU } from "./platform.js";

export * from "../index.js"; // but for the functions below

/**
 * Load a bundle and return its model. Dispose of it, so that the process can end.
 * @param {string | URL} location of the bundle's folder or of its manifest: a path or an address
 * @param {Omit<NonNullable<Parameters<typeof player.load>[1]>, "worker"> & {
 *   worker?: boolean, matrixUnits?: boolean
 * }} [options]
 *   worker: by default a new thread, so that this one stays responsive. fetch: replaces the reading of files and
 *   addresses; the model then runs in this thread. matrixUnits: use those of the GPU, an experimental feature of Dawn,
 *   if the bundle has plans for them
 * @returns {Promise<player.Model>}
 */
export async function load(location, { fetch, worker = !fetch, matrixUnits = false, ...options } = {}) {
  await provideWebGPU(matrixUnits);
  const place = worker
    ? { worker: /** @type {any} */ (new Thread(matrixUnits)) }
    : { worker: false, fetch: fetch ?? fetchOrRead };
  return player.load(addressOf(location), { ...options, ...place });
}

/**
 * Open a bundle as a program, in this thread.
 * @param {string | URL} location
 * @param {Parameters<typeof player.openProgram>[1]} [options]
 */
export async function openProgram(location, options) {
  await provideWebGPU();
  return player.openProgram(addressOf(location), { fetch: fetchOrRead, ...options });
}

/**
 * Return the name and the kind of a bundle, and the bytes of its weights.
 * @param {string | URL} location
 * @param {Parameters<typeof player.inspect>[1]} [options]
 */
export async function inspect(location, options) {
  await provideWebGPU();
  return player.inspect(addressOf(location), { fetch: fetchOrRead, ...options });
}

/** A thread with the calls of a page's worker. */
class Thread {
  /** @type {((event: { data: any }) => void) | null} */ onmessage = null;
  /** @type {((error: Error) => void) | null} */ onerror = null;
  #worker;

  /** @param {boolean} matrixUnits */
  constructor(matrixUnits) {
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { workerData: { matrixUnits } });
    this.#worker.on("message", (data) => this.onmessage?.({ data }));
    this.#worker.on("error", (error) => this.onerror?.(error));
  }

  /** @param {unknown} message */
  postMessage(message) {
    this.#worker.postMessage(message);
  }

  terminate() {
    void this.#worker.terminate();
  }
}
