import assert from "node:assert/strict";
import { test } from "node:test";
import { compile } from "../src/terms.js";

const known = {
  element: (value, index) => 100 * value + index.reduce((sum, i) => 10 * sum + i, 0),
  extreme: (value, greatest) => (greatest ? value : -value),
  scalar: (value) => 2 * value,
};
const value = (term) => compile(term)(known);

test("constants, with the numbers that JSON does not have", () => {
  assert.deepEqual([7, -0.5, "inf", "-inf", "nan"].map(value), [7, -0.5, Infinity, -Infinity, NaN]);
});

test("floor division and modulo have the signs that Python gives them", () => {
  const cases = [
    [7, 2, 3, 1],
    [-7, 2, -4, 1],
    [7, -2, -4, -1],
    [-7, -2, 3, -1],
  ];
  for (const [a, b, quotient, rest] of cases) {
    assert.equal(value(["floordiv", a, b]), quotient);
    assert.equal(value(["mod", a, b]), rest);
    assert.equal(value(["add", ["mul", ["floordiv", a, b], b], ["mod", a, b]]), a);
  }
  assert.equal(value(["truediv", 7, 2]), 3.5);
});

test("a division by zero is refused with its numerator", () => {
  for (const name of ["truediv", "floordiv", "mod"]) {
    assert.throws(() => value([name, 5, 0]), { code: "shape", message: /5 is divided by zero/ });
  }
});

test("rounding: toward zero, up, and to even", () => {
  assert.deepEqual(
    [2.7, -2.7].map((x) => value(["int", x])),
    [2, -2],
  );
  assert.deepEqual(
    [2.1, -2.9].map((x) => value(["ceil", x])),
    [3, -2],
  );
  assert.deepEqual(
    [2.5, 3.5, -2.5].map((x) => value(["round", x])),
    [2, 4, -2],
  );
  for (const name of ["int", "trunc", "ceil", "round"]) {
    assert.throws(() => value([name, "inf"]), { code: "shape", message: /Infinity cannot/ });
    assert.throws(() => value([name, "nan"]), { code: "shape" });
  }
});

test("comparisons give 1 or 0, and choose selects by them", () => {
  const results = ["eq", "ne", "ge", "gt", "le", "lt"].map((name) => [
    value([name, 1, 2]),
    value([name, 2, 2]),
    value([name, 3, 2]),
  ]);
  assert.deepEqual(results, [
    [0, 1, 0],
    [1, 0, 1],
    [0, 1, 1],
    [0, 0, 1],
    [1, 1, 0],
    [1, 0, 0],
  ]);
  assert.equal(value(["select", ["lt", 1, 2], 10, 20]), 10);
  assert.equal(value(["select", ["not", 1], 10, 20]), 20);
});

test("a sum is linear in its products", () => {
  assert.equal(value(["sum", 5]), 5);
  assert.equal(value(["sum", 5, [2, ["scalar", 3]], [-1, ["element", 4, [2]]]]), 5 + 2 * 6 - 402);
});

test("elements and given numbers are asked for in each call", () => {
  const term = compile(["add", ["element", 1, [2, 3]], ["scalar", 9]]);
  assert.equal(term(known), 123 + 18);
  assert.equal(term({ ...known, element: () => 1, scalar: () => 2 }), 3);
  assert.equal(value(["add", ["greatest", 9], ["least", 2]]), 7);
});

test("numbers as the device holds them: bits of an f32, an f16, saturated integers", () => {
  assert.equal(value(["float_bits", 1]), 0x3f800000);
  assert.equal(value(["float_bits", -0]), -(2 ** 31));
  assert.equal(value(["round_to_f16", 65519]), 65504);
  const saturated = [3e9, -3e9, 1.9, -1.9, "nan", "inf"].map((x) => value(["saturate", x]) + 0);
  assert.deepEqual(saturated, [2 ** 31 - 1, -(2 ** 31), 1, -1, 0, 2 ** 31 - 1]);
});

test("a term of another player is refused when it is compiled, not when it is used", () => {
  assert.throws(() => compile(["add", 1, ["hypot", 3, 4]]), { code: "damaged", message: /term hypot/ });
});
