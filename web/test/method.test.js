import assert from "node:assert/strict";
import { test } from "node:test";
import { deviceLostError } from "../src/instance.js";
import { documentOf, methodOf, numbers, pairDocument, WEIGHT, x } from "./support/plan.js";

const scaled = (data, factor) => data.map((number, i) => number * factor + WEIGHT[i]);

test("a call uploads, dispatches and reads back", async () => {
  const { method } = await methodOf();
  assert.deepEqual(numbers(await method.run([x(1, 2, 3, 4), 2])), [scaled([1, 2, 3, 4], 2)]);
  assert.deepEqual(numbers(await method.run([x(5, 6), 3])), [scaled([5, 6], 3)]);
});

test("constants may be outputs, and outputs are chosen by position", async () => {
  const { method } = await methodOf({ outputs: [2, 3] });
  assert.deepEqual(numbers(await method.run([x(1, 2), 2], { outputs: [1, 0] })), [WEIGHT, scaled([1, 2], 2)]);
  await assert.rejects(method.run([x(1, 2), 2], { outputs: [2] }), { code: "input", message: /from 0 to 1, got 2/ });
});

test("calls run one after the other, and a refused one does not hold up the next", async () => {
  const { method } = await methodOf();
  const calls = [method.run([x(1, 1), 1]), method.run([x(1, 1), 0]), method.run([x(2, 2), 3])];
  const [first, second, third] = /** @type {any[]} */ (await Promise.allSettled(calls));
  assert.deepEqual(numbers(first.value), [[11, 21]]);
  assert.equal(second.reason.code, "input");
  assert.deepEqual(numbers(third.value), [[16, 26]]);
});

test("steps that feed each other take one submit and have the results of single calls", async () => {
  const { method, device } = await methodOf();
  const factors = [2, 3, 5, 7];
  const [expected, before] = [[], device.submits];
  for (let [data, at] = [[1, 2, 3, 4], 0]; at < 4; at++) {
    data = scaled(data, factors[at]);
    expected.push([data]);
  }
  const found = await method.runSteps(
    factors.map((factor) => [x(1, 2, 3, 4), factor]),
    { 0: 0 },
  );
  assert.deepEqual(found.map(numbers), expected);
  assert.equal(device.submits, before + 1);
});

test("several outputs are read at their own places, and feed several inputs", async () => {
  const { method, device } = await methodOf(pairDocument());
  const start = [x(0, 10), x(1, 10)];
  assert.deepEqual(numbers(await method.run(start)), [
    [1, 10],
    [1, 20],
  ]);
  const before = device.submits;
  const found = await method.runSteps(Array(6).fill(start), { 0: 0, 1: 1 });
  assert.equal(device.submits, before + 1);
  const fibonacci = found.map((step) => numbers(step)[1][0]);
  assert.deepEqual(fibonacci, [1, 2, 3, 5, 8, 13]);
  assert.deepEqual(numbers(found[5])[0], [8, 130]);
});

test("steps without feeds have inputs of their own", async () => {
  const { method } = await methodOf();
  const found = await method.runSteps(
    [
      [x(1, 2), 2],
      [x(3, 4), 5],
      [x(5, 6), 7],
    ],
    {},
  );
  assert.deepEqual(found.map(numbers), [[scaled([1, 2], 2)], [scaled([3, 4], 5)], [scaled([5, 6], 7)]]);
});

test("steps of different shapes run one by one", async () => {
  const { method, device } = await methodOf();
  const before = device.submits;
  const found = await method.runSteps(
    [
      [x(1, 2), 2],
      [x(1, 2, 3, 4), 3],
    ],
    {},
  );
  assert.deepEqual(found.map(numbers), [[scaled([1, 2], 2)], [scaled([1, 2, 3, 4], 3)]]);
  assert.equal(device.submits, before + 2);
});

test("steps that cannot feed each other are refused before any runs", async () => {
  const { method, device } = await methodOf();
  const before = device.submits;
  const both = [
    [x(1, 2), 2],
    [x(1, 2), 2],
  ];
  await assert.rejects(method.runSteps(both, { 0: 1 }), { code: "input", message: /two tensors/ });
  await assert.rejects(
    method.runSteps(
      [
        [x(1, 2), 2],
        [x(1, 2), 1.5],
      ],
      { 0: 0 },
    ),
    { code: "input" },
  );
  await assert.rejects(
    method.runSteps(
      [
        [x(1, 2), 2],
        [x(1, 2), 0],
      ],
      { 0: 0 },
    ),
    { code: "input", message: /factor is 0/ },
  );
  assert.equal(device.submits, before);
  assert.deepEqual(await method.runSteps([], { 0: 0 }), []);
});

