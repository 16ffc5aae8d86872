/**
 * The side of a model that runs in another thread than its caller.
 * @typedef {import("./messages.js").ToWorker} ToWorker
 * @typedef {import("./messages.js").FromWorker} FromWorker
 * @typedef {{
 *   postMessage(message: FromWorker, options: { transfer: ArrayBuffer[] }): void,
 *   onmessage: ((event: any) => void) | null
 * }} Port  of a worker: to the thread that started it
 */
import { packError } from "./errors.js";
import { Host } from "./host.js";
import { memoryOf } from "./messages.js";

/**
 * Do what the thread that started this one asks for.
 * @param {Port} port
 * @param {import("./files.js").Fetch} [fetch] replaces the global function
 */
export function serveModel(port, fetch) {
  /** @type {Host | null} */
  let host = null;
  /** @type {Map<number, AbortController>} */
  const activeCalls = new Map();
  /** @type {Map<number, AsyncIterator<any>>} */
  const streams = new Map();

  /** @param {FromWorker} message @param {ArrayBuffer[]} [transfer] */
  const post = (message, transfer = []) => port.postMessage(message, { transfer });

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
      fetch,
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

  /** @param {{ data: ToWorker }} event */
  port.onmessage = ({ data }) => {
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

  post({ hello: { gpu: Boolean(globalThis.navigator?.gpu) } });
}
