// Chats and completions of a language model, in the shapes that OpenAI's clients know.
import { throwIfAborted, WebpteError } from "../errors.js";
import { Engine, Job } from "./engine.js";
import { settingsFrom, tokensFrom } from "./settings.js";
import { gather, Holder } from "./stream.js";
import { encodeChat, renderChat } from "./template.js";
import { encodePrompt, specialTokens, TextStream, Tokenizer } from "./tokenizer.js";

/** @typedef {import("./template.js").Message} Message */
const KEPT = 16; // schemas, with the masks of their states

export class Language {
  #program;
  #language;
  #engine;
  /** @type {any} */
  #tokenizer;
  /** @type {any} */
  #special;
  /** @type {import("./schema_masks.js").Vocabulary | undefined} */
  #vocabulary;
  /** By their JSON, the latest used last. @type {Map<string, ReturnType<typeof import("./schema.js").automatonOf>>} */
  #schemas = new Map();
  #answers = 0;

  /** @param {any} program of a language model */
  constructor(program) {
    this.#program = program;
    this.#language = program.manifest.language;
    this.#engine = new Engine(program);
  }

  /** Tokens of a conversation, prompt and answer. @returns {number} */
  get context() {
    return this.#language.context;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const { tokenizer, tokenizer_config } = this.#language;
    const [json, config] = await Promise.all([
      this.#program.text(tokenizer),
      tokenizer_config ? this.#program.text(tokenizer_config) : "{}",
      this.#engine.slots.open(signal),
    ]);
    this.#tokenizer = new Tokenizer(JSON.parse(json));
    this.#special = specialTokens(this.#tokenizer, JSON.parse(config), this.#language);
    return this;
  }

  /** Tokens that messages become. @param {Message[]} messages */
  count(messages) {
    return this.#encode({ messages }).length;
  }

  /**
   * An answer: all of it, or its chunks if `stream` is set.
   * @param {any} request
   * @param {AbortSignal | null} [signal]
   */
  async answer(request, signal) {
    if (request.stream) return this.create(request, signal);
    return gather(await this.create({ ...request, stream_options: { include_usage: true } }, signal));
  }

