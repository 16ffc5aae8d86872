import assert from "node:assert/strict";
import { test } from "node:test";
import { Engine, GenerationRequest } from "../src/language/engine.js";
import { KvSlots } from "../src/language/kv_slots.js";
import { rowIds } from "../src/language/parts.js";
import { samplingParamsFrom } from "../src/language/settings.js";

const language = {
  max_num_seqs: 3,
  prefill_rows: [8, 32, 128],
  decode_rows: [1, 2, 4],
  vocab_size: 1000,
  sampling_words: { 1: 8 + 1024, 2: 16 + 2048, 4: 32 + 2048 },
};

const programOf = (changes = {}) => ({
  manifest: { language: { ...language, ...changes } },
  recoveries: 0,
  opened: [],
  async method(_name, slots) {
    this.opened.push(slots);
    return { slots, takeState() {}, dispose() {} };
  },
});

async function opened(changes) {
  const program = programOf(changes);
  const slots = new KvSlots(program);
  await slots.open();
  return { program, slots };
}

const tokens = (count, first = 0) => Array.from({ length: count }, (_, i) => first + i);

test("a prefill step has the rows of a schedule; a prompt takes two steps if that saves 16 rows", async () => {
  const { slots } = await opened();
  const rows = (count, maxRows) => slots.prefillRows(count, maxRows).rows;
  assert.equal(rows(1), 8);
  assert.equal(rows(8), 8);
  assert.equal(rows(9), 8); // 8 + 8 instead of 32
  assert.equal(rows(17), 32); // 8 + 32 would be more
  assert.equal(rows(33), 32); // 32 + 8 instead of 128
  assert.equal(rows(128), 128);
  assert.equal(rows(500), 128);
  assert.equal(rows(100, 32), 32);
  assert.equal(rows(100, 1), 8); // the smallest is always there
});

test("the slot that begins with most of the prompt is taken, if that is 8 tokens or more", async () => {
  const { slots } = await opened();
  await slots.grow();
  for (const [number, count] of [
    [0, 20],
    [1, 12],
  ]) {
    slots.assign(slots.list[number], {}, []);
    slots.list[number].tokens = tokens(count);
    slots.list[number].owner = null;
  }
  assert.equal(slots.lookupPrefix(tokens(30)), slots.list[0]);
  slots.list[0].owner = {};
  assert.equal(slots.lookupPrefix(tokens(30)), slots.list[1]);
  assert.equal(slots.lookupPrefix(tokens(30, 500)), slots.list[2]); // nothing in common: an empty one
});

test("without an empty slot the least recently used one is taken", async () => {
  const { slots } = await opened();
  await slots.grow();
  for (const number of [1, 0, 2]) {
    const slot = slots.list[number];
    slots.assign(slot, {}, []);
    slot.tokens = tokens(5, 100 * number);
    slot.owner = null;
  }
  assert.equal(slots.lookupPrefix(tokens(9, 900)), slots.list[1]);
});

test("what a slot has cached beyond the common beginning is dropped", async () => {
  const { slots } = await opened();
  const [slot] = slots.list;
  slot.tokens = [1, 2, 3, 4];
  assert.equal(slots.assign(slot, {}, [1, 2, 9]), 2);
  assert.deepEqual(slot.tokens, [1, 2]);
});

test("slots grow once, and not where memory does not suffice", async () => {
  const { slots, program } = await opened();
  assert.equal(await slots.grow(), true);
  assert.equal(slots.list.length, 3);
  assert.equal(await slots.grow(), false);
  assert.deepEqual(program.opened, [1, 3]);
  const poor = await opened();
  poor.program.method = async () => {
    throw Object.assign(new Error("full"), { code: "out-of-memory" });
  };
  assert.equal(await poor.slots.grow(), false);
  assert.equal(poor.slots.list.length, 1);
  const broken = await opened();
  broken.program.method = async () => {
    throw Object.assign(new Error("lost"), { code: "device-lost" });
  };
  await assert.rejects(broken.slots.grow(), /lost/);
});

