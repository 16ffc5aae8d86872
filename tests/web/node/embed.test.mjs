// An encoder that gives a vector for each token: `node --test`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Encoder } from "../../../web/src/embed.js";
import { FakeProgram } from "./fake_program.mjs";

test("the mean over the tokens of a text, of length 1", async () => {
  const program = new FakeProgram();
  const inputs = { input_ids: 1, attention_mask: 0, token_type_ids: 2 };
  program.manifest.encoder = { tokenizer: "tokenizer", ...inputs, lengths: [2, 4], output: 0, pooled: false };
  const calls = [];
  program.method = async () => ({
    async run([mask, ids, types], { outputs }) {
      calls.push({ ids: ids.data, mask: mask.data, types: types.data, dims: ids.dims });
      assert.deepEqual(outputs, [0]);
      return [{ data: Float32Array.from(ids.data.flatMap((id) => [id, 1])), dims: [1, ids.dims[1], 2] }];
    },
  });
  const encoder = await new Encoder(program).open();
  const [short, long] = await encoder.embed(["\x03\x05\x07", "\x01\x02\x03\x04\x05\x06"]);
  assert.deepEqual(calls[0], { ids: [3, 5, 7, 0], mask: [1, 1, 1, 0], types: [0, 0, 0, 0], dims: [1, 4] });
  assert.deepEqual(calls[1].ids, [1, 2, 3, 4]); // as much as fits
  assert.ok(Math.abs(short[0] - 5 / Math.hypot(5, 1)) < 1e-6 && Math.abs(short[1] - 1 / Math.hypot(5, 1)) < 1e-6);
  assert.ok(Math.abs(long[0] - 2.5 / Math.hypot(2.5, 1)) < 1e-6);
  await assert.rejects(encoder.embed("text"), { code: "input" });
  const stop = AbortSignal.abort();
  await assert.rejects(encoder.embed(["a"], { signal: stop }), { code: "aborted" });
});