test("a live integer of one call does not leak into the next", async () => {
  const { method } = await methodOf();
  await method.runSteps(
    [
      [x(1, 1), 9],
      [x(1, 1), 8],
    ],
    {},
  );
  assert.deepEqual(numbers(await method.run([x(1, 1), 9])), [[19, 29]]);
  assert.deepEqual(numbers(await method.run([x(1, 1), 8])), [[18, 28]]);
});

test("a call whose device is lost runs again on the next one", async () => {
  const { method, device, program } = await methodOf();
  device.broken = new Error("device lost");
  assert.deepEqual(numbers(await method.run([x(1, 2), 2])), [scaled([1, 2], 2)]);
  assert.equal(program.recoveries, 1);
});

test("a device that is lost every time fails after four attempts", async () => {
  const { method, device, program } = await methodOf();
  program.recover = async () => void program.recoveries++;
  device.broken = new Error("device lost");
  await assert.rejects(method.run([x(1, 2), 2]), { code: "device-lost" });
  assert.equal(program.recoveries, 3);
});

test("a method with state reports a loss to its caller once, and then goes on", async () => {
  const buffers = [...documentOf().buffers, { bytes: 16, kind: "state", fill: null }];
  const { method, program } = await methodOf({ state: [7], buffers });
  program.losses++;
  await assert.rejects(method.run([x(1, 2), 2]), { code: deviceLostError().code });
  assert.deepEqual(numbers(await method.run([x(1, 2), 2])), [scaled([1, 2], 2)]);
});

test("a check that a kernel fails is an error of the input", async () => {
  const { method } = await methodOf({ checks: { 2: "an index is out of range" } });
  await assert.rejects(method.run([x(1, 2), 2]), { code: "input", message: "an index is out of range" });
  assert.deepEqual(numbers(await method.run([x(-5, -10), 2])), [[0, 0]]);
});

test("a stopped call ends at once, and the method stays usable", async () => {
  const { method } = await methodOf();
  await assert.rejects(method.run([x(1, 2), 2], { signal: AbortSignal.abort() }), { code: "aborted" });
  const stop = new AbortController();
  const call = method.run([x(1, 2), 2], { signal: stop.signal });
  stop.abort();
  await assert.rejects(call, { code: "aborted" });
  assert.deepEqual(numbers(await method.run([x(1, 2), 2])), [scaled([1, 2], 2)]);
});

test("state continues in another method, and a reset clears it", async () => {
  const buffers = (bytes) => [...documentOf().buffers, { bytes, kind: "state", fill: null }];
  const [small, large] = [await methodOf({ buffers: buffers(8) }), await methodOf({ buffers: buffers(16) })];
  const stateOf = ({ method }) => /** @type {any} */ (method.stateBuffers[0]).data;
  stateOf(small).fill(5);
  large.method.takeState(small.method);
  assert.deepEqual([...stateOf(large)], [...Array(8).fill(5), ...Array(8).fill(0)]);
  large.method.reset();
  assert.ok(stateOf(large).every((byte) => byte === 0));
});

test("a row of every recurrent state is copied over another row", async () => {
  const { values, buffers, value_buffers } = documentOf();
  const state = (...dims) => ({ ...values[0], dims, dynamic: false });
  const { method } = await methodOf({
    values: { ...values, 7: state(3, 2, 2), 8: state(3, 1, 2), 9: state(2, 4, 1, 2) },
    buffers: [...buffers, ...[48, 24, 64].map((bytes) => ({ bytes, kind: "state", fill: null }))],
    value_buffers: { ...value_buffers, 7: 3, 8: 4, 9: 5 },
    state: [7, 8, 9],
  });
  const datas = /** @type {any[]} */ (method.stateBuffers).map(({ data }) => data);
  for (const data of datas) data.set(data.map((/** @type {number} */ _, /** @type {number} */ at) => at));
  method.copyStateRow(2, 0);
  const eighths = datas.map((data) => [...data].filter((_, at) => at % 8 === 0));
  assert.deepEqual(eighths, [
    [32, 40, 16, 24, 32, 40],
    [16, 8, 16],
    [0, 8, 16, 24, 32, 40, 48, 56],
  ]);
});

test("a disposed method frees its buffers, constants with their last user", async () => {
  const { method, device, program } = await methodOf();
  method.dispose();
  assert.ok(device.buffers.every(({ destroyed }) => destroyed));
  assert.deepEqual(program.removed, [method]);
  await assert.rejects(method.run([x(1, 2), 2]), { code: "disposed" });
});
