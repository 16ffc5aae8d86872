import assert from "node:assert/strict";
import { test } from "node:test";
import { Engine, Job } from "../src/language/engine.js";
import { settingsFrom } from "../src/language/settings.js";
import { Slots } from "../src/language/slots.js";

const language = {
  sequences: 3,
  prompt_rows: [8, 32, 128],
  decode_rows: [1, 2, 4],
  vocabulary: 1000,
  choice_words: { 1: 8 + 1024, 2: 16 + 2048, 4: 32 + 2048 },
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
  const slots = new Slots(program);
  await slots.open();
  return { program, slots };
}

const tokens = (count, first = 0) => Array.from({ length: count }, (_, i) => first + i);

test("a piece of a prompt has the rows of a schedule, in two passes where that saves 16 rows", async () => {
  const { slots } = await opened();
  const rows = (count, most) => slots.piece(count, most).rows;
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
    slots.give(slots.list[number], {}, []);
    slots.list[number].tokens = tokens(count);
    slots.list[number].owner = null;
  }
  assert.equal(slots.vacant(tokens(30)), slots.list[0]);
  slots.list[0].owner = {};
  assert.equal(slots.vacant(tokens(30)), slots.list[1]);
  assert.equal(slots.vacant(tokens(30, 500)), slots.list[2]); // nothing in common: an empty one
});

test("without an empty slot the least recently used one is taken", async () => {
  const { slots } = await opened();
  await slots.grow();
  for (const number of [1, 0, 2]) {
    const slot = slots.list[number];
    slots.give(slot, {}, []);
    slot.tokens = tokens(5, 100 * number);
    slot.owner = null;
  }
  assert.equal(slots.vacant(tokens(9, 900)), slots.list[1]);
});

test("what a slot has cached beyond the common beginning is dropped", async () => {
  const { slots } = await opened();
  const [slot] = slots.list;
  slot.tokens = [1, 2, 3, 4];
  assert.equal(slots.give(slot, {}, [1, 2, 9]), 2);
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
  slots.noticeLoss();
  assert.equal(slots.list[0].tokens.length, 2);
  program.recoveries++;
  slots.noticeLoss();
  assert.equal(slots.list[0].tokens.length, 0);
});

test("the number of edits is what the tightest packing has room for, at most 3072", async () => {
  const { slots } = await opened();
  assert.equal(slots.mostEdits, Math.floor((520 - 8 - 32) / 4)); // four rows share 32 + 2048 words
  const roomy = await opened({ choice_words: { 1: 1e6 } });
  assert.equal(roomy.slots.mostEdits, 3072);
});

const jobOf = (request, { ends = [], capacity = 50 } = {}, prompt = [1, 2, 3]) =>
  new Job(prompt, settingsFrom(request, 1000), { ends: new Set(ends), capacity, mostEdits: 100 }, null);
const chosen = (...list) => list.map((token) => ({ token, logprob: NaN, tops: [] }));

test("a job ends with an end token, and what follows it is dropped", () => {
  const job = jobOf({ max_tokens: 10 }, { ends: [9] });
  job.give(chosen(5, 9, 6));
  assert.deepEqual(job.tokens, [1, 2, 3, 5, 9]);
  assert.deepEqual(
    job.coming.map(({ finish }) => finish),
    [null, "stop"],
  );
});

test("a job ends at max_tokens, or one token beyond the context", () => {
  const short = jobOf({ max_tokens: 2 });
  assert.equal(short.mostSteps, 2);
  short.give(chosen(5, 6, 7));
  assert.deepEqual([short.chosen, short.finish, short.over], [2, "length", true]);
  const full = jobOf({ max_tokens: 100 }, { capacity: 4 });
  assert.equal(full.mostSteps, 2);
  full.give(chosen(5, 6));
  assert.deepEqual([full.chosen, full.finish], [2, "length"]);
});

test("a choice that failed is an error only if it comes first", () => {
  const job = jobOf({ max_tokens: 10 });
  job.give(chosen(5, -1));
  assert.deepEqual([job.chosen, job.finish], [1, null]);
  assert.throws(() => job.give(chosen(-1)), { code: "logits", message: /position 3/ });
});

test("penalties allow one step at a time", () => {
  assert.equal(jobOf({ max_tokens: 10 }).mostSteps, 10);
  assert.equal(jobOf({ max_tokens: 10, presence_penalty: 1 }).mostSteps, 1);
  assert.equal(jobOf({ max_tokens: 10, logit_bias: { 1: 1 } }).mostSteps, 10);
});

test("the queue holds 1024 jobs, and a dropped one leaves it", () => {
  const engine = new Engine(programOf());
  const jobs = Array.from({ length: 1024 }, () => jobOf({}));
  for (const job of jobs) engine.start(job);
  assert.throws(() => engine.start(jobOf({})), { code: "queue-full", message: /1024/ });
  engine.drop(jobs[7]);
  engine.start(jobOf({}));
});
