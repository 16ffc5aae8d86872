// A plan of one kernel, and what a program needs to run it: output[i] = input[i] * factor + weight[i].
import { Constants } from "../../src/constants.js";
import { Instance } from "../../src/instance.js";
import { Method } from "../../src/method.js";
import { Pace } from "../../src/pacing.js";
import { Plan } from "../../src/plan.js";
import { Progress } from "../../src/progress.js";
import { FakeDevice } from "./gpu.js";

export const WEIGHT = [10, 20, 30, 40];
const WGSL = "fn main() {}";
const tensor = { kind: "tensor", dtype: "f32", host_dtype: "f32", dims: [4], dynamic: true, constant: null };

const schedule = (size) => ({
  dims: [[size]],
  scalars: [],
  specializations: [],
  guards: [{ term: ["scalar", 1], low: 1, high: 100, where: "scale", message: "the factor is {0}", format_args: [] }],
  slots: [[3, ["scalar", 1]]],
  dispatches: [
    [
      0,
      [
        [0, 0, 4 * size],
        [2, 0, 4 * size],
        [1, 0, 4 * size],
      ],
      0,
      [size, 1, 1],
    ],
  ],
  result_dims: { 2: [size] },
  result_scalars: {},
});

/** Values: 0 and 1 are the inputs x and factor, 2 is the output, 3 the weight. */
export const documentOf = (changes = {}) => ({
  name: "scale",
  files: [{ sha256: "weights", bytes: 20 }],
  inputs: [0, 1],
  outputs: [2],
  names: {},
  values: {
    0: tensor,
    1: { kind: "symint", value: 1 },
    2: tensor,
    3: { ...tensor, dims: [4], dynamic: false, constant: { name: "w", stored_dtype: "f32", spans: [[0, 4, 16]] } },
  },
  blocks: [{ stages: [{ submit: 0 }] }],
  segments: [{ tensors: [0], scalars: [], host_reads: [], uploads: [0], updates: [], readbacks: [2] }],
  cpu_calls: [],
  buffers: [
    { bytes: 16, kind: "activation", fill: null },
    { bytes: 16, kind: "activation", fill: null },
    { bytes: 16, kind: "constant", fill: { name: "w", stored_dtype: "f32", dtype: "f32", spans: [[0, 4, 16]] } },
  ],
  value_buffers: { 0: 0, 2: 1 },
  on_host: [],
  state: [],
  unmodified_uploads: [],
  checks: {},
  kernels: [{ label: "scale", workgroup: 64, reads: 2, writes: 1, subgroups: false, text: [0, WGSL.length] }],
  parameters: [btoa("\x07")],
  schedules: [schedule(4), schedule(2)],
  ...changes,
});

/** Files of a bundle whose only shard holds the weight behind four other bytes. */
export const weightFiles = () => {
  const shard = new Uint8Array([9, 9, 9, 9, ...new Uint8Array(Float32Array.from(WEIGHT).buffer)]);
  return {
    manifest: { files: { weights: { bytes: shard.length, path: "weights", type: "weights" } } },
    reads: 0,
    async bytes(_sha, { into, onBytes }) {
      this.reads++;
      into.set(shard);
      onBytes(shard.length);
      return into.subarray(0, shard.length);
    },
  };
};

export const scale = ([x, w, y], { live, grid }) => {
  const [input, weight] = [x, w].map((bytes) => new Float32Array(bytes.slice().buffer));
  const output = input.map((number, i) => number * live[4 * 3] + weight[i]).slice(0, grid[0]);
  y.set(new Uint8Array(output.buffer));
};

/** Two inputs and two outputs instead: (a, b) becomes (b, a + b). */
export function pairDocument() {
  const { values, buffers, segments, kernels, schedules } = documentOf();
  const size = 2;
  const range = (buffer) => [buffer, 0, 4 * size];
  return {
    inputs: [0, 4],
    outputs: [2, 5],
    values: { ...values, 4: tensor, 5: tensor },
    buffers: Array.from({ length: 4 }, () => buffers[0]),
    value_buffers: { 0: 0, 4: 1, 2: 2, 5: 3 },
    segments: [{ ...segments[0], tensors: [0, 4], uploads: [0, 4], readbacks: [2, 5] }],
    kernels: [{ ...kernels[0], label: "pair", reads: 2, writes: 2 }],
    schedules: [
      {
        ...schedules[0],
        dims: [[size], [size]],
        guards: [],
        slots: [],
        dispatches: [[0, [0, 1, 2, 3].map(range), 0, [size, 1, 1]]],
        result_dims: { 2: [size], 5: [size] },
      },
    ],
  };
}

const pair = ([a, b, first, second]) => {
  const [one, other] = [a, b].map((bytes) => new Float32Array(bytes.slice().buffer));
  first.set(b);
  second.set(new Uint8Array(one.map((number, i) => number + other[i]).buffer));
};

export async function methodOf(changes = {}) {
  const plan = new Plan(/** @type {any} */ (documentOf(changes)));
  const device = new FakeDevice({ scale, pair });
  const files = weightFiles();
  const progress = new Progress();
  const constants = new Constants(/** @type {any} */ (device), /** @type {any} */ (files), progress);
  const gpu = /** @type {any} */ ({
    device,
    constants,
    pace: new Pace(Infinity),
    isLost: () => device.broken !== null,
  });
  const program = {
    losses: 0,
    recoveries: 0,
    removed: [],
    ensureDevice: async () => {},
    remove: (method) => program.removed.push(method),
    recover: async () => {
      program.recoveries++;
      device.broken = null;
    },
  };
  const instance = new Instance(gpu, plan);
  await instance.open(WGSL, plan.hostConstants, progress, new AbortController().signal);
  const method = new Method(/** @type {any} */ (program), plan, [], []);
  method.attach(instance);
  return { plan, device, files, constants, program, instance, method, progress };
}

export const x = (...data) => ({ data, dims: [data.length] });
export const numbers = (tensors) => tensors.map(({ data }) => [...data]);
