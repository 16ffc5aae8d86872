/**
 * The messages between a page and its worker. Streams are pulled: the page requests each item.
 * @typedef {{ open: number, url: string } | { call: number, name: import("./host.js").CallName, args: any[] }
 *   | { next: number, of: number } | { stop: number } | { abort: number }} ToWorker
 * @typedef {{ hello: { gpu: boolean } } | { done: number, value?: any } | { stream: number }
 *   | { item: number, value: any, last: boolean }
 *   | { failed: number, error: ReturnType<typeof import("./errors.js").packError> }
 *   | { progress: import("./progress.js").ProgressEvent }
 *   | { event: "lost" | "recovered", state: import("./host.js").ModelState, detail: string }} FromWorker
 */

/**
 * Return the buffers of a result, which are transferred instead of copied.
 * @param {any} value
 * @returns {ArrayBuffer[]}
 */
export function memoryOf(value) {
  if (ArrayBuffer.isView(value)) return [/** @type {ArrayBuffer} */ (value.buffer)];
  if (Array.isArray(value)) return [...new Set(value.flatMap((item) => memoryOf(item?.data ?? item)))];
  return [];
}
