import assert from "node:assert/strict";
import { test } from "node:test";
import { Constants } from "../src/constants.js";
import { Kernels } from "../src/kernels.js";
import { Plan } from "../src/plan.js";
import { Progress } from "../src/progress.js";
import { FakeDevice } from "./support/gpu.js";
import { documentOf, scale, WEIGHT, weightFiles } from "./support/plan.js";

const { signal } = new AbortController();
const planOf = (changes) => new Plan(/** @type {any} */ (documentOf(changes)));

function setUp() {
  const [device, files, progress] = [new FakeDevice(), weightFiles(), new Progress()];
  return {
    device,
    files,
    progress,
    constants: new Constants(/** @type {any} */ (device), /** @type {any} */ (files), progress),
  };
}

test("methods share the buffer of the same bytes, which is loaded once and freed with its last user", async () => {
  const { device, files, constants } = setUp();
  const [first, second] = [constants.claim(planOf(), [], signal), constants.claim(planOf(), [], signal)];
  await Promise.all([first.filled, second.filled]);
  const buffer = /** @type {any} */ (first.buffers.get(2));
  assert.equal(second.buffers.get(2), buffer);
  assert.equal(files.reads, 1);
  assert.equal(device.buffers.length, 1);
  assert.deepEqual([...new Float32Array(buffer.data.buffer)], WEIGHT);
  constants.release(first.keys);
  assert.equal(buffer.destroyed, false);
  constants.release(second.keys);
  assert.equal(buffer.destroyed, true);
  await constants.claim(planOf(), [], signal).filled;
  assert.equal(files.reads, 2);
});

test("the host gets copies of the constants that it looks at", async () => {
  const { constants } = setUp();
  const { host, filled } = constants.claim(planOf(), [3], signal);
  await filled;
  assert.deepEqual([...new Float32Array(host.get(3))], WEIGHT);
});

test("a constant of several spans whose end is no whole word is joined and padded", async () => {
  const { constants } = setUp();
  const spans = [
    [0, 4, 4],
    [0, 8, 3],
  ];
  const buffers = [{ bytes: 8, kind: "constant", fill: { name: "w", stored_dtype: "u8", dtype: "u8", spans } }];
  const { buffers: found, filled } = constants.claim(planOf({ buffers }), [], signal);
  await filled;
  const source = new Uint8Array(Float32Array.from(WEIGHT).buffer);
  assert.deepEqual([.../** @type {any} */ (found.get(0)).data], [...source.slice(0, 7), 0]);
});

test("a shard that cannot be loaded fails the claim, and progress knows the total", async () => {
  const { files, progress, constants } = setUp();
  files.bytes = async () => {
    throw new Error("offline");
  };
  await assert.rejects(constants.claim(planOf(), [], signal).filled, /offline/);
  assert.deepEqual(progress.weights, { done: 0, total: 20, cached: 0 });
});

test("kernels: dispatches over the same ranges share a bind group, and schedules are recorded once", async () => {
  const device = new FakeDevice({ scale });
  const [one] = documentOf().schedules;
  const dispatches = [one.dispatches[0], one.dispatches[0]];
  const plan = planOf({ schedules: [{ ...one, dispatches }] });
  const buffers = plan.document.buffers.map(({ bytes }) => device.createBuffer({ size: bytes }));
  const kernels = new Kernels(/** @type {any} */ (device), plan, buffers);
  await kernels.compile("fn main() {}", new Progress());
  kernels.writeParameters(device.createBuffer({ size: kernels.parameterBytes }), device.createBuffer({ size: 4096 }));
  const schedule = /** @type {any} */ ({ dispatches });
  assert.equal(kernels.has(schedule), false);
  const [first, second] = kernels.record(schedule);
  assert.equal(first.group, second.group);
  assert.equal(kernels.record(schedule)[0], first);
  assert.equal(kernels.has(schedule), true);
  assert.deepEqual(
    /** @type {any} */ (first.group).layout.entries.map(({ buffer }) => buffer.type),
    ["read-only-storage", "read-only-storage", "storage"],
  );
});

test("kernels: each has its part of the text, and subgroups are enabled where they are used", async () => {
  const device = new FakeDevice({ a: () => {}, b: () => {} });
  const kernel = { workgroup: 64, reads: 1, writes: 1 };
  const kernels = [
    { ...kernel, label: "a", subgroups: false, text: [0, 3] },
    { ...kernel, label: "b", subgroups: true, text: [3, 4] },
  ];
  await new Kernels(/** @type {any} */ (device), planOf({ kernels }), []).compile("aaabbbb", new Progress());
  assert.deepEqual(device.modules, ["aaa", "enable subgroups;\nbbbb"]);
  const unknown = planOf({ kernels: [{ ...kernels[0], label: "c" }] });
  await assert.rejects(new Kernels(/** @type {any} */ (device), unknown, []).compile("aaa", new Progress()), {
    code: "unsupported",
    message: /kernel c/,
  });
});