test("a recovery empties the caches once", async () => {
  const { slots, program } = await opened();
  slots.list[0].tokens = [1, 2];
  slots.invalidate();
  assert.equal(slots.list[0].tokens.length, 2);
  program.recoveries++;
  slots.invalidate();
  assert.equal(slots.list[0].tokens.length, 0);
});

test("a prompt stops for checkpoints 16 tokens apart: after shared tokens, images, and at its end", async () => {
  const program = programOf({ state_reach: [0, 0] });
  const method = { slots: 1, recurrentStates: [{ rows: 4 }], copyStateRow() {}, takeState() {}, dispose() {} };
  program.method = async () => method;
  const slots = new KvSlots(program);
  await slots.open();
  const [slot] = slots.list;
  slots.assign(slot, {}, tokens(90), [10, 20, 35, 41]);
  assert.deepEqual(slot.stops, [20, 41, 90]);
  assert.equal(slots.untilStop(slot), 20);
  slot.tokens = tokens(21);
  assert.equal(slots.untilStop(slot), 20);
  slots.assign(slot, {}, tokens(60), [20, 58]);
  assert.deepEqual(slot.stops, [58]); // the end is too near
});

/** Return slots of a model that reads images of up to 37 rows, and the slot mappings of its steps. */
async function openedWithImages(bidirectional) {
  const program = programOf({ images: { max_rows: 37, bidirectional } });
  const mappings = [];
  const run = async (args) => void mappings.push(args[1]);
  program.method = async () => ({
    slots: 1,
    embeddingPool: { rows: 74 },
    run,
    takeRows() {},
    takeState() {},
    dispose() {},
  });
  const slots = new KvSlots(program);
  await slots.open();
  return { slots, mappings };
}

test("a piece of a prompt ends before or after rows that see each other", async () => {
  const pieces = ({ slots }, ids, maxRows) => {
    const found = [];
    for (let rest = ids; rest.length; rest = rest.slice(found.at(-1)[0])) {
      found.push(Object.values(slots.prefillPiece(rest, maxRows)));
    }
    return found;
  };
  const [together, apart] = [await openedWithImages(true), await openedWithImages(false)];
  const prompt = (before) => [...tokens(before), ...rowIds(3, 7), ...rowIds(5, 37), 1, 2];
  assert.deepEqual(pieces(apart, prompt(3)), [[32, 32], [17, 32]]); // biome-ignore format: pairs
  for (const maxRows of [Infinity, 8]) {
    const expected = [[3, 8], [7, 8], [37, 128], [2, 8]]; // biome-ignore format: pairs
    assert.deepEqual(pieces(together, prompt(3), maxRows), expected);
  }
  assert.deepEqual(pieces(together, prompt(25)), [[71, 128]]); // biome-ignore format: pairs
  assert.deepEqual(pieces(together, prompt(25), 32), [[32, 32], [37, 128], [2, 8]]); // biome-ignore format: pairs
  assert.deepEqual(pieces(together, tokens(49)), pieces(apart, tokens(49)));
});

test("a step that computes rows which see each other states how many later ones each sees", async () => {
  const piece = [1, ...rowIds(3, 3), ...rowIds(5, 2)];
  for (const bidirectional of [true, false]) {
    const { slots, mappings } = await openedWithImages(bidirectional);
    await slots.prefill(slots.list[0], piece, 8, [[0, 0, 0]]);
    const places = [0, 1, 2, 3, 4, 5].map((position) => [0, position]);
    const later = [0, 2, 1, 0, 1, 0].map((count) => (bidirectional ? [count, 0] : []));
    const idle = Array(2).fill(bidirectional ? [-1, 0, 0, 0] : [-1, 0]);
    const expected = [...places.map((place, row) => [...place, ...later[row]]), ...idle];
    assert.deepEqual(mappings[0].dims, [8, expected[0].length]);
    assert.deepEqual([...mappings[0].data], expected.flat());
  }
});

