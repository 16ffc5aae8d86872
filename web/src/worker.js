/**
 * The worker's side of a model: a module worker that a page starts.
 * @typedef {import("./messages.js").ToWorker} ToWorker
 * @typedef {import("./messages.js").FromWorker} FromWorker
 */
import { packError } from "./errors.js";
import { Host } from "./host.js";
import { memoryOf } from "./messages.js";

/** @type {Host | null} */
let host = null;
/** @type {Map<number, AbortController>} */
const activeCalls = new Map();
/** @type {Map<number, AsyncIterator<any>>} */
const streams = new Map();

/** @param {FromWorker} message @param {ArrayBuffer[]} [transfer] */
const post = (message, transfer = []) => self.postMessage(message, { transfer });

/** @param {number} id @param {(signal: AbortSignal) => Promise<FromWorker>} work */
async function respond(id, work) {
  const stop = new AbortController();
  activeCalls.set(id, stop);
  try {
    const message = await work(stop.signal);
    post(message, "done" in message ? memoryOf(message.value) : []);
  } catch (error) {
    post({ failed: id, error: packError(error) });
  }
  if (!streams.has(id)) activeCalls.delete(id);
}

/** @param {number} id @param {string} url @param {AbortSignal} signal @returns {Promise<FromWorker>} */
async function open(id, url, signal) {
  host = await Host.open(url, {
    signal,
    onProgress: (progress) => post({ progress }),
    onEvent: (event, state, detail) => post({ event, state, detail }),
  });
  return { done: id, value: host.state };
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
  if ("open" in data) respond(data.open, (signal) => open(data.open, data.url, signal));
  else if ("call" in data) respond(data.call, (signal) => call(data, signal));
  else if ("next" in data) respond(data.next, () => next(data.next, data.of));
  else if ("abort" in data) activeCalls.get(data.abort)?.abort();
  else {
    activeCalls.get(data.stop)?.abort();
    activeCalls.delete(data.stop);
    streams
      .get(data.stop)
      ?.return?.()
      .catch(() => {});
    streams.delete(data.stop);
  }
};

post({ hello: { gpu: Boolean(navigator.gpu) } });
