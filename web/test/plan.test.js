import assert from "node:assert/strict";
import { test } from "node:test";
import { Call, Plan } from "../src/plan.js";
import { documentOf, x } from "./support/plan.js";

const planOf = (changes) => new Plan(/** @type {any} */ (documentOf(changes)));

test("a plan of several submits or with work for the CPU is refused", () => {
  const stage = { submit: 0 };
  assert.throws(() => planOf({ blocks: [{ stages: [stage, stage] }] }), { code: "unsupported" });
  assert.throws(() => planOf({ blocks: [{ stages: [stage] }, { stages: [] }] }), { code: "unsupported" });
  assert.throws(() => planOf({ cpu_calls: [{ name: "sort" }] }), { code: "unsupported" });
});

test("the dims of a call select its schedule, which is compiled once", () => {
  const plan = planOf();
  const [four, two] = [new Call(plan, [x(1, 2, 3, 4), 2]), new Call(plan, [x(1, 2), 2])];
  assert.equal(plan.schedule(four).dispatches[0][3][0], 4);
  assert.equal(plan.schedule(two).dispatches[0][3][0], 2);
  assert.equal(plan.schedule(four), plan.schedule(new Call(plan, [x(4, 3, 2, 1), 9])));
});

test("a shape without a schedule is refused with those that have one", () => {
  const call = new Call(planOf(), [x(1, 2, 3), 2]);
  assert.throws(() => call.plan.schedule(call), { code: "shape", message: /\[4\]; \[2\], got \[3\]/ });
});

test("decisions select among schedules of the same dims", () => {
  const [one] = documentOf().schedules;
  const large = ["ge", ["scalar", 1], 10];
  const plan = planOf({
    schedules: [
      { ...one, specializations: [[large, 0]] },
      { ...one, specializations: [[large, 1]] },
    ],
  });
  const chosen = (factor) => plan.schedule(new Call(plan, [x(1, 2, 3, 4), factor]));
  assert.notEqual(chosen(2), chosen(20));
  assert.equal(chosen(2), chosen(3));
  assert.equal(chosen(20), chosen(10));
});

test("scalars that select a schedule are part of the key", () => {
  const [one] = documentOf().schedules;
  const segments = [{ ...documentOf().segments[0], scalars: [1] }];
  const plan = planOf({ segments, schedules: [{ ...one, scalars: [["scalar", 1, true]] }] });
  assert.ok(plan.schedule(new Call(plan, [x(1, 2, 3, 4), 5])));
});

test("guards refuse numbers outside low ≤ x < high, with the number", () => {
  const plan = planOf();
  const slots = (factor) => {
    const call = new Call(plan, [x(1, 2), factor]);
    return call.slots(plan.schedule(call));
  };
  assert.deepEqual(slots(1), [[3, 1]]);
  assert.deepEqual(slots(99), [[3, 99]]);
  for (const factor of [0, 100]) {
    assert.throws(() => slots(factor), { code: "input", message: `scale: the factor is ${factor}` });
  }
});

test("the number and the kinds of arguments are checked", () => {
  const plan = planOf();
  assert.throws(() => new Call(plan, [x(1)]), { code: "input", message: /expected 2, got 1/ });
  assert.throws(() => new Call(plan, [x(1), 1.5]), { code: "input", message: /input 1 of scale: .* got 1\.5/ });
  assert.throws(() => new Call(plan, [x(1), 2 ** 31]), { code: "input", message: /2147483648/ });
  assert.throws(() => new Call(plan, [x(1), /** @type {any} */ ("a")]), { code: "input", message: /a number/ });
  assert.throws(() => new Call(plan, [7, 1]), { code: "input", message: /input 0 of scale: expected \{data, dims\}/ });
});

test("a scalar may come as a tensor of one element, a boolean as any number", () => {
  assert.equal(new Call(planOf(), [x(1), { data: [7], dims: [] }]).scalar(1), 7);
  const values = { ...documentOf().values, 1: { kind: "symbool" } };
  assert.equal(new Call(planOf({ values }), [x(1), 5]).scalar(1), 1);
  assert.equal(new Call(planOf({ values }), [x(1), false]).scalar(1), 0);
});

test("the least and the greatest element of an input are guarded", () => {
  const [one] = documentOf().schedules;
  const guard = { low: null, high: null, where: "look-up", message: "got {0}", format_args: [] };
  const guards = [
    { ...guard, term: ["least", 0], low: 1 },
    { ...guard, term: ["sum", 1, [2, ["greatest", 0]]], high: 10 },
  ];
  const plan = planOf({ schedules: [{ ...one, guards }] });
  const slots = (...values) => {
    const call = new Call(plan, [x(...values), 1]);
    return call.slots(plan.schedule(call));
  };
  assert.ok(slots(4, 1, 3, 2));
  assert.throws(() => slots(1, 2, 0, 1), { code: "input", message: "look-up: got 0" });
  assert.throws(() => slots(1, 2, 5, 1), { code: "input", message: "look-up: got 11" });
});

test("elements are found by index in row-major order, negative ones from the end", () => {
  const values = { ...documentOf().values, 0: { ...documentOf().values[0], dims: [2, 3] } };
  const call = new Call(planOf({ values }), [{ data: [0, 1, 2, 3, 4, 5], dims: [2, 3] }, 1]);
  assert.deepEqual([call.element(0, [1, 0]), call.element(0, [0, -1]), call.element(0, [-1, -2])], [3, 2, 4]);
  assert.throws(() => call.element(2, [0]), { code: "damaged", message: /value 2/ });
});

test("outputs are copies, and numbers become tensors of no dims", () => {
  const values = { ...documentOf().values, 4: { kind: "float", value: 0.5 }, 5: { kind: "bool", value: true } };
  const call = new Call(planOf({ values }), [x(1, 2), 3]);
  const first = call.output(0);
  first.data[0] = 9;
  assert.deepEqual([...call.output(0).data], [1, 2]);
  assert.deepEqual(call.output(1), { data: Int32Array.of(3), dims: [], dtype: "i64" });
  assert.deepEqual(call.output(4), { data: Float64Array.of(0.5), dims: [], dtype: "f64" });
  assert.deepEqual(call.output(5), { data: Uint8Array.of(1), dims: [], dtype: "bool" });
});

test("numbers that a schedule computes are known behind it", () => {
  const plan = planOf({
    schedules: [{ ...documentOf().schedules[0], result_scalars: { 6: ["mul", ["scalar", 1], 2] } }],
  });
  const call = new Call(plan, [x(1, 2, 3, 4), 21]);
  call.storeScalars(plan.schedule(call));
  assert.equal(call.scalar(6), 42);
});

test("constants that the host looks at are those that no kernel makes", () => {
  assert.deepEqual(planOf().hostConstants, []);
  assert.deepEqual(planOf({ outputs: [2, 3] }).hostConstants, [3]);
});
