/**
 * Pacing: work that is predicted to take longer than a limit is cut between two dispatches, into several submits. While
 * the GPU runs one, no display that it drives is updated. The order of the dispatches stays, and so do the results.
 * @typedef {import("./plan.js").Schedule} Schedule
 */
const SLOW = [1e7, 1e6]; // operations and bytes per ms of a slow device, before anything was measured
const FIRST_SHARE = 1 / 8; // of the limit: what a submit may take by rates that were not measured
const MAX_SPEEDUP = 4; // by which one submit may lower a prediction: it may have been easier than the next
const MIN_MS = 2; // a shorter submit is mostly overhead, and does not show that the device is slow

/** Predicts the duration of dispatches on a device, and learns from submits that are done. */
export class Pace {
  #factors = [1, 1]; // measured durations relative to those of a slow device: bound by operations, by bytes
  #known = [false, false];
  /** @type {WeakMap<Schedule, Map<number, number>>} measured ms of each dispatch */ #measured = new WeakMap();
  #lastDone = 0;

  /** @param {number} limit of a submit in ms */
  constructor(limit) {
    this.limit = limit;
  }

  /** @param {Schedule} schedule @param {number} dispatch */
  #predict(schedule, dispatch) {
    const [operations, bytes] = schedule.work[dispatch].map((amount, bound) => amount / SLOW[bound]);
    const bound = Number(bytes >= operations);
    const slow = Math.max(operations, bytes);
    const measured = this.#measured.get(schedule)?.get(dispatch);
    const known = measured !== undefined || this.#known[bound];
    return { bound, slow, known, measured, ms: measured ?? slow * this.#factors[bound] };
  }

  /**
   * Return the end of the submit that begins with a dispatch, and whether its duration was predicted by measurements.
   * @param {Schedule} schedule
   * @param {number} first
   */
  part(schedule, first) {
    let [end, total, known] = [first, 0, true];
    while (end < schedule.work.length && this.limit < Infinity) {
      const next = this.#predict(schedule, end);
      known &&= next.known;
      total += next.ms;
      if (end > first && total > this.limit * (known ? 1 : FIRST_SHARE)) return { end, known };
      end++;
    }
    return { end: schedule.work.length, known };
  }

  /**
   * Record that dispatches are done that were submitted at `began`.
   * @param {Schedule} schedule
   * @param {number} first
   * @param {number} end
   * @param {number} began
   */
  learn(schedule, first, end, began) {
    const now = performance.now();
    const ms = now - Math.max(began, this.#lastDone);
    this.#lastDone = now;
    const costs = Array.from({ length: end - first }, (_, i) => this.#predict(schedule, first + i));
    const total = costs.reduce((sum, cost) => sum + cost.ms, 0);
    if (total <= 0 || (ms < MIN_MS && ms >= total)) return;
    const measured = this.#measured.get(schedule) ?? new Map();
    this.#measured.set(schedule, measured);
    const bounds = [0, 1].map((bound) => {
      const fresh = costs.filter((cost) => cost.bound === bound && cost.measured === undefined);
      return fresh.reduce(([taken, slow], cost) => [taken + (cost.ms * ms) / total, slow + cost.slow], [0, 0]);
    });
    const most = Number(bounds[1][0] > bounds[0][0]);
    const [taken, slow] = bounds[most];
    if (slow) {
      this.#factors[most] = Math.max(taken / slow, this.#factors[most] / MAX_SPEEDUP);
      this.#known[most] = true;
    }
    costs.forEach((cost, i) => measured.set(first + i, (cost.ms * ms) / total));
  }
}
