// Answers of the fake model, alone and in company: `node --test`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Language } from "../../../web/src/language/chat.js";
import { LogitsProcessor, pack } from "../../../web/src/language/sampling.js";
import { samplingParamsFrom } from "../../../web/src/language/settings.js";
import { expected, FakeProgram, VOCABULARY } from "./fake_program.mjs";

const letters = (count, first = 65) => Array.from({ length: count }, (_, i) => (first + 7 * i) % VOCABULARY);

async function opened(changes, arrange = () => {}) {
  const program = new FakeProgram(changes);
  arrange(program);
  const language = new Language(program);
  await language.open();
  return { program, language };
}

/** The tokens that an answer must have. */
function alone(prompt, count, asked = {}, context = 64) {
  const settings = samplingParamsFrom(asked, VOCABULARY);
  const processor = new LogitsProcessor(settings, prompt);
  const tokens = [...prompt];
  while (tokens.length < Math.min(prompt.length + count, context + 1)) {
    const { words, adjustments } = pack([processor.params(tokens.length - prompt.length)], 1, 8 + 1024);
    tokens.push(expected(tokens, words, 0, 1, adjustments, 0));
    processor.add(tokens.at(-1));
  }
  return tokens.slice(prompt.length);
}

async function ask(language, prompt, max_tokens, asked = {}, signal) {
  const answer = await language.answer({ prompt, max_tokens, return_token_ids: true, ...asked }, signal);
  return { tokens: answer.choices[0].token_ids, finish: answer.choices[0].finish_reason, ...answer };
}

test("an answer is what the model returns after each token", async () => {
  const { language, program } = await opened();
  for (const length of [1, 2, 9, 20, 40, 50]) {
    const { tokens, finish, usage } = await ask(language, letters(length, length), 12);
    assert.deepEqual(tokens, alone(letters(length, length), 12));
    assert.equal(finish, "length");
    assert.equal(usage.prompt_tokens, length);
    assert.equal(usage.total_tokens, length + 12);
  }
  assert.ok(program.passes.some(({ rows }) => rows === 8) && program.passes.some(({ rows }) => rows === 32));
});

test("an image for a model that reads none is refused", async () => {
  const { language } = await opened();
  const content = [{ type: "image", image: { width: 1, height: 1, data: [0, 0, 0, 255] } }];
  await assert.rejects(language.answer({ messages: [{ role: "user", content }] }), { code: "input" });
});

test("drawn answers, penalties and biases", async () => {
  const { language } = await opened();
  const asked = [
    { temperature: 0.7, seed: 5, top_k: 40, top_p: 0.9, min_p: 0.05 },
    { repetition_penalty: 1.3 },
    { presence_penalty: 0.5, frequency_penalty: 0.25, logit_bias: { 3: 1.5, 70: -100 } },
  ];
  const prompts = asked.map((_, i) => letters(5 + i));
  const found = await Promise.all(asked.map((each, i) => ask(language, prompts[i], 16, each)));
  asked.forEach((each, i) => assert.deepEqual(found[i].tokens, alone(prompts[i], 16, each)));
});

test("several at once have the tokens they have alone, and the pool grows once", async () => {
  const { language, program } = await opened();
  const prompts = Array.from({ length: 7 }, (_, i) => letters(3 + 6 * i, 3 * i));
  const found = await Promise.all(prompts.map((prompt) => ask(language, prompt, 10)));
  prompts.forEach((prompt, i) => assert.deepEqual(found[i].tokens, alone(prompt, 10)));
  assert.equal(program.disposed, 1);
  assert.ok(program.passes.some(({ live, decoding }) => decoding && live === 4), "four decode in one pass");
});

test("what is cached grows with the pool", async () => {
  const { language, program } = await opened();
  const prompt = letters(30);
  const stream = await language.create({ prompt, max_tokens: 30, return_token_ids: true });
  const first = [(await stream.next()).value.choices[0].token_ids[0]];
  const reads = program.passes.filter(({ decoding }) => !decoding).length;
  const [second] = await Promise.all([ask(language, letters(1), 6), (async () => {
    for await (const { choices } of stream) first.push(...choices[0].token_ids);
  })()]);
  assert.deepEqual(first, alone(prompt, 30));
  assert.deepEqual(second.tokens, alone(letters(1), 6));
  assert.equal(program.passes.filter(({ decoding }) => !decoding).length, reads, "nothing was read again");
});

