/**
 * The kernels of a plan on a device: pipelines, and the bind groups of each schedule's dispatches, created once.
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./plan.js").Schedule} Schedule
 * @typedef {{
 *   pipeline: GPUComputePipeline, group: GPUBindGroup, parameters: GPUBindGroup, grid: [number, number, number]
 * }} DispatchCommand
 * @typedef {[buffer: GPUBuffer, offset: number, size: number]} Range
 */
import { WebpteError } from "./errors.js";

const BLOCK_BYTES = 256; // of a parameter block

export class Kernels {
  /** @type {GPUComputePipeline[]} */ #pipelines = [];
  /** @type {Map<string, GPUBindGroupLayout>} */ #layouts = new Map();
  /** @type {Map<string, GPUBindGroup>} */ #groups = new Map();
  /** @type {GPUBindGroup[]} */ #parameters = [];
  /** @type {Map<Schedule, DispatchCommand[]>} */ #recorded = new Map();
  #device;
  #document;
  #buffers;

  /**
   * @param {GPUDevice} device
   * @param {Plan} plan
   * @param {GPUBuffer[]} buffers of the plan
   */
  constructor(device, plan, buffers) {
    this.#device = device;
    this.#document = plan.document;
    this.#buffers = buffers;
  }

  /** Bytes of all parameter blocks. */
  get parameterBytes() {
    return Math.max(1, this.#document.parameters.length) * BLOCK_BYTES;
  }

  /** @param {GPUBuffer} buffer for parameters @param {GPUBuffer} live integers */
  writeParameters(buffer, live) {
    const { parameters } = this.#document;
    const blocks = new Uint8Array(buffer.size);
    const layout = this.#layout(["uniform", "uniform"]);
    this.#parameters = parameters.map((text, number) => {
      const at = number * BLOCK_BYTES;
      blocks.set(
        Uint8Array.from(atob(text), (c) => c.charCodeAt(0)),
        at,
      );
      return this.#group(layout, [
        [buffer, at, BLOCK_BYTES],
        [live, 0, live.size],
      ]);
    });
    this.#device.queue.writeBuffer(buffer, 0, blocks);
  }

  /**
   * @param {string} wgsl the concatenated texts of all kernels
   * @param {import("./progress.js").Progress} progress
   */
  async compile(wgsl, progress) {
    const device = this.#device;
    const uniforms = this.#layout(["uniform", "uniform"]);
    const { kernels } = this.#document;
    progress.kernels.total += kernels.length;
    this.#pipelines = await Promise.all(
      kernels.map(async ({ label, text, subgroups, workgroup }, number) => {
        const code = wgsl.slice(text[0], text[0] + text[1]); // shaders are ASCII, so that bytes are characters
        const module = device.createShaderModule({ code: subgroups ? `enable subgroups;\n${code}` : code });
        const layout = device.createPipelineLayout({ bindGroupLayouts: [uniforms, this.#storage(number)] });
        const compute = { module, entryPoint: "main", constants: { wg: workgroup } };
        try {
          const pipeline = await device.createComputePipelineAsync({ label, layout, compute });
          progress.add("compile", 1);
          return pipeline;
        } catch (error) {
          throw new WebpteError("unsupported", `The browser rejected kernel ${label}: ${error}`, { cause: error });
        }
      }),
    );
  }

  /** Return whether the bind groups of a schedule exist. @param {Schedule} schedule */
  has(schedule) {
    return this.#recorded.has(schedule);
  }

  /** Return the commands of a schedule's pass. @param {Schedule} schedule @returns {DispatchCommand[]} */
  record(schedule) {
    let commands = this.#recorded.get(schedule);
    if (!commands) {
      commands = schedule.dispatches.map(([kernel, ranges, block, grid]) => ({
        pipeline: this.#pipelines[kernel],
        group: this.#storageGroup(kernel, ranges),
        parameters: this.#parameters[block],
        grid,
      }));
      this.#recorded.set(schedule, commands);
    }
    return commands;
  }

  /** @param {number} kernel @param {[number, number, number][]} ranges */
  #storageGroup(kernel, ranges) {
    const { reads, writes } = this.#document.kernels[kernel];
    const key = `${reads} ${writes} ${ranges.join(" ")}`;
    let group = this.#groups.get(key);
    if (!group) {
      const bindings = ranges.map(([buffer, ...range]) => /** @type {Range} */ ([this.#buffers[buffer], ...range]));
      group = this.#group(this.#storage(kernel), bindings);
      this.#groups.set(key, group);
    }
    return group;
  }

  /** @param {GPUBufferBindingType[]} kinds */
  #layout(kinds) {
    const key = kinds.join();
    let layout = this.#layouts.get(key);
    if (!layout) {
      const entries = kinds.map((type, binding) => ({ binding, visibility: 4, buffer: { type } }));
      layout = this.#device.createBindGroupLayout({ entries });
      this.#layouts.set(key, layout);
    }
    return layout;
  }

  /** @param {number} kernel */
  #storage(kernel) {
    const { reads, writes } = this.#document.kernels[kernel];
    return this.#layout([...Array(reads).fill("read-only-storage"), ...Array(writes).fill("storage")]);
  }

  /** @param {GPUBindGroupLayout} layout @param {Range[]} ranges */
  #group(layout, ranges) {
    const entries = ranges.map(([buffer, offset, size], binding) => ({ binding, resource: { buffer, offset, size } }));
    return this.#device.createBindGroup({ layout, entries });
  }
}
