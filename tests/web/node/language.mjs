// What Python's tests ask of the player's language parts: `node language.mjs NAME`, JSON in and JSON out.
import { readFileSync } from "node:fs";
import { LogitsProcessor, pack } from "../../../web/src/language/sampling.js";
import { FILTER_NAMES, TEST_NAMES } from "../../../web/src/language/jinja/filters.js";
import { strftime } from "../../../web/src/language/jinja/globals.js";
import { ABSENT } from "../../../web/src/language/jinja/strings.js";
import { compileSchema } from "../../../web/src/language/schema.js";
import { GrammarMatcher, Vocabulary } from "../../../web/src/language/grammar_matcher.js";
import { samplingParamsFrom } from "../../../web/src/language/settings.js";
import { StopStringBuffer } from "../../../web/src/language/stream.js";
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

/** Return an answer of random allowed tokens; end tokens are preferred later on. */
function walk(vocabulary, automaton, random, most) {
  const matcher = new GrammarMatcher(vocabulary, automaton);
  const tokens = [];
  while (!matcher.ended && tokens.length < most) {
    const mask = matcher.mask();
    const ends = vocabulary.ends.filter((end) => has(mask, end));
    const choices = allowed(mask, vocabulary.texts.length);
    // Closing marks are preferred later on, lest texts grow for ever.
    const closing = choices.filter((t) => /^["}\]]/.test(vocabulary.texts[t]));
    const late = closing.length && random() < tokens.length / 60;
    const some = ends.length && random() < 0.5 ? ends : late ? closing : choices;
    const token = some[Math.floor(random() * some.length)];
    if (vocabulary.ends.includes(token)) return { tokens, finished: true };
    matcher.take(token);
    tokens.push(token);
  }
  return { tokens, finished: matcher.ended };
}

const handlers = {
  encode({ tokenizer, texts, config, eos, bos }) {
    const found = new Tokenizer(tokenizer);
    const special = specialTokens(found, config, { eos_token_ids: eos ?? [], bos_token_id: bos ?? null });
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
      const hold = new StopStringBuffer(stop);
      const out = [];
      for (const piece of pieces) if (!hold.found) out.push(hold.push(piece));
      if (!hold.found) out.push(hold.flush(""));
      return { out, found: hold.found };
    });
  },
  pack({ vocabulary, rows, room, answers }) {
    const choices = answers.map(({ settings, prompt, tokens, mask }) => {
      const processor = new LogitsProcessor(samplingParamsFrom(settings, vocabulary), prompt, 3072);
      for (const token of tokens) processor.add(token);
      return processor.params(tokens.length, mask && Int32Array.from(mask));
    });
    const { words, adjustments, features } = pack(choices, rows, room);
    return { words: [...words], adjustments, features };
  },
  walk({ tokenizer, size, ends, schemas, most }) {
    const vocabulary = new Vocabulary(new Tokenizer(tokenizer), size, new Set(ends));
    return schemas.map((schema, seed) => attempt(() => walk(vocabulary, compileSchema(schema), chance(seed), most)));
  },
  masks({ tokenizer, size, ends, schema, tokens }) {
    const vocabulary = new Vocabulary(new Tokenizer(tokenizer), size, new Set(ends));
    const matcher = new GrammarMatcher(vocabulary, compileSchema(schema));
    return [...tokens, null].map((token) => {
      const mask = matcher.ended ? [] : [...matcher.mask()];
      if (token !== null) matcher.take(token);
      return mask;
    });
  },
};

const { name, given } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(handlers[name](given)));