test("a conversation goes on behind what is cached", async () => {
  const { language, program } = await opened();
  const first = await ask(language, letters(20), 8);
  const prompt = [...letters(20), ...first.tokens, 1, 2, 3];
  program.passes.length = 0;
  const { tokens, usage } = await ask(language, prompt, 8);
  assert.deepEqual(tokens, alone(prompt, 8));
  assert.equal(usage.prompt_tokens_details.cached_tokens, 27); // the last token was chosen, not read
  assert.equal(program.passes.filter(({ decoding }) => !decoding)[0].live, 3);
});

test("stopping ends at once, and the others do not notice", async () => {
  const { language, program } = await opened({}, (program) => (program.delay = 30));
  const stop = new AbortController();
  const others = [letters(4, 1), letters(4, 2)].map((prompt) => ask(language, prompt, 12));
  const stopped = ask(language, letters(40), 100, {}, stop.signal);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const passes = program.passes.length;
  stop.abort();
  await assert.rejects(stopped, { code: "aborted" });
  assert.equal(program.passes.length, passes, "the pass under way was not waited for");
  assert.deepEqual((await others[0]).tokens, alone(letters(4, 1), 12));
  assert.deepEqual((await others[1]).tokens, alone(letters(4, 2), 12));
  assert.deepEqual((await ask(language, letters(6), 5)).tokens, alone(letters(6), 5));
  await assert.rejects(ask(language, [1], 2, {}, stop.signal), { code: "aborted" });
  program.delay = 0;
});

test("leaving the loop early frees the slot", async () => {
  const { language } = await opened({ sequences: 1 });
  for await (const _ of await language.create({ prompt: letters(3), max_tokens: 50 })) break;
  assert.deepEqual((await ask(language, letters(6), 5)).tokens, alone(letters(6), 5));
});

test("a lost device changes nothing", async () => {
  for (let lost = 0; lost < 20; lost++) {
    const { language, program } = await opened();
    let passes = 0;
    program.before = () => {
      if (passes++ === lost || passes === 2 * lost + 3) program.losses++;
    };
    const prompts = [letters(25), letters(6, 9)].slice(0, 1 + (lost % 2));
    const found = await Promise.all(prompts.map((prompt) => ask(language, prompt, 20)));
    prompts.forEach((prompt, i) => assert.deepEqual(found[i].tokens, alone(prompt, 20)));
    assert.ok(program.recoveries > 0 || passes <= lost);
  }
});

test("a device that does not come back ends all answers", async () => {
  const { language, program } = await opened();
  program.before = () => program.losses++;
  program.recover = async () => {
    throw Object.assign(new Error("no adapter"), { code: "no-adapter" });
  };
  const both = await Promise.allSettled([ask(language, [1], 5), ask(language, [2], 5)]);
  assert.deepEqual(both.map(({ reason }) => reason.code), ["no-adapter", "no-adapter"]);
});

test("logits that are not finite end one answer", async () => {
  const { language } = await opened({}, (program) => (program.bad = (prefix) => prefix[0] === 9 && prefix.length > 6));
  const [bad, good] = await Promise.allSettled([ask(language, [9, 1, 2], 12), ask(language, [8, 1, 2], 12)]);
  assert.equal(bad.reason.code, "logits");
  assert.match(bad.reason.message, /after position 6 contain NaN/);
  assert.deepEqual(good.value.tokens, alone([8, 1, 2], 12));
});

test("the context ends an answer", async () => {
  const { language } = await opened();
  const { tokens, finish } = await ask(language, letters(60), 100);
  assert.deepEqual(tokens, alone(letters(60), 100));
  assert.equal(tokens.length, 5); // of which the last is not read any more
  assert.equal(finish, "length");
  await assert.rejects(language.create({ prompt: letters(64) }), { code: "input", message: /context of 64, got 64/ });
});

test("answers wait where memory does not suffice, and take the place of those that nobody reads", async () => {
  const { language } = await opened({}, (program) => (program.memory = 1));
  const unread = await language.create({ prompt: letters(5), max_tokens: 30, return_token_ids: true });
  const seen = (await unread.next()).value.choices[0].token_ids;
  const found = await Promise.all([ask(language, letters(4, 1), 6), ask(language, letters(4, 2), 6)]);
  assert.deepEqual(found.map(({ tokens }) => tokens), [alone(letters(4, 1), 6), alone(letters(4, 2), 6)]);
  for await (const { choices } of unread) seen.push(...choices[0].token_ids);
  assert.deepEqual(seen, alone(letters(5), 30));
});

