import assert from "node:assert/strict";
import { test } from "node:test";
import { joinChunks, StopStringBuffer } from "../src/language/stream.js";

/** What comes out of a buffer piece by piece, and whether it stopped. @returns {[string[], boolean]} */
function held(stop, ...pieces) {
  const buffer = new StopStringBuffer(stop);
  const out = [];
  for (const piece of pieces) if (!buffer.found) out.push(buffer.push(piece));
  if (!buffer.found) out.push(buffer.flush(""));
  return [out, buffer.found];
}

test("without stop strings text passes at once", () => {
  assert.deepEqual(held([], "ab", "c"), [["ab", "c", ""], false]);
});

test("the beginning of a stop string is held back, and given out if it goes on otherwise", () => {
  assert.deepEqual(held(["<end>"], "a<e", "nd", "x"), [["a", "", "<endx", ""], false]);
  assert.deepEqual(held(["<end>"], "a<e", "nd"), [["a", "", "<end"], false]);
});

test("text ends before a stop string, wherever its pieces are cut", () => {
  for (let cut = 0; cut <= 8; cut++) {
    const [out, found] = held(["<end>"], "ab<end>cd".slice(0, cut), "ab<end>cd".slice(cut));
    assert.deepEqual([out.join(""), found], ["ab", true], `cut at ${cut}`);
  }
});

test("of several stop strings the one that begins first counts", () => {
  assert.deepEqual(held(["cd", "bc"], "abcd"), [["a"], true]);
  assert.deepEqual(held(["abc", "b"], "ab"), [["a"], true]);
});

test("a stop string that repeats itself is found behind a false start", () => {
  const [out, found] = held(["aab"], "a", "a", "a", "b", "c");
  assert.deepEqual([out.join(""), found], ["a", true]);
});

async function* chunks(...pieces) {
  for (const [piece, rest] of pieces)
    yield { id: "1", model: "m", object: "chat.completion.chunk", choices: piece ? [piece] : [], ...rest };
}

test("chunks of a chat become one answer", async () => {
  const logprobs = (token) => ({ content: [{ token }] });
  const answer = await joinChunks(
    chunks(
      [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }],
      [{ index: 0, delta: { content: "Hel" }, logprobs: logprobs("Hel"), token_ids: [1], finish_reason: null }],
      [{ index: 0, delta: { content: "lo" }, logprobs: logprobs("lo"), token_ids: [2], finish_reason: null }],
      [{ index: 0, delta: {}, finish_reason: "stop" }],
      [null, { usage: { total_tokens: 5 } }],
    ),
  );
  assert.deepEqual(answer, {
    id: "1",
    model: "m",
    object: "chat.completion",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: "Hello" },
        logprobs: { content: [{ token: "Hel" }, { token: "lo" }] },
        token_ids: [1, 2],
        finish_reason: "stop",
      },
    ],
    usage: { total_tokens: 5 },
  });
});

test("chunks of a completion become one text", async () => {
  async function* pieces() {
    for (const text of ["a", "b"])
      yield { object: "text_completion", choices: [{ index: 0, text, finish_reason: null }] };
    yield { object: "text_completion", choices: [{ index: 0, text: "", finish_reason: "length" }] };
  }
  const { object, choices } = await joinChunks(pieces());
  assert.deepEqual([object, choices[0].text, choices[0].finish_reason], ["text_completion", "ab", "length"]);
});
