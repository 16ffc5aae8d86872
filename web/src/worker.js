/**
 * The worker's end of a model: a module worker that a page starts.
 * @typedef {import("./messages.js").ToWorker} ToWorker
 * @typedef {import("./messages.js").FromWorker} FromWorker
 */
import { packError } from "./errors.js";
import { Host } from "./host.js";
import { memoryOf } from "./messages.js";

/** @type {Host | null} */
let host = null;
/** @type {Map<number, AbortController>} */
const underWay = new Map();
/** @type {Map<number, AsyncIterator<any>>} */
const streams = new Map();

/** @param {FromWorker} message @param {ArrayBuffer[]} [moved] */
const post = (message, moved = []) => self.postMessage(message, { transfer: moved });

/** @param {number} id @param {(signal: AbortSignal) => Promise<FromWorker>} job */
async function answer(id, job) {
  const stop = new AbortController();
  underWay.set(id, stop);
  try {
    const message = await job(stop.signal);
    post(message, "done" in message ? memoryOf(message.value) : []);
  } catch (error) {
    post({ failed: id, error: packError(error) });
  }
  if (!streams.has(id)) underWay.delete(id);
}

/** @param {number} id @param {string} url @param {AbortSignal} signal @returns {Promise<FromWorker>} */
async function open(id, url, signal) {
  host = await Host.open(url, {
    signal,
    onProgress: (progress) => post({ progress }),
    onEvent: (event, about, detail) => post({ event, about, detail }),
  });
  return { done: id, value: host.about };
}

/** @param {Extract<ToWorker, { call: number }>} message @param {AbortSignal} signal @returns {Promise<FromWorker>} */
async function call({ call: id, name, args }, signal) {
  const value = await /** @type {Host} */ (host).call(name, args, signal);
  if (!value?.[Symbol.asyncIterator]) return { done: id, value };
  streams.set(id, value[Symbol.asyncIterator]());
  return { stream: id };
}

/** @param {number} id @param {number} of @returns {Promise<FromWorker>} */
async function next(id, of) {
  const { value, done } = (await streams.get(of)?.next()) ?? { value: undefined, done: true };
  if (done) streams.delete(of);
  return { item: id, value, last: done === true };
}

/** @param {MessageEvent<ToWorker>} event */
self.onmessage = ({ data }) => {
  if ("open" in data) answer(data.open, (signal) => open(data.open, data.url, signal));
  else if ("call" in data) answer(data.call, (signal) => call(data, signal));
  else if ("next" in data) answer(data.next, () => next(data.next, data.of));
  else if ("abort" in data) underWay.get(data.abort)?.abort();
  else {
    underWay.get(data.stop)?.abort();
    underWay.delete(data.stop);
    streams
      .get(data.stop)
      ?.return?.()
      .catch(() => {});
    streams.delete(data.stop);
  }
};

post({ hello: { gpu: Boolean(navigator.gpu) } });
