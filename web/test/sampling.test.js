import assert from "node:assert/strict";
import { test } from "node:test";
import { LogitsProcessor, logitsError, pack, samplerOutputs, unpack } from "../src/language/sampling.js";
import { samplingParamsFrom } from "../src/language/settings.js";

const settings = (changes = {}) => samplingParamsFrom(changes, 1000);

/** The adjustments by token: the factor and the addend. */
function adjustments({ logit_adjustments: words }) {
  const found = {};
  for (let at = 0; at < (words?.length ?? 0); at += 3) {
    const floats = new Float32Array(words.slice(at + 1, at + 3).buffer);
    found[words[at]] = [...floats].map((number) => Math.round(number * 1e4) / 1e4);
  }
  return found;
}

function after(changes, prompt, tokens, max) {
  const processor = new LogitsProcessor(settings(changes), prompt, max);
  for (const token of tokens) processor.add(token);
  return adjustments(processor.params(tokens.length));
}

test("without penalties and biases there are no adjustments", () => {
  const processor = new LogitsProcessor(settings(), [1, 2, 3]);
  processor.add(4);
  assert.equal(processor.params(1).logit_adjustments, null);
  assert.equal(processor.numStatic, Infinity);
});

test("a repetition penalty is for prompt and answer, whatever the count", () => {
  assert.deepEqual(after({ repetition_penalty: 1.5 }, [1, 2, 2], [3, 3]), { 1: [1.5, 0], 2: [1.5, 0], 3: [1.5, 0] });
});

test("presence counts once, frequency every time, and neither counts the prompt", () => {
  assert.deepEqual(after({ presence_penalty: 0.5 }, [1], [2, 2, 2]), { 2: [1, -0.5] });
  assert.deepEqual(after({ frequency_penalty: 0.25 }, [1], [2, 2, 2, 4]), { 2: [1, -0.75], 4: [1, -0.25] });
  assert.deepEqual(after({ presence_penalty: 1, frequency_penalty: -0.5 }, [], [7, 7]), { 7: [1, 0] });
});

test("a bias adds to the penalties of its token", () => {
  assert.deepEqual(after({ logit_bias: { 5: 2, 6: -1 }, presence_penalty: 0.5 }, [], [5]), { 5: [1, 1.5], 6: [1, -1] });
  const biased = new LogitsProcessor(settings({ logit_bias: { 5: 2 } }), []);
  assert.equal(biased.numStatic, Infinity);
});

test("more tokens than adjustments: the oldest penalty is evicted, biases stay", () => {
  const changes = { presence_penalty: 1, logit_bias: { 900: 3 } };
  assert.deepEqual(after(changes, [], [1, 2, 3, 4], 3), { 900: [1, 3], 3: [1, -1], 4: [1, -1] });
});

test("adjustments grow past their first 64 rows", () => {
  const tokens = Array.from({ length: 200 }, (_, at) => at);
  const found = after({ frequency_penalty: 0.5 }, [], [...tokens, 7]);
  assert.equal(Object.keys(found).length, 200);
  assert.deepEqual(
    [found[0], found[7], found[199]],
    [
      [1, -0.5],
      [1, -1],
      [1, -0.5],
    ],
  );
});

test("pack: a row has 8 words, and idle rows keep every token", () => {
  const params = new LogitsProcessor(
    settings({ temperature: 0.5, top_k: 40, top_p: 0.75, min_p: 0.125, seed: 9 }),
    [],
  ).params(3);
  const { words, adjustments: count, features } = pack([params], 2, 999);
  const floats = new Float32Array(words.buffer);
  assert.deepEqual([words.length, count, features], [16, 0, 0]);
  assert.deepEqual(
    [floats[0], words[1], floats[2], floats[3], words[4], words[5], words[6]],
    [0.5, 40, 0.75, 0.125, 9, 3, -1],
  );
  assert.deepEqual([floats[8], words[9], floats[10], floats[11], words[14]], [0, 0, 1, 0, -1]);
});

test("pack: adjustments carry their row, masks follow all adjustments, each at the offset in its row", () => {
  const biased = (token) => new LogitsProcessor(settings({ logit_bias: { [token]: 1 } }), []).params(0);
  const masks = [Int32Array.of(11, 12), Int32Array.of(21, 22)];
  const rows = [5, 6].map((token, row) => ({ ...biased(token), mask: masks[row] }));
  const { words, adjustments: count, features } = pack(rows, 2, 64);
  assert.deepEqual([words.length, count, features], [64, 2, 1]);
  assert.deepEqual([words[16], words[17], words[20], words[21]], [0, 5, 1, 6]);
  assert.deepEqual([words[6], words[14]], [24, 26]);
  assert.deepEqual([...words.subarray(24, 28)], [11, 12, 21, 22]);
});

test("outputs are requested if a row needs them", () => {
  const params = (changes) => new LogitsProcessor(settings(changes), []).params(0);
  assert.deepEqual(samplerOutputs([params({})]), [1]);
  assert.deepEqual(samplerOutputs([params({}), params({ logprobs: true })]), [1, 2]);
  assert.deepEqual(samplerOutputs([params({}), params({ top_logprobs: 1 })]), [1, 2, 3, 4]);
  assert.equal(pack([params({ top_logprobs: 1 })], 1, 50).features, 3);
});

test("unpack: rows beyond the count and empty entries are dropped", () => {
  const tops = Array(40).fill(-1);
  tops[0] = 8;
  tops[20] = 9;
  tops[21] = 3;
  const outputs = [{ data: [8, 9, 0] }, { data: [-0.5, -1, 0] }, { data: tops }, { data: tops.map((token) => -token) }];
  assert.deepEqual(unpack(outputs, 2), [
    { token: 8, logprob: -0.5, top_logprobs: [[8, -8]] },
    {
      token: 9,
      logprob: -1,
      top_logprobs: [
        [9, -9],
        [3, -3],
      ],
    },
  ]);
  assert.deepEqual(unpack([{ data: [4] }], 1), [{ token: 4, logprob: NaN, top_logprobs: [] }]);
});

test("the two ways in which no token can be sampled have different messages", () => {
  assert.match(logitsError(-1, 6).message, /position 6 contain NaN or infinity/);
  assert.match(logitsError(-2, 6).message, /minus infinity for every allowed token/);
  assert.equal(logitsError(-1, 0).code, "logits");
});

test("a token that would lengthen a repetition is penalized, more with each token", () => {
  const changes = { dry_multiplier: 1, dry_allowed_length: 2, logit_bias: { 3: 5 } };
  assert.deepEqual(after(changes, [1, 2], [1, 2]), { 3: [1, 5] });
  assert.deepEqual(after(changes, [], [1, 2, 3, 1, 2]), { 3: [1, 4] });
  assert.deepEqual(after(changes, [], [1, 2, 3, 1, 2, 3]), { 1: [1, -1.75], 3: [1, 5] });
  assert.deepEqual(after(changes, [], [7, 7, 7, 7]), { 3: [1, 5], 7: [1, -1.75] });
  const processor = new LogitsProcessor(settings({ dry_multiplier: 1, dry_allowed_length: 4 }), []);
  const counts = [1, 2, 1, 2, 1, 2, 1].map((token) => {
    processor.add(token);
    return processor.numStatic;
  });
  assert.deepEqual(counts, [4, 4, 3, 2, 1, 1, 1]);
});
