/**
 * The kernels of a plan on a device: pipelines, and for each schedule the bind groups of its dispatches, made once.
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./plan.js").Schedule} Schedule
 * @typedef {{
 *   pipeline: GPUComputePipeline, group: GPUBindGroup, parameters: GPUBindGroup, grid: [number, number, number]
 * }} Recorded
 * @typedef {[buffer: GPUBuffer, offset: number, size: number]} Range
 */
import { WebpteError } from "./errors.js";

const BLOCK = 256; // bytes of a parameter block

export class Kernels {
  /** @type {GPUComputePipeline[]} */ #pipelines = [];
  /** @type {Map<string, GPUBindGroupLayout>} */ #layouts = new Map();
  /** @type {Map<string, GPUBindGroup>} */ #groups = new Map();
  /** @type {GPUBindGroup[]} */ #parameters = [];
  /** @type {Map<Schedule, Recorded[]>} */ #recorded = new Map();
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
    return Math.max(1, this.#document.parameters.length) * BLOCK;
  }

  /** @param {GPUBuffer} buffer for parameters @param {GPUBuffer} live integers */
  writeParameters(buffer, live) {
    const { parameters } = this.#document;
    const blocks = new Uint8Array(buffer.size);
    const layout = this.#layout(["uniform", "uniform"]);
    this.#parameters = parameters.map((text, number) => {
      const at = number * BLOCK;
      blocks.set(
        Uint8Array.from(atob(text), (c) => c.charCodeAt(0)),
        at,
      );
      return this.#group(layout, [
        [buffer, at, BLOCK],
        [live, 0, live.size],
      ]);
    });
    this.#device.queue.writeBuffer(buffer, 0, blocks);
  }

  /**
   * @param {string} wgsl the texts of all kernels, one behind the other
   * @param {import("./progress.js").Progress} progress
   */
  async compile(wgsl, progress) {
    const device = this.#device;
    const uniforms = this.#layout(["uniform", "uniform"]);
    const { kernels } = this.#document;
    progress.kernels.total += kernels.length;
    this.#pipelines = await Promise.all(
      kernels.map(async ({ label, text, subgroups, workgroup }, number) => {
        const code = wgsl.slice(text[0], text[0] + text[1]); // in bytes, which are characters: shaders are ASCII
        const module = device.createShaderModule({ code: subgroups ? `enable subgroups;\n${code}` : code });
        const layout = device.createPipelineLayout({ bindGroupLayouts: [uniforms, this.#storage(number)] });
        const compute = { module, entryPoint: "main", constants: { wg: workgroup } };
        try {
          const made = await device.createComputePipelineAsync({ label, layout, compute });
          progress.add("compile", 1);
          return made;
        } catch (error) {
          throw new WebpteError("unsupported", `The browser refuses kernel ${label}: ${error}`, { cause: error });
        }
      }),
    );
  }

  /** @param {Schedule} schedule whether its bind groups are there */
  has(schedule) {
    return this.#recorded.has(schedule);
  }

  /** @param {Schedule} schedule @returns {Recorded[]} what a pass has to do */
  record(schedule) {
    let work = this.#recorded.get(schedule);
    if (!work) {
      work = schedule.dispatches.map(([kernel, ranges, block, grid]) => ({
        pipeline: this.#pipelines[kernel],
        group: this.#shared(kernel, ranges),
        parameters: this.#parameters[block],
        grid,
      }));
      this.#recorded.set(schedule, work);
    }
    return work;
  }

  /** @param {number} kernel @param {[number, number, number][]} ranges */
  #shared(kernel, ranges) {
    const { reads, writes } = this.#document.kernels[kernel];
    const key = `${reads} ${writes} ${ranges.join(" ")}`;
    let group = this.#groups.get(key);
    if (!group) {
      const bound = ranges.map(([buffer, ...range]) => /** @type {Range} */ ([this.#buffers[buffer], ...range]));
      group = this.#group(this.#storage(kernel), bound);
      this.#groups.set(key, group);
    }
    return group;
  }

  /** @param {GPUBufferBindingType[]} kinds */
  #layout(kinds) {
    const key = kinds.join();
    let found = this.#layouts.get(key);
    if (!found) {
      const entries = kinds.map((type, binding) => ({ binding, visibility: 4, buffer: { type } }));
      found = this.#device.createBindGroupLayout({ entries });
      this.#layouts.set(key, found);
    }
    return found;
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
