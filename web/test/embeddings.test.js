import assert from "node:assert/strict";
import { test } from "node:test";
import { EmbeddingPool } from "../src/language/embeddings.js";
import { isToken, rowIds } from "../src/language/parts.js";

const ROWS = 4;

/** A pool of two blocks, and the rows that were encoded. */
function poolOf() {
  const encoded = [];
  const pool = new EmbeddingPool(2, ROWS, async (inputs, row) => {
    encoded.push([inputs(), row]);
  });
  const inputs = new Map([0, 1, 2].map((tile) => [rowIds(tile, 1)[0], () => /** @type {any} */ (`tile ${tile}`)]));
  return { pool, encoded, hold: (ids, max = Infinity) => pool.hold(ids, inputs, max) };
}

test("rows of a tile have consecutive ids above every token, and read its block from the device", async () => {
  const { pool, encoded, hold } = poolOf();
  const ids = [...rowIds(0, 3), 7, ...rowIds(1, ROWS)];
  assert.deepEqual(ids.map(isToken), [false, false, false, true, false, false, false, false]);
  assert.equal(await hold(ids), ids.length);
  assert.deepEqual(encoded, [["tile 0", 0], ["tile 1", ROWS]]); // biome-ignore format: a pair a tile
  assert.deepEqual(
    ids.filter((id) => !isToken(id)).map((id) => pool.token(id)),
    [-1, -2, -3, -5, -6, -7, -8],
  );
});

test("the tile that was used least recently is replaced, and none that the step reads", async () => {
  const { encoded, hold } = poolOf();
  await hold([...rowIds(0, 1), ...rowIds(1, 1)]);
  await hold(rowIds(0, 1));
  await hold(rowIds(2, 1));
  assert.deepEqual(encoded.at(-1), ["tile 2", ROWS]);
  assert.equal(await hold([...rowIds(2, 2), ...rowIds(0, 2), 5, ...rowIds(1, 2)]), 5);
  assert.equal(encoded.length, 3);
});

test("a step encodes as many tiles as it may, and ends before the next; a lost device holds none", async () => {
  const { pool, encoded, hold } = poolOf();
  const ids = [1, ...rowIds(0, 2), 2, ...rowIds(1, 2)];
  assert.equal(await hold(ids, 1), 4);
  assert.equal(await hold(ids, 0), 4);
  assert.equal(await hold(ids, 1), ids.length);
  pool.invalidate();
  assert.equal(await hold(ids, 0), 1);
  assert.equal(encoded.length, 2);
});
