import assert from "node:assert/strict";
import { test } from "node:test";
import { ImagePrompts } from "../src/language/images/prompts.js";
import { rowIds } from "../src/language/parts.js";

const IMAGE = 9; // the token

const prompts = new ImagePrompts(
  { processor: { kind: "grid", image_token: "<image>" }, max_rows: 24 },
  /** @type {any} */ ({ id: () => IMAGE }),
);
const tile = (number, rows, columns = 0) => ({ ids: rowIds(number, rows), inputs: () => [], columns });
const imageOf = (...tiles) => ({ text: "", tiles });

test("a grid takes up the positions of its longer side, and text continues after it on all axes", () => {
  const images = [imageOf(tile(0, 6, 3)), imageOf(tile(1, 4, 1))];
  const { ids, ends, offsets } = prompts.rows([7, 7, IMAGE, 7, IMAGE], images);
  assert.equal(ids.length, 13);
  assert.deepEqual(ends, [8, 13]);
  const positions = [...ids, 0, 0].map((_, at) => offsets[Math.min(at, ids.length)].map((each) => at + each));
  const axes = [0, 1, 2].map((axis) => positions.map((each) => each[axis]));
  assert.deepEqual(axes[0], [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 6, 6, 10, 11]);
  assert.deepEqual(axes[1], [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 9, 10, 11]);
  assert.deepEqual(axes[2], [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 6, 6, 6, 10, 11]);
});

test("tiles without columns have positions of one axis, and an image ends with its last tile", () => {
  const { ids, inputs, ends, offsets } = prompts.rows([IMAGE, 7, IMAGE, 7], [imageOf(tile(3, 2), tile(5, 2))]);
  assert.deepEqual(ids, [...rowIds(3, 2), 7, ...rowIds(5, 2), 7]);
  assert.deepEqual([...inputs.keys()], [rowIds(3, 1)[0], rowIds(5, 1)[0]]);
  assert.deepEqual(ends, [5]);
  assert.deepEqual(
    offsets,
    Array.from({ length: 7 }, () => [0, 0, 0]),
  );
});

test("as many image tokens as tiles", () => {
  assert.throws(() => prompts.rows([7], [imageOf(tile(0, 2))]), { code: "input" });
});
