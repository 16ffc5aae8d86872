/**
 * @typedef {"webgpu-missing" | "no-adapter" | "unsupported" | "damaged" | "network" | "aborted" | "device-lost"
 *   | "out-of-memory" | "input" | "shape" | "logits" | "queue-full" | "disposed"} ErrorCode
 */

/** What goes wrong: `code` for programs, `message` for people. */
export class WebpteError extends Error {
  /**
   * @param {ErrorCode} code
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = "WebpteError";
    this.code = code;
  }
}

/** @param {AbortSignal | null} [signal] */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw new WebpteError("aborted", "Stopped, as the signal asked for.", { cause: signal.reason });
}

/**
 * The promise, or an error as soon as the signal wants to stop: what the promise stands for may still go on.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | null} [signal]
 * @returns {Promise<T>}
 */
export function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => {
      try {
        throwIfAborted(signal);
      } catch (error) {
        reject(error);
      }
    };
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    signal.addEventListener("abort", stop, { once: true });
    stop();
  });
}

/**
 * The promise, or an error if it takes longer than that.
 * @template T
 * @param {Promise<T>} promise
 * @param {number} milliseconds
 * @returns {Promise<T>}
 */
export function within(promise, milliseconds) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(Error("stalled")), milliseconds);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/**
 * Plain data for another thread, and back.
 * @param {unknown} error
 * @returns {{ code: ErrorCode | null, name: string, message: string, stack?: string }}
 */
export function packError(error) {
  const { name, message, stack } = error instanceof Error ? error : new Error(String(error));
  return { code: error instanceof WebpteError ? error.code : null, name, message, stack };
}

/** @param {ReturnType<typeof packError>} packed */
export function unpackError({ code, name, message, stack }) {
  const error = code ? new WebpteError(code, message) : Object.assign(new Error(message), { name });
  error.stack = stack;
  return error;
}
