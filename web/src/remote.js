/**
 * The page's side of a model in a worker.
 * @typedef {import("./host.js").ModelState} ModelState
 * @typedef {import("./host.js").Backend} Backend
 * @typedef {import("./host.js").CallName} CallName
 * @typedef {import("./messages.js").ToWorker} ToWorker
 * @typedef {import("./messages.js").FromWorker} FromWorker
 * @typedef {{ resolve: (message: any) => void, reject: (error: unknown) => void }} PendingCall
 */
import { abortable, throwIfAborted, unpackError, WebpteError } from "./errors.js";

/** @implements {Backend} */
export class Remote {
  /** @type {ModelState} */ state = /** @type {any} */ (null);
  /** @type {Map<number, PendingCall>} */ #pending = new Map();
  /** @type {Error | null} */ #endError = null;
  #lastId = 0;
  #worker;
  #options;

  /**
   * @param {Worker} worker that has sent hello
   * @param {{
   *   signal?: AbortSignal | null, onProgress?: import("./progress.js").OnProgress,
   *   onEvent: import("./host.js").OnEvent
   * }} options
   */
  constructor(worker, options) {
    this.#worker = worker;
    this.#options = options;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => this.#end(new WebpteError("disposed", `The model's worker stopped: ${event.message}`));
  }

  /**
   * Return a worker with WebGPU; null if there is none, and the model must run in the page.
   * @param {Worker | true} option
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<Worker | null>}
   */
  static async start(option, signal) {
    let worker;
    try {
      worker = option === true ? new Worker(new URL("./worker.js", import.meta.url), { type: "module" }) : option;
    } catch {
      return null; // for example, the scripts of another origin cannot be workers of this page
    }
    const hello = new Promise((resolve) => {
      worker.onmessage = ({ data }) => resolve(data.hello?.gpu);
      worker.onerror = () => resolve(false);
    });
    const gpu = await abortable(hello, signal).catch(() => false);
    if (gpu) return worker;
    worker.terminate();
    throwIfAborted(signal);
    return null;
  }

  /**
   * @param {string} url
   * @returns {Promise<this>}
   */
  async open(url) {
    try {
      this.state = (await this.#send((id) => ({ open: id, url }), this.#options.signal)).value;
      return this;
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /**
   * @param {CallName} name
   * @param {any[]} args
   * @param {AbortSignal | null} [signal]
   */
  async call(name, args, signal) {
    const answer = await this.#send((id) => ({ call: id, name, args }), signal);
    return "stream" in answer ? this.#stream(answer.stream, signal) : answer.value;
  }

  /** @param {number} of @param {AbortSignal | null} [signal] */
  async *#stream(of, signal) {
    try {
      for (;;) {
        const { value, last } = await this.#send((id) => ({ next: id, of }), signal);
        if (last) return;
        yield value;
      }
    } finally {
      this.#worker.postMessage({ stop: of });
    }
  }

  /**
   * @param {(id: number) => ToWorker} message
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<any>}
   */
  #send(message, signal) {
    throwIfAborted(signal);
    if (this.#endError) return Promise.reject(this.#endError);
    const id = ++this.#lastId;
    const answer = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject }));
    this.#worker.postMessage(message(id));
    const stop = () => this.#worker.postMessage({ abort: id });
    signal?.addEventListener("abort", stop);
    answer.catch(() => {}).finally(() => signal?.removeEventListener("abort", stop));
    return abortable(answer, signal);
  }

  /** @param {FromWorker} message */
  #receive(message) {
    if ("progress" in message) return this.#options.onProgress?.(message.progress);
    if ("event" in message) {
      this.state = message.state;
      return this.#options.onEvent(message.event, message.state, message.detail);
    }
    const any = /** @type {any} */ (message);
    const id = any.done ?? any.stream ?? any.item ?? any.failed;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (any.failed) pending?.reject(unpackError(any.error));
    else pending?.resolve(message);
  }

  /** @param {Error} error */
  #end(error) {
    this.#endError ??= error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
    this.#worker.terminate(); // frees its GPU memory, too
  }

  dispose() {
    this.#end(new WebpteError("disposed", "The model was disposed."));
  }
}
