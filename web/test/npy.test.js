import assert from "node:assert/strict";
import { test } from "node:test";
import { compare, golden, suspects } from "../pages/check/compare.js";
import { readNpy, writeNpy } from "../pages/program/npy.js";

const latin = (bytes) => String.fromCharCode(...bytes);

test("arrays survive a round trip through a .npy file", () => {
  const cases = [
    { data: [1.5, -2, 3], dims: [3], dtype: "f32" },
    { data: [1, -2, 3, 4], dims: [2, 2], dtype: "i16" },
    { data: [1, 0], dims: [1, 2, 1], dtype: "bool" },
    { data: [0.1], dims: [], dtype: "f64" },
  ];
  for (const tensor of cases) {
    const bytes = writeNpy(tensor);
    const found = readNpy(bytes.buffer);
    assert.deepEqual([[...found.data], found.dims], [tensor.data, tensor.dims]);
  }
  assert.deepEqual(
    readNpy(writeNpy({ data: [2 ** 40], dims: [1], dtype: "i64" }).buffer).data,
    BigInt64Array.of(2n ** 40n),
  );
});

test("the header is that of NumPy's version 1, with the data at a multiple of 64", () => {
  for (const dims of [[3, 5], [1000], ...Array.from({ length: 66 }, (_, rank) => Array(rank).fill(1))]) {
    const count = dims.reduce((product, dim) => product * dim, 1);
    const bytes = writeNpy({ data: new Float32Array(count), dims, dtype: "f32" });
    assert.equal(latin(bytes.slice(0, 8)), "\x93NUMPY\x01\x00");
    const length = bytes[8] + 256 * bytes[9];
    assert.equal((10 + length) % 64, 0);
    assert.equal(bytes[9 + length], 10);
    assert.equal(bytes.length, 10 + length + 4 * count);
  }
});

test("files that are damaged or of another kind are refused with the reason", () => {
  const good = writeNpy({ data: [1, 2], dims: [2], dtype: "f32" });
  const changed = (from, to) => Uint8Array.from(latin(good).replace(from, to), (c) => c.charCodeAt(0)).buffer;
  assert.throws(() => readNpy(new ArrayBuffer(4)), /expected a \.npy file/);
  assert.throws(() => readNpy(changed("NUMPY", "NUMPI")), /expected a \.npy file/);
  assert.throws(() => readNpy(changed("<f4", ">f4")), /dtype >f4/);
  assert.throws(() => readNpy(changed("False", "True ")), /Fortran order/);
  assert.throws(() => readNpy(good.slice(0, -1).buffer), /expected 8 bytes for 2, got 7/);
});

test("compare uses atol + rtol · |expected|, and finds the largest difference", () => {
  const tensor = (...data) => ({ data, dims: [data.length] });
  assert.deepEqual(compare(tensor(1, 100), tensor(1, 101), 0, 0.01), { ok: true, error: 1, why: "" });
  const wrong = compare(tensor(1, 103, 99), tensor(1, 101, 101), 0, 0.01);
  assert.deepEqual(wrong, { ok: false, error: 2, why: "element 1: expected 101, got 103" });
  assert.equal(compare(tensor(0.5), tensor(0), 0.5, 0).ok, true);
});

test("NaN equals NaN, infinity equals itself only", () => {
  const tensor = (...data) => ({ data, dims: [data.length] });
  assert.equal(compare(tensor(NaN, Infinity), tensor(NaN, Infinity), 0, 0).ok, true);
  assert.equal(compare(tensor(NaN), tensor(1), 9, 9).ok, false);
  assert.equal(compare(tensor(1), tensor(Infinity), 9, 9).ok, false);
  assert.equal(compare(tensor(-Infinity), tensor(Infinity), 9, 9).ok, false);
  assert.match(compare({ data: [1], dims: [1] }, { data: [1], dims: [1, 1] }, 0, 0).why, /expected shape 1,1, got 1/);
});

test("golden arrays are read at any offset, halves too", () => {
  const file = new Uint8Array([9, 0x00, 0x3c, 0x00, 0xc0]);
  assert.deepEqual(golden({ dtype: "f16", dims: [2], offset: 1, bytes: 4 }, file).data, Float32Array.of(1, -2));
  assert.deepEqual(golden({ dtype: "u16", dims: [1], offset: 1, bytes: 2 }, file).data, Uint16Array.of(0x3c00));
});

test("suspects are the kernels that only failing programs use", () => {
  const kernel = (label) => ({ label, sha256: `hash of ${label}` });
  const results = [
    { ok: true, kernels: [kernel("add"), kernel("mul")] },
    { ok: false, kernels: [kernel("add"), kernel("softmax")] },
    { ok: false, kernels: [kernel("softmax"), kernel("gelu")] },
  ];
  assert.deepEqual(suspects(results), ["softmax", "gelu"]);
});
