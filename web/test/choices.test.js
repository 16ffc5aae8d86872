import assert from "node:assert/strict";
import { test } from "node:test";
import { Choosing, impossible, pack, unpack, wanted } from "../src/language/choices.js";
import { settingsFrom } from "../src/language/settings.js";

const settings = (changes = {}) => settingsFrom(changes, 1000);

/** What the edits say, by token: the factor and the addend. */
function edits({ edits: words }) {
  const found = {};
  for (let at = 0; at < (words?.length ?? 0); at += 3) {
    const floats = new Float32Array(words.slice(at + 1, at + 3).buffer);
    found[words[at]] = [...floats].map((number) => Math.round(number * 1e4) / 1e4);
  }
  return found;
}

function after(changes, prompt, tokens, most) {
  const choosing = new Choosing(settings(changes), prompt, most);
  for (const token of tokens) choosing.add(token);
  return edits(choosing.choice(tokens.length));
}

test("without penalties and biases there are no edits", () => {
  const choosing = new Choosing(settings(), [1, 2, 3]);
  choosing.add(4);
  assert.equal(choosing.choice(1).edits, null);
  assert.equal(choosing.steady, true);
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
  const biased = new Choosing(settings({ logit_bias: { 5: 2 } }), []);
  assert.equal(biased.steady, true);
});

test("more tokens than edits: the oldest penalty goes, biases stay", () => {
  const changes = { presence_penalty: 1, logit_bias: { 900: 3 } };
  assert.deepEqual(after(changes, [], [1, 2, 3, 4], 3), { 900: [1, 3], 3: [1, -1], 4: [1, -1] });
});

test("edits grow past their first 64 places", () => {
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
  const choice = new Choosing(settings({ temperature: 0.5, top_k: 40, top_p: 0.75, min_p: 0.125, seed: 9 }), []).choice(
    3,
  );
  const { words, edits: count, features } = pack([choice], 2, 999);
  const floats = new Float32Array(words.buffer);
  assert.deepEqual([words.length, count, features], [16, 0, 0]);
  assert.deepEqual(
    [floats[0], words[1], floats[2], floats[3], words[4], words[5], words[6]],
    [0.5, 40, 0.75, 0.125, 9, 3, -1],
  );
  assert.deepEqual([floats[8], words[9], floats[10], floats[11], words[14]], [0, 0, 1, 0, -1]);
});

test("pack: edits carry their row, masks follow all edits, each at the place that its row names", () => {
  const biased = (token) => new Choosing(settings({ logit_bias: { [token]: 1 } }), []).choice(0);
  const masks = [Int32Array.of(11, 12), Int32Array.of(21, 22)];
  const choices = [5, 6].map((token, row) => ({ ...biased(token), mask: masks[row] }));
  const { words, edits: count, features } = pack(choices, 2, 64);
  assert.deepEqual([words.length, count, features], [64, 2, 1]);
  assert.deepEqual([words[16], words[17], words[20], words[21]], [0, 5, 1, 6]);
  assert.deepEqual([words[6], words[14]], [24, 26]);
  assert.deepEqual([...words.subarray(24, 28)], [11, 12, 21, 22]);
});

test("outputs are asked for as far as some row needs them", () => {
  const choice = (changes) => new Choosing(settings(changes), []).choice(0);
  assert.deepEqual(wanted([choice({})]), [1]);
  assert.deepEqual(wanted([choice({}), choice({ logprobs: true })]), [1, 2]);
  assert.deepEqual(wanted([choice({}), choice({ top_logprobs: 1 })]), [1, 2, 3, 4]);
  assert.equal(pack([choice({ top_logprobs: 1 })], 1, 50).features, 3);
});

test("unpack: rows beyond the count and empty places are left out", () => {
  const tops = Array(40).fill(-1);
  tops[0] = 8;
  tops[20] = 9;
  tops[21] = 3;
  const outputs = [{ data: [8, 9, 0] }, { data: [-0.5, -1, 0] }, { data: tops }, { data: tops.map((token) => -token) }];
  assert.deepEqual(unpack(outputs, 2), [
    { token: 8, logprob: -0.5, tops: [[8, -8]] },
    {
      token: 9,
      logprob: -1,
      tops: [
        [9, -9],
        [3, -3],
      ],
    },
  ]);
  assert.deepEqual(unpack([{ data: [4] }], 1), [{ token: 4, logprob: NaN, tops: [] }]);
});

test("the two ways in which no token can be chosen have different messages", () => {
  assert.match(impossible(-1, 6).message, /position 6 hold NaN or infinity/);
  assert.match(impossible(-2, 6).message, /minus infinity for every token/);
  assert.equal(impossible(-1, 0).code, "logits");
});