test("chunks have the shapes that clients know", async () => {
  const { language } = await opened();
  const messages = [{ role: "user", content: "hi" }];
  const chunks = [];
  const asked = { messages, max_tokens: 3, stream: true, top_logprobs: 2, stream_options: { include_usage: true } };
  for await (const chunk of await language.create(asked)) chunks.push(chunk);
  const prompt = [..."u:hi;a:"].map((c) => c.charCodeAt(0));
  const tokens = alone(prompt, 3);
  assert.equal(await language.countTokens(messages), prompt.length);
  assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
  assert.ok(chunks.every(({ object }) => object === "chat.completion.chunk"));
  const text = chunks.map(({ choices: [piece] }) => piece?.delta.content ?? "").join("");
  assert.equal(text, String.fromCharCode(...tokens));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.at(-1).usage.completion_tokens, 3);
  const { content } = chunks[1].choices[0].logprobs;
  assert.deepEqual(content[0].bytes, [tokens[0]]);
  assert.equal(content[0].logprob, -tokens[0]);
  assert.equal(content[0].top_logprobs.length, 2);
  const whole = await language.answer({ messages, max_tokens: 3 });
  assert.equal(whole.object, "chat.completion");
  assert.deepEqual(whole.choices[0].message, { role: "assistant", content: String.fromCharCode(...tokens) });
  assert.equal(whole.usage.total_tokens, prompt.length + 3);
});

test("stop strings across tokens do not leak", async () => {
  const { language } = await opened();
  const text = String.fromCharCode(...alone(letters(3), 20));
  const { choices } = await language.answer({ prompt: letters(3), max_tokens: 20, stop: [text.slice(9, 12), "never"] });
  const cut = text.indexOf(text.slice(9, 12));
  assert.equal(choices[0].text, text.slice(0, cut));
  assert.equal(choices[0].finish_reason, "stop");
});

test("an end token is no text", async () => {
  const tokens = alone(letters(3), 20);
  const { language } = await opened({ eos_token_ids: [tokens[6]] });
  const { choices, usage } = await language.answer({ prompt: letters(3), max_tokens: 20 });
  const end = tokens.indexOf(tokens[6]);
  assert.equal(choices[0].text, String.fromCharCode(...tokens.slice(0, end)));
  assert.equal(usage.completion_tokens, end + 1);
  assert.equal(choices[0].finish_reason, "stop");
});

test("answers follow a schema, beside others", async () => {
  const { language } = await opened({ context: 200 });
  const properties = { a: { type: "integer" }, b: { enum: ["x", "yy"] } };
  const schema = { type: "object", properties, required: ["a", "b"], additionalProperties: false };
  const response_format = { type: "json_schema", json_schema: { schema } };
  const asked = Array.from({ length: 4 }, (_, i) => ({ response_format, temperature: 1, seed: i }));
  const guided = asked.map((each, i) => ask(language, letters(4, i), 100, each));
  const found = await Promise.all([...guided, ask(language, letters(3), 20)]);
  for (const { choices } of found.slice(0, 4)) {
    const { a, b } = JSON.parse(choices[0].text);
    assert.ok(Number.isInteger(a) && ["x", "yy"].includes(b));
    assert.equal(choices[0].finish_reason, "stop");
  }
  assert.deepEqual(found[4].tokens, alone(letters(3), 20));
});

test("settings are checked by name", async () => {
  const { language } = await opened();
  const wrong = {
    temperature: -1, top_p: 0, top_k: 1.5, min_p: 2, seed: 2 ** 31, max_tokens: 0, stop: [""], logit_bias: { 128: 1 },
    n: 2, tools: [], response_format: { type: "xml" }, top_logprobs: 21, logprobs: 3,
  };
  for (const [name, value] of Object.entries(wrong)) {
    await assert.rejects(language.create({ prompt: "a", [name]: value }), { code: "input", message: new RegExp(name) });
  }
  const prompts = [{ prompt: [] }, { prompt: [128] }, { prompt: "\ud800" }, { messages: [{}] }];
  for (const request of [{}, { prompt: "a", messages: [] }, ...prompts]) {
    await assert.rejects(language.create(request), { code: "input" });
  }
});

