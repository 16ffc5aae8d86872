/**
 * The page's end of a model that lives in a worker.
 * @typedef {import("./host.js").About} About
 * @typedef {import("./host.js").Backend} Backend
 * @typedef {import("./host.js").CallName} CallName
 * @typedef {import("./messages.js").ToWorker} ToWorker
 * @typedef {import("./messages.js").FromWorker} FromWorker
 * @typedef {{ resolve: (message: any) => void, reject: (error: unknown) => void }} Waiting
 */
import { abortable, throwIfAborted, unpackError, WebpteError } from "./errors.js";

/** @implements {Backend} */
export class Remote {
  /** @type {About} */ about = /** @type {any} */ (null);
  /** @type {Map<number, Waiting>} */ #waiting = new Map();
  /** @type {Error | null} */ #over = null;
  #count = 0;
  #worker;
  #options;

  /**
   * @param {Worker} worker that has said hello
   * @param {{
   *   signal?: AbortSignal | null, onProgress?: import("./progress.js").OnProgress,
   *   onEvent: import("./host.js").OnEvent
   * }} options
   */
  constructor(worker, options) {
    this.#worker = worker;
    this.#options = options;
    worker.onmessage = ({ data }) => this.#take(data);
    worker.onerror = (event) => this.#end(new WebpteError("disposed", `The model's worker stopped: ${event.message}`));
  }

  /**
   * A worker with WebGPU; null where there is none: the page does its work then.
   * @param {Worker | true} given
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<Worker | null>}
   */
  static async start(given, signal) {
    let worker;
    try {
      worker = given === true ? new Worker(new URL("./worker.js", import.meta.url), { type: "module" }) : given;
    } catch {
      return null; // such as a player from another origin, whose scripts cannot be workers of this page
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
      this.about = (await this.#ask((id) => ({ open: id, url }), this.#options.signal)).value;
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
    const answer = await this.#ask((id) => ({ call: id, name, args }), signal);
    return "stream" in answer ? this.#stream(answer.stream, signal) : answer.value;
  }

  /** @param {number} of @param {AbortSignal | null} [signal] */
  async *#stream(of, signal) {
    try {
      for (;;) {
        const { value, last } = await this.#ask((id) => ({ next: id, of }), signal);
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
  #ask(message, signal) {
    throwIfAborted(signal);
    if (this.#over) return Promise.reject(this.#over);
    const id = ++this.#count;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.#worker.postMessage(message(id));
    const stop = () => this.#worker.postMessage({ abort: id });
    signal?.addEventListener("abort", stop);
    answer.catch(() => {}).finally(() => signal?.removeEventListener("abort", stop));
    return abortable(answer, signal);
  }

  /** @param {FromWorker} message */
  #take(message) {
    if ("progress" in message) return this.#options.onProgress?.(message.progress);
    if ("event" in message) {
      this.about = message.about;
      return this.#options.onEvent(message.event, message.about, message.detail);
    }
    const any = /** @type {any} */ (message);
    const id = any.done ?? any.stream ?? any.item ?? any.failed;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (any.failed) waiting?.reject(unpackError(any.error));
    else waiting?.resolve(message);
  }

  /** @param {Error} error */
  #end(error) {
    this.#over ??= error;
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    this.#worker.terminate(); // and with it all that it holds of the GPU
  }

  dispose() {
    this.#end(new WebpteError("disposed", "The model was disposed."));
  }
}
