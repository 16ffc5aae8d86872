/**
 * A method on a device: its pipelines, buffers and bind groups. They are created once; a call creates none.
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./plan.js").Schedule} Schedule
 * @typedef {import("./kernels.js").DispatchCommand} DispatchCommand
 * @typedef {{
 *   device: GPUDevice, constants: import("./constants.js").Constants, pace: import("./pacing.js").Pace,
 *   isLost: () => boolean
 * }} Gpu
 * @typedef {{ slots: [number, number][], uploads: [buffer: number, data: Uint8Array<ArrayBuffer>][] }} Step
 * @typedef {{ from: number, to: number, bytes: number }} Feed  a copy between the buffers of two steps
 */
import { abortable, WebpteError } from "./errors.js";
import { Kernels } from "./kernels.js";
import { padded } from "./tensors.js";

const NUM_LIVE_INTEGERS = 256; // 16 bytes each
const COPY_SRC = 0x4,
  COPY_DST = 0x8,
  MAP_READ = 0x1,
  UNIFORM = 0x40,
  STORAGE = 0x80;
const MAX_LOSS_DELAY_MS = 200;

export class Instance {
  /** @type {GPUBuffer[]} */ buffers = [];
  /** @type {Map<number, ArrayBuffer>} */ host = new Map();
  /** @type {string[]} */ #claimed = [];
  /** @type {GPUBuffer[]} */ #own = [];
  /** @type {Map<number, GPUBuffer>} */ #initial = new Map();
  #kernels;
  #slots = new Int32Array(NUM_LIVE_INTEGERS * 4);
  /** @type {GPUBuffer} */ #live = /** @type {any} */ (null);
  /** @type {GPUBuffer | null} */ #readback = null;
  /** @type {GPUBuffer | null} */ #staging = null;
  /** @type {Promise<unknown>} */ #lastSubmit = Promise.resolve();

  /**
   * @param {Gpu} gpu
   * @param {Plan} plan
   */
  constructor(gpu, plan) {
    this.gpu = gpu;
    this.plan = plan;
    this.device = gpu.device;
    this.#kernels = new Kernels(gpu.device, plan, this.buffers);
  }

