// A language model without a device: what comes next is a hash of what the cache holds, so every mistake shows.
// A row in the wrong slot, at the wrong position or forgotten changes all tokens behind it; a pass that no schedule is
// there for fails.
import assert from "node:assert/strict";
import { WebpteError } from "../../../web/src/errors.js";

export const VOCABULARY = 128;
const TOPS = 20;
const EMPTY = -7;

export const language = {
  tokenizer: "tokenizer",
  tokenizer_config: null,
  chat_template: "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:",
  eos_token_ids: [],
  bos_token_id: null,
  context_length: 64,
  vocab_size: VOCABULARY,
  max_num_seqs: 4,
  prefill_rows: [8, 16, 32],
  decode_rows: [1, 2, 4],
  sampling_words: { 1: 8 + 1024, 2: 16 + 2048, 4: 32 + 4096 },
};

/** A character for a token, as the tests' tiny Llama has them. */
const tokenizer = {
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "[\\s\\S]" }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: {
    type: "WordLevel",
    vocab: Object.fromEntries(Array.from({ length: VOCABULARY }, (_, i) => [String.fromCharCode(i), i])),
    unk_token: "?",
  },
};

const hash = (numbers) => {
  let found = 0x811c9dc5;
  for (const number of numbers) {
    for (let shift = 0; shift < 32; shift += 8) found = Math.imul(found ^ ((number >> shift) & 255), 0x01000193);
  }
  return (found ^ (found >>> 15)) >>> 0;
};

/** The token behind some, as the words of row `row` ask for it. */
export function expected(prefix, words, row, rows, edits, advance) {
  const own = [...words.subarray(8 * row, 8 * row + 8)];
  own[5] += advance;
  const place = own.splice(6, 1)[0];
  const quads = [];
  for (let at = 8 * rows; at < 8 * rows + 4 * edits; at += 4) {
    if (words[at] === row) quads.push(...words.subarray(at + 1, at + 4));
  }
  const number = hash([...prefix, ...own, ...quads]);
  if (place < 0) return number % VOCABULARY;
  const isAllowed = (t) => (words[place + (t >> 5)] >>> (t & 31)) & 1;
  const allowed = Array.from({ length: VOCABULARY }, (_, t) => t).filter(isAllowed);
  return allowed[number % allowed.length];
}

class FakeMethod {
  constructor(program, slots) {
    this.program = program;
    this.cache = Array.from({ length: slots }, () => Array(program.manifest.language.context_length).fill(EMPTY));
    this.losses = program.losses;
    // Of a recurrence: all tokens before, for each checkpoint and then for each slot.
    this.states = Array.from({ length: program.checkpoints + slots }, () => []);
  }

  takeState(other) {
    other.cache.forEach((row, slot) => (this.cache[slot] = [...row]));
    other.states.forEach((text, row) => (this.states[row] = [...text]));
  }

  get recurrentStates() {
    return [{ rows: this.states.length }];
  }

  copyStateRow(from, to) {
    assert.ok(!this.disposed && !this.program.busy && from !== to);
    this.states[to] = [...this.states[from]];
  }