  /**
   * The chunks of an answer to `messages`, or of what follows `prompt`. It is computed while somebody reads them.
   * @param {any} request
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<AsyncGenerator<any, void, undefined>>}
   */
  async create(request, signal) {
    throwIfAborted(signal);
    const { vocabulary, context } = this.#language;
    const settings = settingsFrom(request, vocabulary);
    const guide = settings.schema === null ? null : await this.#guide(settings.schema);
    const prompt = tokensFrom(this.#encode(request), vocabulary);
    if (!prompt.length) throw new WebpteError("input", "the prompt has no tokens");
    if (prompt.length >= context) {
      throw new WebpteError("input", `the prompt has ${prompt.length} tokens; the model's context holds ${context}`);
    }
    const limits = { ends: this.#special.ends, capacity: context, mostEdits: this.#engine.slots.mostEdits };
    return this.#chunks(new Job(prompt, settings, limits, guide), request, signal);
  }

  /** @param {any} request @returns {number[]} */
  #encode({ messages, prompt, parse_special }) {
    const { template } = this.#language;
    if ((messages === undefined) === (prompt === undefined)) {
      throw new WebpteError("input", "give messages or a prompt, one of them");
    }
    if (Array.isArray(prompt)) return prompt;
    if (messages === undefined) {
      return encodePrompt(this.#tokenizer, this.#special, prompt, parse_special === true);
    }
    if (template === null) {
      throw new WebpteError("input", "the model has no chat template; give a prompt instead of messages");
    }
    const { texts } = this.#special;
    if (parse_special === true) return this.#tokenizer.encode(renderChat(template, messages, texts));
    return encodeChat(this.#tokenizer, template, messages, texts);
  }

  /** What follows schemas is loaded with the first one: few pages have any. @param {object | boolean} schema */
  async #guide(schema) {
    const { automatonOf, Guide, Vocabulary } = await import("./schema_masks.js");
    const key = JSON.stringify(schema);
    const automaton = this.#schemas.get(key) ?? automatonOf(schema);
    this.#schemas.delete(key);
    this.#schemas.set(key, automaton);
    if (this.#schemas.size > KEPT) this.#schemas.delete(/** @type {string} */ (this.#schemas.keys().next().value));
    this.#vocabulary ??= new Vocabulary(this.#tokenizer, this.#language.vocabulary, this.#special.ends);
    return new Guide(this.#vocabulary, automaton);
  }

  /** @param {Job} job @param {any} request @param {AbortSignal | null} [signal] */
  async *#chunks(job, request, signal) {
    const chat = request.messages !== undefined;
    const head = {
      id: `${chat ? "chatcmpl" : "cmpl"}-${++this.#answers}`,
      object: chat ? "chat.completion.chunk" : "text_completion",
      created: Math.floor(Date.now() / 1000),
      model: this.#program.manifest.name,
    };
    const shaped = (/** @type {string} */ text, /** @type {string | null} */ finish_reason, rest = {}) => {
      const piece = chat ? { delta: text || !finish_reason ? { content: text } : {} } : { text };
      return { ...head, choices: [{ index: 0, ...piece, logprobs: null, finish_reason, ...rest }] };
    };
    this.#engine.start(job);
    try {
      if (chat) yield shaped("", null, { delta: { role: "assistant", content: "" } });
      for await (const { text, finish, chosen } of this.#pieces(job, signal)) {
        const { logprobs, top_logprobs } = job.settings;
        const details = {
          ...(logprobs && { logprobs: { content: [this.#likelihood(chosen, top_logprobs)] } }),
          ...(request.return_token_ids && { token_ids: [chosen.token] }),
        };
        if (text || finish || Object.keys(details).length) yield shaped(text, finish, details);
      }
      if (request.stream_options?.include_usage) yield { ...head, choices: [], usage: usage(job) };
    } finally {
      this.#engine.drop(job);
    }
  }

  /**
   * Every token of a job with the text that it completes, and what ends by it.
   * @param {Job} job
   * @param {AbortSignal | null} [signal]
   */
  async *#pieces(job, signal) {
    const stream = new TextStream(this.#tokenizer);
    const hold = new Holder(job.settings.stop);
    for (;;) {
      const found = await this.#engine.next(job, signal);
      throwIfAborted(signal);
      if (!found) return;
      const { chosen } = found;
      const silent = this.#special.ends.has(chosen.token);
      let text = silent ? "" : hold.push(stream.push(chosen.token));
      const finish = hold.found ? "stop" : found.finish;
      if (finish && !hold.found) text += hold.rest(silent ? "" : stream.flush());
      yield { text, finish, chosen };
      if (finish) return;
    }
  }

  /** @param {import("./choices.js").Chosen} chosen @param {number} tops */
  #likelihood({ token, logprob, tops: likeliest }, tops) {
    const entry = (/** @type {number} */ id, /** @type {number} */ logprob) => ({
      token: this.#tokenizer.decode([id]) || this.#tokenizer.text(id),
      bytes: [...(this.#tokenizer.bytes(id) ?? [])],
      logprob,
    });
    return { ...entry(token, logprob), top_logprobs: likeliest.slice(0, tops).map(([id, value]) => entry(id, value)) };
  }
}

/** What an answer took. Seconds are of the passes that it had part in. @param {Job} job */
function usage({ prompt, chosen, reused, milliseconds }) {
  return {
    prompt_tokens: prompt,
    completion_tokens: chosen,
    total_tokens: prompt + chosen,
    prompt_tokens_details: { cached_tokens: reused ?? 0 },
    prefill_seconds: milliseconds.prefill / 1000,
    decode_seconds: milliseconds.decode / 1000,
  };
}