  /**
   * @param {string} wgsl the concatenated texts of all kernels
   * @param {number[]} hostConstants constants that the host reads
   * @param {import("./progress.js").Progress} progress
   * @param {AbortSignal} signal
   */
  async open(wgsl, hostConstants, progress, signal) {
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    const constants = this.gpu.constants.claim(this.plan, hostConstants, signal);
    this.#claimed = constants.keys;
    this.host = constants.host;
    this.#createBuffers(constants.buffers);
    const parameters = this.#buffer("parameters", this.#kernels.parameterBytes, UNIFORM | COPY_DST);
    this.#kernels.writeParameters(parameters, this.#live);
    const [invalid, noMemory] = await Promise.all([this.device.popErrorScope(), this.device.popErrorScope()]);
    if (noMemory) throw outOfMemoryError(this.plan, noMemory);
    if (invalid) throw new WebpteError("unsupported", `${this.plan.document.name}: ${invalid.message}`);
    await abortable(Promise.all([constants.filled, this.#kernels.compile(wgsl, progress)]), signal);
    this.reset();
  }

  /** @param {Map<number, GPUBuffer>} filled */
  #createBuffers(filled) {
    this.#live = this.#buffer("live integers", NUM_LIVE_INTEGERS * 16, UNIFORM | COPY_DST);
    this.plan.document.buffers.forEach((spec, number) => {
      const constant = filled.get(number);
      if (constant && spec.kind === "constant") {
        this.buffers.push(constant);
        return;
      }
      if (constant) this.#initial.set(number, constant);
      this.buffers.push(this.#buffer(`${spec.kind} ${number}`, spec.bytes, STORAGE | COPY_SRC | COPY_DST));
    });
  }

  /**
   * @param {string} label
   * @param {number} size
   * @param {number} usage
   */
  #buffer(label, size, usage) {
    const buffer = this.device.createBuffer({ label, size, usage });
    this.#own.push(buffer);
    return buffer;
  }

  /** Reset the state to its initial contents. */
  reset() {
    const encoder = this.device.createCommandEncoder();
    this.plan.document.buffers.forEach(({ kind, bytes }, number) => {
      const initial = this.#initial.get(number);
      if (initial) encoder.copyBufferToBuffer(initial, 0, this.buffers[number], 0, bytes);
      else if (kind === "state") encoder.clearBuffer(this.buffers[number]);
    });
    this.device.queue.submit([encoder.finish()]);
  }

  /** @returns {GPUBuffer[]} */
  get state() {
    return this.buffers.filter((_, number) => this.plan.document.buffers[number].kind === "state");
  }

  /**
   * Run steps of one schedule, each with its own live integers and inputs, and read buffers back. It is one submit if
   * it is short.
   * @param {Schedule} schedule
   * @param {Step[]} steps
   * @param {[buffer: number, bytes: number][]} reads
   * @param {Feed[]} feeds from each step to the next
   * @returns {Promise<ArrayBuffer[][]>} the contents of `reads`, for each step
   */
  async submit(schedule, steps, reads, feeds = []) {
    const first = !this.#kernels.has(schedule);
    if (first) this.device.pushErrorScope("validation");
    const commands = this.#kernels.record(schedule);
    const size = reads.reduce((sum, [, bytes]) => sum + padded(bytes), 0);
    const readback = size ? this.#readbackOf(size * steps.length) : null;
    this.#writeLive(steps[0].slots);
    for (const [buffer, data] of steps[0].uploads) this.device.queue.writeBuffer(this.buffers[buffer], 0, data);
    const stage = steps.length > 1 ? this.#stage(steps.slice(1), feeds) : null;
    let encoder = this.device.createCommandEncoder();
    let whole = true;
    for (let number = 0; number < steps.length; number++) {
      if (number) stage?.(encoder, number - 1);
      for (let begin = 0; begin < commands.length; ) {
        const { end, known } = this.gpu.pace.part(schedule, begin);
        this.#pass(encoder, commands.slice(begin, end));
        if (end < commands.length) {
          whole = false;
          await this.#submitPart(encoder, schedule, begin, end, known, first);
          encoder = this.device.createCommandEncoder();
          if (first) this.device.pushErrorScope("validation");
        }
        begin = end;
      }
      let at = number * size;
      for (const [buffer, bytes] of reads) {
        encoder.copyBufferToBuffer(this.buffers[buffer], 0, /** @type {GPUBuffer} */ (readback), at, padded(bytes));
        at += padded(bytes);
      }
    }
    const began = performance.now();
    this.device.queue.submit([encoder.finish()]);
    if (first) await this.#throwIfInvalid();
    if (!readback) return this.#limitSubmits(steps.length);
    const results = await this.#mapped(readback, size, steps.length, reads);
    if (whole && steps.length === 1 && performance.now() - began > this.gpu.pace.limit) {
      this.gpu.pace.learn(schedule, 0, commands.length, began);
    }
    return results;
  }

  /**
   * Submit the first part of long work, and wait until at most one part is in flight; none if its duration is unknown.
   * @param {GPUCommandEncoder} encoder
   * @param {Schedule} schedule
   * @param {number} begin
   * @param {number} end
   * @param {boolean} known
   * @param {boolean} first
   */
  async #submitPart(encoder, schedule, begin, end, known, first) {
    const { pace } = this.gpu;
    const began = performance.now();
    this.device.queue.submit([encoder.finish()]);
    const previous = this.#lastSubmit;
    const done = this.device.queue.onSubmittedWorkDone();
    this.#lastSubmit = done.then(() => pace.learn(schedule, begin, end, began)).catch(() => {});
    if (first) await this.#throwIfInvalid();
    await (known ? previous : this.#lastSubmit);
    if (this.gpu.isLost()) throw deviceLostError();
  }

  /** @param {GPUCommandEncoder} encoder @param {DispatchCommand[]} commands */
  #pass(encoder, commands) {
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, parameters, grid } of commands) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, parameters);
      pass.setBindGroup(1, group);
      pass.dispatchWorkgroups(grid[0], grid[1], grid[2]);
    }
    pass.end();
  }

  /** @param {[number, number][]} slots */
  #writeLive(slots) {
    let low = NUM_LIVE_INTEGERS;
    let high = -1;
    for (const [slot, number] of slots) {
      if (this.#slots[slot * 4] === number) continue;
      this.#slots[slot * 4] = number;
      low = Math.min(low, slot);
      high = Math.max(high, slot);
    }
    if (high >= 0) this.device.queue.writeBuffer(this.#live, low * 16, this.#slots, low * 4, (high - low + 1) * 4);
  }

  /**
   * Write the inputs of later steps to the device before the first step starts, as commands cannot wait for the host.
   * @param {Step[]} steps
   * @param {Feed[]} feeds
   */
  #stage(steps, feeds) {
    const fed = feeds.reduce((sum, { bytes }) => sum + padded(bytes), 0);
    /** @type {[GPUBuffer, number, Uint8Array<ArrayBuffer>][][]} */
    const copies = [];
    let at = fed;
    for (const { slots, uploads } of steps) {
      for (const [slot, number] of slots) this.#slots[slot * 4] = number;
      /** @type {[GPUBuffer, Uint8Array<ArrayBuffer>][]} */
      const writes = [[this.#live, new Uint8Array(this.#slots.slice().buffer)]];
      for (const [buffer, data] of uploads) writes.push([this.buffers[buffer], data]);
      copies.push(
        writes.map(([target, data]) => {
          const offset = at;
          at += data.length;
          return [target, offset, data];
        }),
      );
    }
    const staging = this.#stagingOf(at);
    for (const [, offset, data] of copies.flat()) this.device.queue.writeBuffer(staging, offset, data);
    /** @param {GPUCommandEncoder} encoder @param {number} number */
    return (encoder, number) => {
      copyFeeds(encoder, staging, feeds, this.buffers);
      for (const [target, offset, { length }] of copies[number]) {
        encoder.copyBufferToBuffer(staging, offset, target, 0, length);
      }
    };
  }

  /** @param {number} size */
  #stagingOf(size) {
    if (!this.#staging || this.#staging.size < size) {
      this.#staging?.destroy();
      this.#staging = this.#buffer("steps", size, COPY_SRC | COPY_DST);
    }
    return this.#staging;
  }

  /**
   * Copy a row of buffers to another row. A copy within a buffer takes a second one.
   * @param {{ buffer: number, bytes: number }[]} tables with the bytes of a row
   * @param {number} from
   * @param {number} to
   */
  copyRows(tables, from, to) {
    const staging = this.#stagingOf(Math.max(...tables.map(({ bytes }) => bytes)));
    const encoder = this.device.createCommandEncoder();
    for (const { buffer, bytes } of tables) {
      encoder.copyBufferToBuffer(this.buffers[buffer], from * bytes, staging, 0, bytes);
      encoder.copyBufferToBuffer(staging, 0, this.buffers[buffer], to * bytes, bytes);
    }
    this.device.queue.submit([encoder.finish()]);
  }

  /** @param {number} size */
  #readbackOf(size) {
    if (!this.#readback || this.#readback.size < size) {
      this.#readback?.destroy();
      this.#readback = this.#buffer("results", size, MAP_READ | COPY_DST);
    }
    return this.#readback;
  }

  /**
   * @param {GPUBuffer} readback
   * @param {number} size of a step
   * @param {number} steps
   * @param {[number, number][]} reads
   */
  async #mapped(readback, size, steps, reads) {
    try {
      await readback.mapAsync(1, 0, size * steps);
      const mapped = readback.getMappedRange(0, size * steps);
      const results = Array.from({ length: steps }, (_, number) => {
        let at = number * size;
        return reads.map(([, bytes]) => {
          const start = at;
          at += padded(bytes);
          return mapped.slice(start, at);
        });
      });
      readback.unmap();
      return results;
    } catch (error) {
      await this.#throwIfLost(error);
      throw error;
    }
  }

  /**
   * Wait for the previous submit: without results to read, at most two submits may be in flight.
   * @param {number} steps
   */
  async #limitSubmits(steps) {
    const previous = this.#lastSubmit;
    this.#lastSubmit = this.device.queue.onSubmittedWorkDone().catch(() => {});
    await previous;
    if (this.gpu.isLost()) throw deviceLostError();
    return Array.from({ length: steps }, () => /** @type {ArrayBuffer[]} */ ([]));
  }

  /**
   * Return the bytes of a buffer.
   * @param {number} number
   * @param {number} bytes
   */
  async read(number, bytes) {
    const readback = this.#readbackOf(padded(bytes));
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.buffers[number], 0, readback, 0, padded(bytes));
    this.device.queue.submit([encoder.finish()]);
    return (await this.#mapped(readback, padded(bytes), 1, [[number, bytes]]))[0][0];
  }

  async #throwIfInvalid() {
    const invalid = await this.device.popErrorScope().catch((error) => this.#throwIfLost(error));
    if (invalid) throw new WebpteError("unsupported", `${this.plan.document.name}: ${invalid.message}`);
  }

  /** @param {unknown} cause */
  async #throwIfLost(cause) {
    if (await waitForLoss(this.gpu)) throw deviceLostError(cause);
  }

  /** Free everything but constants that other methods use. */
  dispose() {
    for (const buffer of this.#own) buffer.destroy();
    this.gpu.constants.release(this.#claimed);
    this.#claimed = [];
    this.#own = [];
  }
}

/**
 * Copy feeds through a staging buffer, because the target of one may be the source of another.
 * @param {GPUCommandEncoder} encoder
 * @param {GPUBuffer} staging
 * @param {Feed[]} feeds
 * @param {GPUBuffer[]} buffers
 */
function copyFeeds(encoder, staging, feeds, buffers) {
  let at = 0;
  const copies = feeds.map(({ from, to, bytes }) => {
    const start = at;
    at += padded(bytes);
    return { from, to, start, size: padded(bytes) };
  });
  for (const { from, start, size } of copies) encoder.copyBufferToBuffer(buffers[from], 0, staging, start, size);
  for (const { to, start, size } of copies) encoder.copyBufferToBuffer(staging, start, buffers[to], 0, size);
}

/** Return whether the device is lost. The browser may report that later than the calls that failed. @param {Gpu} gpu */
export async function waitForLoss(gpu) {
  await Promise.race([gpu.device.lost, new Promise((resolve) => setTimeout(resolve, MAX_LOSS_DELAY_MS))]);
  return gpu.isLost();
}

/** @param {unknown} [cause] */
export function deviceLostError(cause) {
  return new WebpteError("device-lost", "The GPU device was lost during this call. Call it again.", { cause });
}

/** @param {Plan} plan @param {GPUError} error */
function outOfMemoryError(plan, error) {
  const bytes = plan.document.buffers.reduce((sum, buffer) => sum + buffer.bytes, 0);
  return new WebpteError(
    "out-of-memory",
    `The GPU could not allocate ${Math.ceil(bytes / 2 ** 20)} MiB. ${error.message}`,
  );
}
