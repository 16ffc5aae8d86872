/**
 * @typedef {{
 *   stage: "manifest" | "weights" | "compile" | "ready" | "recover", done: number, total: number, cached: number,
 *   secondsLeft: number | null, refused?: string
 * }} ProgressEvent  bytes of weights, or kernels. `cached` of the bytes came from the local store. `refused` names a
 *   file that was damaged and is fetched again
 * @typedef {(event: ProgressEvent) => void} OnProgress
 */

const PAUSE = 50; // milliseconds between two events of a stage

/** What has been done of what is to do, told at a pace that people can follow. */
export class Progress {
  weights = { done: 0, total: 0, cached: 0 };
  kernels = { done: 0, total: 0, cached: 0 };
  #tell;
  #told = 0;
  #began = 0;
  #recovering = false;

  /** @param {OnProgress} [tell] */
  constructor(tell) {
    this.#tell = tell;
  }

  /**
   * @param {"weights" | "compile"} stage
   * @param {number} more done
   * @param {number} [cached] of them
   */
  add(stage, more, cached = 0) {
    const count = stage === "weights" ? this.weights : this.kernels;
    const now = performance.now();
    if (count.done === 0) this.#began = now;
    count.done += more;
    count.cached += cached;
    if (count.done < count.total && now - this.#told < PAUSE) return;
    this.#told = now;
    if (!this.#recovering) this.say(stage, count);
    else if (stage === "weights") this.say("recover", count);
  }

  /** From the beginning, on another device. */
  again() {
    this.weights = { done: 0, total: 0, cached: 0 };
    this.kernels = { done: 0, total: 0, cached: 0 };
    this.#recovering = true;
    this.say("recover");
  }

  ready() {
    this.#recovering = false;
    this.say("ready", this.weights);
  }

  /**
   * @param {ProgressEvent["stage"]} stage
   * @param {{ done: number, total: number, cached: number }} [count]
   * @param {string} [refused]
   */
  say(stage, count = { done: 0, total: 0, cached: 0 }, refused) {
    const seconds = (performance.now() - this.#began) / 1000;
    const secondsLeft = count.done > 0 && seconds > 0.5 ? (seconds * (count.total - count.done)) / count.done : null;
    this.#tell?.({ stage, ...count, secondsLeft, ...(refused && { refused }) });
  }

  /** @param {string} name */
  refuse(name) {
    this.say(this.#recovering ? "recover" : "weights", this.weights, name);
  }
}