test("several tokens come of one submit where it is fast", async () => {
  const { language, program } = await opened();
  let calls = 0;
  program.before = () => calls++;
  await ask(language, letters(2), 40);
  assert.ok(calls < 20, `${calls} submits`);
});

// A recurrence, whose state is that of the last token.
const recurrent = (arrange) => opened({ state_reach: [0, 0], context_length: 400 }, arrange);

test("recurrent: several at once have the tokens they have alone, while the pool grows", async () => {
  const { language, program } = await recurrent();
  const prompts = Array.from({ length: 7 }, (_, i) => letters(3 + 6 * i, 3 * i));
  const found = await Promise.all(prompts.map((prompt) => ask(language, prompt, 10)));
  prompts.forEach((prompt, i) => assert.deepEqual(found[i].tokens, alone(prompt, 10, {}, 400)));
  assert.equal(program.disposed, 1);
});

test("recurrent: a turn computes what is new after the prompt of the turn before", async () => {
  const { language, program } = await recurrent();
  let history = letters(30);
  for (let turn = 0; turn < 6; turn++) {
    const prompt = [...history, ...letters(20, turn)];
    program.passes.length = 0;
    const { tokens, usage } = await ask(language, prompt, 12);
    assert.deepEqual(tokens, alone(prompt, 12, {}, 400));
    assert.equal(usage.prompt_tokens_details.cached_tokens, turn ? history.length - 6 - 1 : 0);
    history = [...prompt, ...tokens.slice(6)]; // without a thought
  }
});

test("recurrent: after a stop within a submit few tokens of the answer are computed again", async () => {
  const whole = alone(letters(20), 90, {}, 400);
  const end = whole.findIndex((token, at) => at > 60 && whole.indexOf(token) === at);
  const { language, program } = await opened({ state_reach: [0, 0], context_length: 400, eos_token_ids: [whole[end]] });
  const first = await ask(language, letters(20), 90);
  assert.deepEqual(first.tokens, whole.slice(0, end + 1));
  const prompt = [...letters(20), ...first.tokens, 1, 2, 3];
  const { tokens, usage } = await ask(language, prompt, 1);
  assert.deepEqual(tokens, alone(prompt, 1, {}, 400));
  assert.ok(usage.prompt_tokens_details.cached_tokens >= 20 + end - 16 - 8);
  assert.ok(program.passes.length > 0);
});

test("recurrent: a changed prompt goes back to a turn before it, and from there to where prompts part", async () => {
  const { language } = await recurrent();
  const [first, second] = [letters(40), [...letters(40), ...letters(40, 9)]];
  await ask(language, first, 4);
  await ask(language, second, 4);
  const cached = [];
  for (const changed of [letters(30, 1), letters(30, 2), letters(30, 3)]) {
    const prompt = [...second.slice(0, 70), ...changed];
    const { tokens, usage } = await ask(language, prompt, 8);
    assert.deepEqual(tokens, alone(prompt, 8, {}, 400));
    cached.push(usage.prompt_tokens_details.cached_tokens);
  }
  assert.deepEqual(cached, [39, 70, 70]); // the first of them stops at 70 for a checkpoint
});

test("recurrent: more prompts than checkpoints, and logits that are not finite after the first of a submit", async () => {
  const { language } = await recurrent((program) => {
    program.checkpoints = 1;
    let failures = 3;
    program.bad = (prefix) => prefix.length % 7 === 3 && failures-- > 0;
  });
  const prompts = Array.from({ length: 6 }, (_, i) => letters(20 + i, 3 * i));
  for (const round of [0, 1]) {
    const found = await Promise.allSettled(prompts.map((prompt) => ask(language, [...prompt, round], 12)));
    found.forEach(({ reason, value }, i) => {
      if (reason) assert.equal(reason.code, "logits");
      else assert.deepEqual(value.tokens, alone([...prompts[i], round], 12, {}, 400));
    });
  }
});

test("recurrent: a lost device changes nothing", async () => {
  for (let lost = 0; lost < 12; lost++) {
    const { language, program } = await recurrent();
    let passes = 0;
    program.before = () => {
      if (passes++ === lost) program.losses++;
    };
    const prompts = [letters(45), [...letters(45), 1, 2, 3], letters(20, 9)];
    for (const prompt of prompts) assert.deepEqual((await ask(language, prompt, 9)).tokens, alone(prompt, 9, {}, 400));
  }
});
