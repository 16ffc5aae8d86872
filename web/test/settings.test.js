import assert from "node:assert/strict";
import { test } from "node:test";
import { applyDefaults, samplingParamsFrom, tokensFrom } from "../src/language/settings.js";

const refused = (request, message) => assert.throws(() => samplingParamsFrom(request, 100), { code: "input", message });

test("defaults are greedy, without penalties and with 1024 tokens", () => {
  const { logit_bias, ...rest } = samplingParamsFrom({ prompt: "a" }, 100);
  assert.deepEqual(rest, {
    max_tokens: 1024,
    temperature: 0,
    top_k: 0,
    top_p: 1,
    min_p: 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    dry_multiplier: 0,
    dry_allowed_length: 6,
    seed: 0,
    top_logprobs: 0,
    n: 1,
    stop: [],
    logprobs: false,
    schema: null,
  });
  assert.equal(logit_bias.size, 0);
});

test("null means the default, and max_completion_tokens is the newer name", () => {
  assert.equal(samplingParamsFrom({ temperature: null, max_tokens: null }, 100).max_tokens, 1024);
  assert.equal(samplingParamsFrom({ max_completion_tokens: 7 }, 100).max_tokens, 7);
  assert.equal(samplingParamsFrom({ max_tokens: 5, max_completion_tokens: 7 }, 100).max_tokens, 5);
});

test("bounds themselves are accepted, what is beyond them is refused with the bounds", () => {
  assert.equal(samplingParamsFrom({ top_p: 1, min_p: 1, seed: 2 ** 31 - 1, top_logprobs: 20 }, 100).seed, 2 ** 31 - 1);
  refused({ min_p: 1.0001 }, /min_p: expected .* from 0 to 1, got 1\.0001/);
  refused({ top_p: 0 }, /top_p: .* above 0/);
  refused({ repetition_penalty: 0 }, /from 0\.01 to 100/);
  refused({ temperature: 1e-9 }, /temperature: expected 0, or a number from 1e-6/);
  refused({ temperature: NaN }, /temperature: .* got NaN/);
  refused({ seed: "1" }, /seed: expected an integer .*, got "1"/);
});

test("a misspelt setting is refused with the list of settings", () => {
  refused({ temprature: 1 }, /max_tokens, temperature.*got "temprature"/);
});

test("biases are for tokens of the vocabulary, at most 1024 of them", () => {
  const { logit_bias } = samplingParamsFrom({ logit_bias: { 0: -100, 99: 100 } }, 100);
  assert.deepEqual(
    [...logit_bias],
    [
      [0, -100],
      [99, 100],
    ],
  );
  refused({ logit_bias: { 100: 1 } }, /from 0 to 99, got 100/);
  refused({ logit_bias: { x: 1 } }, /integer .*got "x"/);
  refused({ logit_bias: { "-1": 1 } }, /integer/);
  refused({ logit_bias: { 5: 101 } }, /logit_bias\[5\]: .* from -100 to 100/);
  const many = Object.fromEntries(Array.from({ length: 1025 }, (_, token) => [token, 1]));
  assert.throws(() => samplingParamsFrom({ logit_bias: many }, 5000), { code: "input", message: /1025/ });
});

test("stop is one string or several, none of them empty", () => {
  assert.deepEqual(samplingParamsFrom({ stop: "end" }, 100).stop, ["end"]);
  assert.deepEqual(samplingParamsFrom({ stop: ["a", "b"] }, 100).stop, ["a", "b"]);
  refused({ stop: ["a", ""] }, /stop: .* got ""/);
  refused({ stop: 3 }, /got 3/);
});

test("top_logprobs implies logprobs", () => {
  assert.equal(samplingParamsFrom({ top_logprobs: 3 }, 100).logprobs, true);
  assert.equal(samplingParamsFrom({ logprobs: true }, 100).top_logprobs, 0);
});

test("response formats become schemas", () => {
  const schema = (response_format) => samplingParamsFrom({ response_format }, 100).schema;
  assert.equal(schema({ type: "text" }), null);
  assert.deepEqual(schema({ type: "json_object" }), { type: "object" });
  assert.equal(schema({ type: "json_schema", json_schema: { schema: true } }), true);
  refused({ response_format: { type: "json_schema" } }, /json_schema/);
  refused({ response_format: { type: "grammar" } }, /"grammar"/);
});

test("tokens of a prompt are integers of the vocabulary", () => {
  assert.deepEqual(tokensFrom([0, 99], 100), [0, 99]);
  assert.throws(() => tokensFrom([1, 100], 100), { code: "input", message: /prompt\[1\]: .* got 100/ });
  assert.throws(() => tokensFrom([1.5], 100), { code: "input" });
});

test("a model's defaults apply where the request sets nothing, its penalties only without explicit sampling", () => {
  const defaults = { temperature: 0.6, top_p: 0.9, dry_multiplier: 0.8 };
  assert.deepEqual(applyDefaults({ seed: 3 }, defaults), { seed: 3, ...defaults });
  assert.deepEqual(applyDefaults({ temperature: 0 }, defaults), { temperature: 0, top_p: 0.9 });
  const format = { response_format: { type: "json_object" } };
  assert.deepEqual(applyDefaults(format, defaults), { ...format, temperature: 0.6, top_p: 0.9 });
  assert.deepEqual(applyDefaults({ temperature: null }, defaults), defaults);
});