  /** Let a token follow the state of its slot, which must be that of the tokens before it. */
  #advance(token, slot, position) {
    const row = this.program.checkpoints + slot;
    if (position === 0) this.states[row] = [];
    assert.deepEqual(this.states[row], this.cache[slot].slice(0, position), `slot ${slot} is not at ${position}`);
    this.states[row].push(token);
  }

  dispose() {
    this.disposed = true;
    this.program.disposed++;
  }

  async run(args, { outputs }) {
    const [found] = await this.runSteps([args], {}, outputs, 1);
    return found;
  }

  async runSteps(steps, feeds, outputs) {
    const { program } = this;
    assert.ok(!this.disposed && !program.busy, "one pass at a time");
    program.busy = true;
    try {
      program.before();
      await new Promise((resolve) => setTimeout(resolve, program.delay));
      if (this.losses !== program.losses) {
        this.losses = program.losses;
        this.cache.forEach((row) => row.fill(EMPTY));
        this.states = this.states.map(() => []);
        throw new WebpteError("device-lost", "the device is gone");
      }
      let tokens = steps[0][0].data;
      return steps.map((args, step) => {
        if (step) assert.deepEqual(feeds, { 1: 0 });
        const found = this.#pass(tokens, args);
        tokens = found[1].data.map((token) => Math.max(0, token));
        return outputs.map((output) => found[output]);
      });
    } finally {
      program.busy = false;
    }
  }

  #pass(tokens, [{ dims }, slot_mapping, num_decode, logits_indices, advance, { data: words }, edits, features]) {
    const { program } = this;
    const { prefill_rows, decode_rows, sampling_words } = program.manifest.language;
    const rows = dims[1];
    const count = logits_indices.data.length;
    assert.deepEqual(slot_mapping.dims, [rows, 2]);
    if (num_decode) {
      assert.ok(decode_rows.includes(rows) && num_decode === rows && count === rows);
      assert.ok([0, 1, 3].includes(features));
      assert.equal(words.length, features ? sampling_words[rows] : 8 * rows);
      assert.ok(edits === 0 || features & 1);
    } else {
      assert.ok(prefill_rows.includes(rows) && count === 1 && words.length === 8 && features === 0);
    }
    const at = (row) => [slot_mapping.data[2 * row], slot_mapping.data[2 * row + 1] + advance];
    const given = [...tokens].map((token, row) => [token, ...at(row)]);
    const live = given.filter(([, slot]) => slot >= 0);
    const idle = given.slice(live.length);
    assert.ok(idle.every(([token, slot]) => slot === -1 && (advance > 0 || token === 0)), "idle rows stand at the end");
    const slots = live.map(([, slot]) => slot);
    assert.equal(new Set(slots).size, num_decode ? slots.length : 1, "each row that decodes is of another slot");
    for (const [token, slot, position] of live) {
      assert.ok(token >= 0 && token < VOCABULARY && slot < this.cache.length && position < this.cache[0].length);
      assert.ok(position === 0 || this.cache[slot][position - 1] !== EMPTY, "something was never computed");
      if (program.manifest.language.state_reach) this.#advance(token, slot, position);
      this.cache[slot][position] = token;
    }
    program.passes.push({ rows, live: live.length, decoding: num_decode > 0 });
    const chosen = Array.from({ length: count }, (_, row) => {
      const [, slot, position] = given[row] ?? [];
      if (!num_decode || slot < 0) return 0;
      const prefix = this.cache[slot].slice(0, position + 1);
      return program.bad(prefix) ? -1 : expected(prefix, words, row, rows, edits, advance);
    });
    const tops = (token) => Array.from({ length: TOPS }, (_, i) => (i < 5 ? (token + i) % VOCABULARY : -1));
    const likeliest = chosen.flatMap(tops);
    const outputs = [[], Int32Array.from(chosen), chosen.map((t) => -t), likeliest, likeliest.map((t) => -t)];
    return outputs.map((data) => ({ data }));
  }
}

export class FakeProgram {
  losses = 0;
  recoveries = 0;
  disposed = 0;
  delay = 0;
  passes = [];
  before = () => {};
  bad = () => false;
  memory = Infinity; // slots that fit
  checkpoints = 3; // of a model with a recurrence

  constructor(changes = {}) {
    this.manifest = { name: "fake", language: { ...language, ...changes } };
  }

  async method(name, slots) {
    assert.equal(name, "forward");
    if (slots > this.memory) throw new WebpteError("out-of-memory", "no room");
    return new FakeMethod(this, slots);
  }

  async text(sha) {
    assert.equal(sha, "tokenizer");
    return JSON.stringify(tokenizer);
  }

  async recover() {
    this.recoveries++;
  }
}
