/**
 * Models of webpte bundles in a page.
 * @typedef {import("./errors.js").ErrorCode} ErrorCode
 * @typedef {import("./progress.js").ProgressEvent} ProgressEvent
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./model.js").Message} Message
 * @typedef {import("./model.js").ChatRequest} ChatRequest
 * @typedef {import("./model.js").ChatAnswer} ChatAnswer
 * @typedef {import("./model.js").ChatChunk} ChatChunk
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
export { openProgram } from "./program.js";

/**
 * A model, ready to be asked.
 * @param {string | URL} url of the bundle's folder, or of its manifest
 * @param {{
 *   onProgress?: (event: ProgressEvent) => void, signal?: AbortSignal | null, worker?: boolean | Worker,
 *   fetch?: import("./files.js").Fetch
 * }} [options]  in a worker unless told otherwise, so that the page stays responsive; or in one that was started with
 *   the player's worker.js, where a bundler has moved that. What `fetch` gives need not come from a server; it is
 *   called here, so there is no worker then
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
  const started = worker && (await Remote.start(worker, signal));
  model = new Model(started ? await new Remote(started, options).open(href) : await Host.open(href, options));
  return model;
}
