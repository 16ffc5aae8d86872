import assert from "node:assert/strict";
import { test } from "node:test";
import { fromCaller, fromDevice, numel, padded, storedBytes, toDevice } from "../src/tensors.js";

const spec = (changes) => ({
  kind: "tensor",
  dtype: "f32",
  host_dtype: "f32",
  dims: [2, 3],
  dynamic: false,
  ...changes,
});
const refused = (given, changes, message) =>
  assert.throws(() => fromCaller(given, spec(changes), "Input 1"), { code: "input", message });

test("sizes: elements, bytes on the device, multiples of four", () => {
  assert.equal(numel([]), 1);
  assert.equal(numel([2, 3, 5]), 30);
  assert.equal(numel([4, 0]), 0);
  assert.deepEqual([0, 1, 4, 5].map(padded), [0, 4, 4, 8]);
  assert.equal(storedBytes("f16", [3]), 6);
  assert.equal(storedBytes("bool", [3]), 12);
  assert.equal(storedBytes("i8", [3, 5]), 15);
});

test("a typed array of the declared type is taken without a copy", () => {
  const data = new Float32Array(6);
  assert.equal(fromCaller({ data, dims: [2, 3] }, spec({}), "").data, data);
});

test("the caller's dims are copied", () => {
  const dims = [2, 3];
  const tensor = fromCaller({ data: Array(6).fill(0), dims }, spec({}), "");
  dims[0] = 9;
  assert.deepEqual(tensor.dims, [2, 3]);
});

test("static dims must be equal, dynamic ones may be smaller but not empty", () => {
  const zeros = (...dims) => ({ data: Array(numel(dims)).fill(0), dims });
  refused(zeros(3, 2), {}, /expected dims \[2, 3\], got \[3, 2\]/);
  refused(zeros(6), {}, /got \[6\]/);
  assert.deepEqual(fromCaller(zeros(1, 3), spec({ dynamic: true }), "").dims, [1, 3]);
  refused(zeros(2, 4), { dynamic: true }, /from 1 to \[2, 3\]/);
  refused(zeros(0, 3), { dynamic: true }, /dims from 1/);
  refused({ data: [0, 0, 0], dims: [1.5, 2] }, { dynamic: true }, /1\.5/);
});

test("the number of elements must fit the dims", () => {
  refused({ data: [1, 2, 3], dims: [2, 3] }, {}, /Input 1: expected 6 numbers for dims \[2, 3\], got 3/);
  refused({ data: [1] }, {}, /\{data, dims\}/);
  refused(5, {}, /\{data, dims\}/);
  refused(null, {}, /\{data, dims\}/);
});

test("integers that the dtype cannot hold are refused by value", () => {
  const one = (data) => ({ data, dims: [1] });
  refused(one([300]), { host_dtype: "u8", dims: [1] }, /dtype u8, got 300/);
  refused(one([-1]), { host_dtype: "u32", dims: [1] }, /got -1/);
  refused(one([1.5]), { host_dtype: "i64", dims: [1] }, /got 1\.5/);
  assert.deepEqual(fromCaller(one([255]), spec({ host_dtype: "u8", dims: [1] }), "").data, Uint8Array.of(255));
});

test("64-bit integers: those of 32 bits travel, larger ones are refused at the device", () => {
  const i64 = spec({ dtype: "i32", host_dtype: "i64", dims: [2] });
  const small = fromCaller({ data: BigInt64Array.of(-5n, 7n), dims: [2] }, i64, "");
  assert.deepEqual(small.data, Int32Array.of(-5, 7));
  const large = fromCaller({ data: [1, 2 ** 40], dims: [2] }, i64, "");
  assert.deepEqual(large.data, Float64Array.of(1, 2 ** 40));
  assert.throws(() => toDevice(large, "i32", "Input 0"), { code: "input", message: /got 1099511627776/ });
});

test("f16 and bf16 are rounded as they enter", () => {
  const entered = (host) =>
    fromCaller({ data: [0.1, 1e6, -1], dims: [3] }, spec({ host_dtype: host, dims: [3] }), "").data;
  assert.deepEqual(entered("f16"), Float32Array.of(0.0999755859375, Infinity, -1));
  assert.deepEqual(entered("bf16"), Float32Array.of(0.10009765625, 999424, -1));
});

test("an f64 beyond the f32 is refused at the device, infinity is not", () => {
  const tensor = (x) => ({ data: Float64Array.of(x), dims: [1], dtype: "f64" });
  assert.throws(() => toDevice(tensor(1e300), "f32", "Input 2"), { code: "input", message: /Input 2/ });
  assert.equal(new Float32Array(toDevice(tensor(Infinity), "f32", "").buffer)[0], Infinity);
});

test("the device is given whole words", () => {
  const bytes = toDevice({ data: Int8Array.of(1, -1, 2), dims: [3], dtype: "i8" }, "i8", "");
  assert.deepEqual([...bytes], [1, 255, 2, 0]);
  const halves = toDevice({ data: Float32Array.of(1, 2, -0), dims: [3], dtype: "f16" }, "f16", "");
  assert.deepEqual([...new Uint16Array(halves.buffer)], [0x3c00, 0x4000, 0x8000, 0]);
  const booleans = toDevice({ data: Uint8Array.of(0, 1), dims: [2], dtype: "bool" }, "bool", "");
  assert.deepEqual([...new Uint32Array(booleans.buffer)], [0, 1]);
});

test("a view into a larger buffer is given as its own bytes only", () => {
  const data = new Float32Array([9, 1, 2, 9]).subarray(1, 3);
  const bytes = toDevice({ data, dims: [2], dtype: "f32" }, "f32", "");
  assert.deepEqual([...new Float32Array(bytes.slice().buffer)], [1, 2]);
});

test("what the device made comes back in the caller's dtype", () => {
  const found = (array, changes) => fromDevice(array.buffer, [2], spec({ dims: [2], ...changes })).data;
  assert.deepEqual(
    found(Uint16Array.of(0x3c00, 0xfc00), { dtype: "f16", host_dtype: "f16" }),
    Float32Array.of(1, -Infinity),
  );
  assert.deepEqual(found(Uint32Array.of(1, 0), { dtype: "bool", host_dtype: "bool" }), Uint8Array.of(1, 0));
  assert.deepEqual(found(Float32Array.of(1 + 2 ** -12, 2), { host_dtype: "f16" }), Float32Array.of(1, 2));
  assert.deepEqual(found(Float32Array.of(0.5, 2, 7), { host_dtype: "f64" }), Float64Array.of(0.5, 2)); // padding is cut off
});

test("bool inputs are 0 or 1 whatever the caller's type", () => {
  const tensor = fromCaller({ data: [true, false, true], dims: [3] }, spec({ host_dtype: "bool", dims: [3] }), "");
  assert.deepEqual(tensor.data, Uint8Array.of(1, 0, 1));
});
