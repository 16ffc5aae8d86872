import assert from "node:assert/strict";
import { test } from "node:test";
import { bfloat, fromHalfBits, half, roundEven, toHalfBits } from "../src/halves.js";

test("roundEven takes the nearest integer, and the even one at a tie", () => {
  const cases = [
    [0.5, 0],
    [1.5, 2],
    [2.5, 2],
    [-0.5, 0],
    [-1.5, -2],
    [-2.5, -2],
    [2.4999, 2],
    [2.5001, 3],
    [7, 7],
  ];
  for (const [x, expected] of cases) assert.equal(roundEven(x) + 0, expected, `${x}`);
});

test("all 65,536 bit patterns of an f16 survive a round trip", () => {
  for (let bits = 0; bits < 65536; bits++) {
    const value = fromHalfBits(bits);
    if (Number.isNaN(value)) assert.equal(toHalfBits(value), 0x7e00);
    else {
      assert.equal(toHalfBits(value), bits, `bits ${bits}`);
      assert.ok(Object.is(half(value), value), `half(${value})`);
    }
  }
});

test("half rounds between neighbors: down below the middle, up above it, to even at it", () => {
  for (let bits = 0; bits < 0x7bff; bits += 7) {
    const [low, high] = [fromHalfBits(bits), fromHalfBits(bits + 1)];
    const middle = (low + high) / 2;
    const step = (high - low) / 64;
    assert.equal(half(middle - step), low);
    assert.equal(half(middle + step), high);
    assert.equal(half(middle), bits % 2 === 0 ? low : high);
    assert.equal(half(-middle), bits % 2 === 0 ? -low : -high);
  }
});

test("half overflows at 65520 and underflows at 2^-25", () => {
  assert.equal(half(65519.99), 65504);
  assert.equal(half(65520), Infinity);
  assert.equal(half(-1e9), -Infinity);
  assert.equal(half(2 ** -25), 0);
  assert.equal(half(2 ** -25 * 1.001), 2 ** -24);
  assert.ok(Object.is(half(-(2 ** -30)), -0));
  assert.ok(Number.isNaN(half(NaN)));
});

test("toHalfBits has the patterns of IEEE 754", () => {
  const cases = [
    [0, 0],
    [-0, 0x8000],
    [1, 0x3c00],
    [-2, 0xc000],
    [65504, 0x7bff],
    [2 ** -14, 0x0400],
    [2 ** -24, 1],
  ];
  for (const [x, bits] of cases) assert.equal(toHalfBits(x), bits, `${x}`);
  assert.equal(toHalfBits(1e6), 0x7c00);
  assert.equal(toHalfBits(-1e6), 0xfc00);
});

test("bfloat keeps 8 bits of the fraction, ties to even", () => {
  assert.equal(bfloat(1 + 2 ** -8), 1);
  assert.equal(bfloat(1 + 3 * 2 ** -8), 1 + 2 ** -6);
  assert.equal(bfloat(1 + 2 ** -8 + 2 ** -20), 1 + 2 ** -7);
  assert.equal(bfloat(-Math.PI), -3.140625);
  assert.equal(bfloat(3.4028234663852886e38), Infinity);
  assert.ok(Number.isNaN(bfloat(NaN)));
  assert.ok(Object.is(bfloat(-0), -0));
});
