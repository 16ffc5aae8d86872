// What Python's tests ask of the player's language parts: `node language.mjs NAME`, JSON in and JSON out.
import { readFileSync } from "node:fs";
import { Choosing, pack } from "../../../web/src/language/choices.js";
import { FILTER_NAMES, TEST_NAMES } from "../../../web/src/language/jinja/filters.js";
import { strftime } from "../../../web/src/language/jinja/globals.js";
import { ABSENT } from "../../../web/src/language/jinja/strings.js";
import { automatonOf } from "../../../web/src/language/schema.js";
import { Guide, Vocabulary } from "../../../web/src/language/schema_masks.js";
import { settingsFrom } from "../../../web/src/language/settings.js";
import { Holder } from "../../../web/src/language/stream.js";
import { encodeChat, renderChat } from "../../../web/src/language/template.js";
import { encodePrompt, specialTokens, TextStream, Tokenizer } from "../../../web/src/language/tokenizer.js";

const attempt = (work) => {
  try {
    return work();
  } catch (error) {
    return { error: error.message, code: error.code };
  }
};

/** Numbers from 0 to 1. */
function chance(seed) {
  let state = seed + 0x9e3779b9;
  return () => {
    state = Math.imul(state ^ (state >>> 15), state | 1);
    state ^= state + Math.imul(state ^ (state >>> 7), state | 61);
    return ((state ^ (state >>> 14)) >>> 0) / 2 ** 32;
  };
}

const has = (mask, token) => (mask[token >> 5] >>> (token & 31)) & 1;
const allowed = (mask, size) => Array.from({ length: size }, (_, token) => token).filter((token) => has(mask, token));

/** An answer by allowed tokens at random, of which ends are preferred behind some. */
function walk(vocabulary, automaton, random, most) {
  const guide = new Guide(vocabulary, automaton);
  const tokens = [];
  while (!guide.ended && tokens.length < most) {
    const mask = guide.mask();
    const ends = vocabulary.ends.filter((end) => has(mask, end));
    const choices = allowed(mask, vocabulary.texts.length);
    // Closing marks are preferred later on, lest texts grow for ever.
    const closing = choices.filter((t) => /^["}\]]/.test(vocabulary.texts[t]));
    const late = closing.length && random() < tokens.length / 60;
    const some = ends.length && random() < 0.5 ? ends : late ? closing : choices;
    const token = some[Math.floor(random() * some.length)];
    if (vocabulary.ends.includes(token)) return { tokens, finished: true };
    guide.take(token);
    tokens.push(token);
  }
  return { tokens, finished: guide.ended };
}

const handlers = {
  encode({ tokenizer, texts, config, eos, bos }) {
    const found = new Tokenizer(tokenizer);
    const special = specialTokens(found, config, { eos: eos ?? [], bos: bos ?? null });
    return {
      plain: texts.map((text) => found.encode(text)),
      full: texts.map((text) => found.encode(text, true)),
      prompt: texts.map((text) => encodePrompt(found, special, text)),
      parsed: texts.map((text) => encodePrompt(found, special, text, true)),
      texts: special.texts,
      ends: [...special.ends],
    };
  },
  tokens({ tokenizer, texts }) {
    const found = new Tokenizer(tokenizer);
    return texts.map((text) =>
      attempt(() => {
        const plain = found.encode(text);
        return [plain, found.encode(text, true), found.decode(plain)];
      }),
    );
  },
  refused(tokenizer) {
    return attempt(() => new Tokenizer(tokenizer).encode("a"));
  },
  stream({ tokenizer, sequences }) {
    const found = new Tokenizer(tokenizer);
    return sequences.map((tokens) => {
      const stream = new TextStream(found);
      return [...tokens.map((token) => stream.push(token)), stream.flush()];
    });
  },
  bytes({ tokenizer, count }) {
    const found = new Tokenizer(tokenizer);
    return attempt(() => Array.from({ length: count }, (_, id) => found.bytes(id)).map((bytes) => bytes && [...bytes]));
  },
  render(cases) {
    return cases.map(([template, messages, texts]) => attempt(() => renderChat(template, messages, texts)));
  },
  renderAll({ templates, talks }) {
    const one = (template, tools, talk) =>
      attempt(() => renderChat(template, talk.messages, { ...talk.variables, tools: tools ? talk.tools : null }));
    return templates.map(({ template, tools }) => talks.map((talk) => one(template, tools, talk)));
  },
  chats({ tokenizer, cases }) {
    const found = new Tokenizer(tokenizer);
    return cases.map(([template, messages, variables]) => attempt(() => encodeChat(found, template, messages, variables)));
  },
  names() {
    return { filters: FILTER_NAMES, tests: TEST_NAMES, absent: ABSENT };
  },
  dates(cases) {
    return cases.map(([seconds, format]) => attempt(() => strftime(new Date(seconds * 1000), format)));
  },
  hold(cases) {
    return cases.map(([stop, pieces]) => {
      const hold = new Holder(stop);
      const out = [];
      for (const piece of pieces) if (!hold.found) out.push(hold.push(piece));
      if (!hold.found) out.push(hold.rest(""));
      return { out, found: hold.found };
    });
  },
  pack({ vocabulary, rows, room, answers }) {
    const choices = answers.map(({ settings, prompt, tokens, mask }) => {
      const choosing = new Choosing(settingsFrom(settings, vocabulary), prompt, 3072);
      for (const token of tokens) choosing.add(token);
      return choosing.choice(tokens.length, mask && Int32Array.from(mask));
    });
    const { words, edits, features } = pack(choices, rows, room);
    return { words: [...words], edits, features };
  },
  walk({ tokenizer, size, ends, schemas, most }) {
    const vocabulary = new Vocabulary(new Tokenizer(tokenizer), size, new Set(ends));
    return schemas.map((schema, seed) => attempt(() => walk(vocabulary, automatonOf(schema), chance(seed), most)));
  },
  masks({ tokenizer, size, ends, schema, tokens }) {
    const vocabulary = new Vocabulary(new Tokenizer(tokenizer), size, new Set(ends));
    const guide = new Guide(vocabulary, automatonOf(schema));
    return [...tokens, null].map((token) => {
      const mask = guide.ended ? [] : [...guide.mask()];
      if (token !== null) guide.take(token);
      return mask;
    });
  },
};

const { name, given } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(handlers[name](given)));
