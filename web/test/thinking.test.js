import assert from "node:assert/strict";
import { test } from "node:test";
import { GenerationRequest } from "../src/language/engine.js";
import { samplingParamsFrom } from "../src/language/settings.js";
import { ReasoningSplitter, thoughtTags, withReasoningFields } from "../src/language/thinking.js";

const THINK = thoughtTags("<think>");
const CHANNEL = thoughtTags("<|channel>");

/** Return reasoning and answer of the pieces of a response whose tags are text. */
function split(tags, isOpen, ...pieces) {
  const splitter = new ReasoningSplitter(tags, undefined, undefined, isOpen);
  const parts = [...pieces.map((piece) => splitter.push(3, piece)), splitter.flush("")];
  return [parts.map(({ reasoning }) => reasoning).join(""), parts.map(({ text }) => text).join("")];
}

/** @type {[any, string, string[]][]} */
const RESPONSES = [
  [THINK, "<think>\nso <b>\n</think>\n\nHi </think>", ["so <b>", "Hi </think>"]],
  [THINK, "A <think> tag", ["", "A <think> tag"]],
  [THINK, "<think>never </thi", ["never </thi", ""]],
  [THINK, "<think>\n\n</think>\n\nHi", ["", "Hi"]],
  [CHANNEL, "<|channel>thought\nthoughtful<channel|>Hi", ["thoughtful", "Hi"]],
  [CHANNEL, "<|channel>thought<channel|>Hi", ["", "Hi"]],
];

test("a response is split alike wherever its pieces are cut", () => {
  for (const [tags, text, expected] of RESPONSES) {
    for (let cut = 0; cut <= text.length; cut++) {
      assert.deepEqual(split(tags, false, text.slice(0, cut), text.slice(cut)), expected, `${text} at ${cut}`);
    }
    if (text.startsWith(tags.begin)) assert.deepEqual(split(tags, true, text.slice(tags.begin.length)), expected);
  }
});

test("a tag that is a token is found by its number only", () => {
  const splitter = new ReasoningSplitter(THINK, 1, 2, false);
  assert.deepEqual(splitter.push(1, ""), { reasoning: "", text: "" });
  assert.deepEqual(splitter.push(3, "a </think> b"), { reasoning: "a </think> b", text: "" });
  assert.deepEqual(splitter.push(2, ""), { reasoning: "", text: "" });
  assert.deepEqual(splitter.push(3, "\n<think>"), { reasoning: "", text: "<think>" });
});

test("a constraint holds for the answer, and the first token may begin a thought", () => {
  const taken = [];
  /** @type {any} */
  const matcher = { ended: false, mask: () => Int32Array.of(8), take: (token) => taken.push(token) };
  const limits = { ends: new Set([31]), context: 100, maxAdjustments: 8 };
  const splitter = new ReasoningSplitter(THINK, 1, 2, false, true);
  const request = new GenerationRequest([9], samplingParamsFrom({}, 32), limits, matcher, splitter);
  const sampled = (token) => [{ token, logprob: 0, top_logprobs: [] }];
  assert.deepEqual([...request.nextParams().mask], [8 | 2]);
  request.appendTokens(sampled(1));
  assert.equal(request.nextParams().mask, null);
  request.appendTokens(sampled(5));
  request.appendTokens(sampled(2));
  assert.deepEqual([...request.nextParams().mask], [8]);
  request.appendTokens(sampled(3));
  assert.deepEqual(taken, [3]);
});

test("earlier reasoning has the name that the template reads", () => {
  const message = { role: "assistant", content: "b", reasoning_content: "a" };
  const [read] = withReasoningFields("{{ m.thinking }}</think>", [message]);
  assert.deepEqual(read, { role: "assistant", content: "b", thinking: "a" });
  assert.deepEqual(withReasoningFields("</think>", [message]), [{ role: "assistant", content: "b" }]);
});