test("the number of adjustments is what every batch size has words for, at most 3072", async () => {
  const { slots } = await opened();
  assert.equal(slots.maxAdjustments, Math.floor((520 - 8 - 32) / 4)); // four rows share 32 + 2048 words
  const roomy = await opened({ sampling_words: { 1: 1e6 } });
  assert.equal(roomy.slots.maxAdjustments, 3072);
});

const requestOf = (settings, { ends = [], context = 50 } = {}, prompt = [1, 2, 3]) =>
  new GenerationRequest(
    prompt,
    samplingParamsFrom(settings, 1000),
    { ends: new Set(ends), context, maxAdjustments: 100 },
    null,
  );
const sampledTokens = (...list) => list.map((token) => ({ token, logprob: NaN, top_logprobs: [] }));

test("a request ends with an end token, and what follows it is dropped", () => {
  const request = requestOf({ max_tokens: 10 }, { ends: [9] });
  request.appendTokens(sampledTokens(5, 9, 6));
  assert.deepEqual(request.tokens, [1, 2, 3, 5, 9]);
  assert.deepEqual(
    request.output.map((output) => "finish" in output && output.finish),
    [null, "stop"],
  );
});

test("a request ends at max_tokens, or one token beyond the context", () => {
  const short = requestOf({ max_tokens: 2 });
  assert.equal(short.maxSteps, 2);
  short.appendTokens(sampledTokens(5, 6, 7));
  assert.deepEqual([short.numGenerated, short.finish, short.finished], [2, "length", true]);
  const full = requestOf({ max_tokens: 100 }, { context: 4 });
  assert.equal(full.maxSteps, 2);
  full.appendTokens(sampledTokens(5, 6));
  assert.deepEqual([full.numGenerated, full.finish], [2, "length"]);
});

test("a failed sample is an error only if it comes first", () => {
  const request = requestOf({ max_tokens: 10 });
  request.appendTokens(sampledTokens(5, -1));
  assert.deepEqual([request.numGenerated, request.finish], [1, null]);
  assert.throws(() => request.appendTokens(sampledTokens(-1)), { code: "logits", message: /position 3/ });
});

test("penalties allow one step at a time", () => {
  assert.equal(requestOf({ max_tokens: 10 }).maxSteps, 10);
  assert.equal(requestOf({ max_tokens: 10, presence_penalty: 1 }).maxSteps, 1);
  assert.equal(requestOf({ max_tokens: 10, logit_bias: { 1: 1 } }).maxSteps, 10);
});

/** Return an engine with a method whose sampler always returns token 7. */
async function engineOf(prefillRows) {
  const program = programOf({ prefill_rows: prefillRows, max_num_seqs: 1 });
  const state = { slots: 1, takeRows() {}, takeState() {}, dispose() {} };
  const outputs = [new Int32Array([7]), new Float32Array(1), new Int32Array(20), new Float32Array(20)];
  program.method = async () => ({ ...state, run: async () => outputs.map((data) => ({ data, dims: [1] })) });
  const engine = new Engine(program);
  await engine.kvSlots.open();
  return engine;
}

test("a request that asks for it gets the progress of its prompt after each step", async () => {
  for (const reportsProgress of [true, false]) {
    const engine = await engineOf([8]);
    const request = requestOf({ max_tokens: 1 }, {}, tokens(20, 100));
    request.reportsProgress = reportsProgress;
    engine.submit(request);
    const outputs = [];
    for (let output = await engine.next(request); output; output = await engine.next(request)) outputs.push(output);
    const progress = outputs.flatMap((output) => ("numComputed" in output ? [output.numComputed] : []));
    assert.deepEqual(progress, reportsProgress ? [8, 16, 19] : []);
    assert.equal(outputs.length - progress.length, 1);
  }
});

test("the queue holds 1024 requests, and an aborted one leaves it", () => {
  const engine = new Engine(programOf());
  const requests = Array.from({ length: 1024 }, () => requestOf({}));
  for (const request of requests) engine.submit(request);
  assert.throws(() => engine.submit(requestOf({})), { code: "queue-full", message: /1024/ });
  engine.abort(requests[7]);
  engine.submit(requestOf({}));
});
