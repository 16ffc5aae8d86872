/**
 * Load models of webpte bundles in a page.
 * @typedef {import("./errors.js").ErrorCode} ErrorCode
 * @typedef {import("./progress.js").ProgressEvent} ProgressEvent
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./model.js").Message} Message
 * @typedef {import("./model.js").ChatMessage} ChatMessage
 * @typedef {import("./model.js").ContentPart} ContentPart
 * @typedef {import("./model.js").Pixels} Pixels
 * @typedef {import("./model.js").ChatRequest} ChatRequest
 * @typedef {import("./model.js").ChatCompletion} ChatCompletion
 * @typedef {import("./model.js").ChatCompletionChunk} ChatCompletionChunk
 * @typedef {import("./model.js").CompletionRequest} CompletionRequest
 * @typedef {import("./model.js").Completion} Completion
 */
import { throwIfAborted } from "./errors.js";
import { Host } from "./host.js";
import { manifestURL } from "./manifest.js";
import { Model } from "./model.js";
import { Remote } from "./remote.js";

export { WebpteError } from "./errors.js";
export { Model } from "./model.js";
export { inspect, openProgram } from "./program.js";

/**
 * Load a bundle and return its model.
 * @param {string | URL} url of the bundle's folder, or of its manifest
 * @param {{
 *   onProgress?: (event: ProgressEvent) => void, signal?: AbortSignal | null, worker?: boolean | Worker,
 *   fetch?: import("./files.js").Fetch
 * }} [options]  worker: by default a new one, so that the page stays responsive; a Worker of the player's worker.js if
 *   a bundler has moved that; false for none. fetch: replaces the global function; the model then runs without a worker
 * @returns {Promise<Model>}
 */
export async function load(url, { onProgress, signal, fetch, worker = !fetch } = {}) {
  throwIfAborted(signal);
  /** @type {Model | null} */
  let model = null;
  const options = {
    signal,
    onProgress,
    fetch,
    onEvent: (/** @type {string} */ type, /** @type {unknown} */ _, /** @type {string} */ detail) => {
      model?.dispatchEvent(new CustomEvent(type, { detail }));
    },
  };
  const { href } = manifestURL(url);
  const remoteWorker = worker && (await Remote.start(worker, signal));
  model = new Model(remoteWorker ? await new Remote(remoteWorker, options).open(href) : await Host.open(href, options));
  return model;
}
