/** Measure rates of copies, multiply-adds and dispatches on a device of their own. Kernels are those of Python. */

import { median, statistics } from "./report.js";

const MANY_DISPATCHES = 1000;
const SINGLE_ROUNDS = 20;
const MANY_ROUNDS = 5;
const RATE_ROUNDS = 3;
const RATE_DISPATCHES = 9; // more than one, because a browser's clock is coarse

/** A dispatch from one buffer to another. */
class Probe {
  #device;
  #pipeline;
  #groups;
  #grid;
  #buffers;

  constructor(device, { wgsl, uniforms, grid, bytes }) {
    this.#device = device;
    this.#grid = grid;
    const module = device.createShaderModule({ code: wgsl });
    this.#pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
    const words = Uint8Array.from(atob(uniforms), (letter) => letter.charCodeAt(0));
    const { UNIFORM, STORAGE, COPY_DST } = GPUBufferUsage;
    const size = Math.max(16, Math.ceil(words.length / 16) * 16);
    const parameters = device.createBuffer({ size, usage: UNIFORM | COPY_DST });
    const [source, target] = [0, 1].map(() => device.createBuffer({ size: bytes, usage: STORAGE }));
    this.#buffers = [parameters, source, target];
    device.queue.writeBuffer(parameters, 0, words);
    const group = (index, buffers) =>
      device.createBindGroup({
        layout: this.#pipeline.getBindGroupLayout(index),
        entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })),
      });
    this.#groups = [group(0, [parameters]), group(1, [source, target])];
  }

  /** Return the seconds of a submit of `count` dispatches, with the wait for it. */
  async seconds(count) {
    const began = performance.now();
    const encoder = this.#device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(this.#pipeline);
    for (const [index, group] of this.#groups.entries()) pass.setBindGroup(index, group);
    for (let number = 0; number < count; number += 1) pass.dispatchWorkgroups(...this.#grid);
    pass.end();
    this.#device.queue.submit([encoder.finish()]);
    await this.#device.queue.onSubmittedWorkDone();
    return (performance.now() - began) / 1e3;
  }

  async rounds(count, rounds) {
    const times = [];
    while (times.length < rounds) times.push(await this.seconds(count));
    return times;
  }

  destroy() {
    for (const buffer of this.#buffers) buffer.destroy();
  }
}

/** Return work per second, from the difference of long and short submits. */
async function rate(device, description) {
  const probe = new Probe(device, description);
  await probe.seconds(1); // compiles
  const short = Math.min(...(await probe.rounds(1, RATE_ROUNDS)));
  const long = Math.min(...(await probe.rounds(RATE_DISPATCHES, RATE_ROUNDS)));
  probe.destroy();
  // A clock that is too coarse shows no difference: then the long submit as a whole is a lower bound.
  return long > short
    ? ((RATE_DISPATCHES - 1) * description.work) / (long - short)
    : (RATE_DISPATCHES * description.work) / Math.max(long, 1e-9);
}

/** Return the probes of a report. */
export async function measureProbes(adapter, { copy, fma, dispatch }) {
  const device = await adapter.requestDevice({ label: "webpte probes" });
  try {
    const copyRate = await rate(device, copy);
    const flops = await rate(device, fma);
    const probe = new Probe(device, dispatch);
    await probe.seconds(1);
    const single = await probe.rounds(1, SINGLE_ROUNDS);
    const many = await probe.rounds(MANY_DISPATCHES, MANY_ROUNDS);
    return {
      copy_bytes_per_second: copyRate,
      flops_per_second: flops,
      dispatch_seconds: Math.max(0, (median(many) - median(single)) / (MANY_DISPATCHES - 1)),
      submit: statistics(single),
      submit_of_1000: statistics(many),
    };
  } finally {
    device.destroy();
  }
}
