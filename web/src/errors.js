/**
 * @typedef {"webgpu-missing" | "no-adapter" | "unsupported" | "damaged" | "network" | "aborted" | "device-lost"
 *   | "out-of-memory" | "input" | "shape" | "logits" | "queue-full" | "disposed"} ErrorCode
 */

const MAX_SHOWN_CHARS = 40; // of a value in an error

/** Every failure of the player: `code` is for programs, `message` for people. */
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

/**
 * Return the error of an invalid argument.
 * @param {string} argument
 * @param {string} expected
 * @param {unknown} got
 * @param {string} [fix] a sentence
 */
export function inputError(argument, expected, got, fix) {
  const json = typeof got === "number" ? String(got) : (JSON.stringify(got) ?? String(got));
  const value = (typeof got === "object" ? json.replaceAll(",", ", ") : json).slice(0, MAX_SHOWN_CHARS);
  return new WebpteError("input", `${argument}: expected ${expected}, got ${value}.${fix ? ` ${fix}` : ""}`);
}

/**
 * Return an error of what a bundle contains: a part of another type or size than the player expects.
 * @param {string} name of the file
 * @param {unknown} error
 */
export function damaged(name, error) {
  if (!(error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError)) return error;
  return new WebpteError("damaged", `${name} is damaged: ${error.message}. Write the bundle again.`, { cause: error });
}

/**
 * Return what `read` returns. Its errors are those of a damaged file.
 * @template T
 * @param {string} name of the file
 * @param {() => T} read
 * @returns {T}
 */
export function reading(name, read) {
  try {
    return read();
  } catch (error) {
    throw damaged(name, error);
  }
}

/** @param {AbortSignal | null} [signal] */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw new WebpteError("aborted", "The signal was aborted.", { cause: signal.reason });
}

/**
 * Return the promise, rejected as soon as the signal is aborted. Its work may continue.
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
 * Return the promise, rejected if it takes longer than the time limit.
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
 * Return an error as plain data, which can be posted to another thread.
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
