/**
 * @typedef {{
 *   stage: "manifest" | "weights" | "compile" | "ready" | "recover", done: number, total: number, cached: number,
 *   secondsLeft: number | null, damagedFile?: string
 * }} ProgressEvent  bytes of weights, or kernels. `cached` of the bytes came from the local store. `damagedFile` is
 *   fetched again
 * @typedef {(event: ProgressEvent) => void} OnProgress
 */

const INTERVAL_MS = 50; // between two events of a stage

/** Counts what is loaded, and reports it at intervals. */
export class Progress {
  weights = { done: 0, total: 0, cached: 0 };
  kernels = { done: 0, total: 0, cached: 0 };
  #onProgress;
  #lastReport = 0;
  #started = 0;
  #recovering = false;

  /** @param {OnProgress} [onProgress] */
  constructor(onProgress) {
    this.#onProgress = onProgress;
  }

  /**
   * @param {"weights" | "compile"} stage
   * @param {number} more done
   * @param {number} [cached] of them
   */
  add(stage, more, cached = 0) {
    const count = stage === "weights" ? this.weights : this.kernels;
    const now = performance.now();
    if (count.done === 0) this.#started = now;
    count.done += more;
    count.cached += cached;
    if (count.done < count.total && now - this.#lastReport < INTERVAL_MS) return;
    this.#lastReport = now;
    if (!this.#recovering) this.report(stage, count);
    else if (stage === "weights") this.report("recover", count);
  }

  /** Start again, on another device. */
  restart() {
    this.weights = { done: 0, total: 0, cached: 0 };
    this.kernels = { done: 0, total: 0, cached: 0 };
    this.#recovering = true;
    this.report("recover");
  }

  ready() {
    this.#recovering = false;
    this.report("ready", this.weights);
  }

  /**
   * @param {ProgressEvent["stage"]} stage
   * @param {{ done: number, total: number, cached: number }} [count]
   * @param {string} [damagedFile]
   */
  report(stage, count = { done: 0, total: 0, cached: 0 }, damagedFile) {
    const seconds = (performance.now() - this.#started) / 1000;
    const secondsLeft = count.done > 0 && seconds > 0.5 ? (seconds * (count.total - count.done)) / count.done : null;
    this.#onProgress?.({ stage, ...count, secondsLeft, ...(damagedFile && { damagedFile }) });
  }

  /** @param {string} name */
  reportDamaged(name) {
    this.report(this.#recovering ? "recover" : "weights", this.weights, name);
  }
}
