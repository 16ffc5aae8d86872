/**
 * What goes between a page and its worker. Streams are pulled: the worker answers a question for the next item.
 * @typedef {{ open: number, url: string } | { call: number, name: import("./host.js").CallName, args: any[] }
 *   | { next: number, of: number } | { stop: number } | { abort: number }} ToWorker
 * @typedef {{ hello: { gpu: boolean } } | { done: number, value?: any } | { stream: number }
 *   | { item: number, value: any, last: boolean }
 *   | { failed: number, error: ReturnType<typeof import("./errors.js").packError> }
 *   | { progress: import("./progress.js").ProgressEvent }
 *   | { event: "lost" | "recovered", about: import("./host.js").About, detail: string }} FromWorker
 */

/**
 * The memory that a result brings along, to be moved rather than copied.
 * @param {any} value
 * @returns {ArrayBuffer[]}
 */
export function memoryOf(value) {
  if (ArrayBuffer.isView(value)) return [/** @type {ArrayBuffer} */ (value.buffer)];
  if (Array.isArray(value)) return [...new Set(value.flatMap((item) => memoryOf(item?.data ?? item)))];
  return [];
}
