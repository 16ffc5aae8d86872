// Chats and completions of a language model, in OpenAI's format.
import { inputError, reading, throwIfAborted, WebpteError } from "../errors.js";
import { Engine, GenerationRequest, NO_IMAGES } from "./engine.js";
import { isImage, partsOf } from "./parts.js";
import { applyDefaults, samplingParamsFrom, tokensFrom } from "./settings.js";
import { joinChunks, StopStringBuffer } from "./stream.js";
import { encodeChat, renderChat } from "./template.js";
import { thoughtAfter, withReasoningFields } from "./thinking.js";
import { encodePrompt, specialTokens, TextStream, Tokenizer } from "./tokenizer.js";

/** @typedef {import("./template.js").Message} Message */
const MAX_COMPILED_SCHEMAS = 16; // kept with the masks of their states

export class Language {
  #program;
  #language;
  #engine;
  /** @type {any} */
  #tokenizer;
  /** @type {any} */
  #special;
  /** @type {import("./grammar_matcher.js").Vocabulary | undefined} */
  #vocabulary;
  /** By their JSON, the most recently used last. @type {Map<string, ReturnType<typeof import("./schema.js").compileSchema>>} */
  #automata = new Map();
  /** @type {import("./images/prompts.js").ImagePrompts | null} */
  #images = null;
  #numRequests = 0;

  /** @param {any} program of a language model */
  constructor(program) {
    this.#program = program;
    this.#language = program.manifest.language;
    this.#engine = new Engine(program);
  }

  /** Maximum number of tokens of prompt and answer. @returns {number} */
  get context() {
    return this.#language.context_length;
  }

  /** @param {AbortSignal | null} [signal] */
  async open(signal) {
    const { tokenizer, tokenizer_config, images } = this.#language;
    const [json, config] = await Promise.all([
      this.#program.text(tokenizer),
      tokenizer_config ? this.#program.text(tokenizer_config) : "{}",
      this.#engine.kvSlots.open(signal),
    ]);
    this.#tokenizer = new Tokenizer(reading("tokenizer.json", () => JSON.parse(json)));
    const settings = reading("tokenizer_config.json", () => JSON.parse(config));
    this.#special = specialTokens(this.#tokenizer, settings, this.#language);
    if (images) {
      const { ImagePrompts } = await import("./images/prompts.js");
      this.#images = new ImagePrompts(images, this.#tokenizer);
    }
    return this;
  }

  /** Return the number of tokens of messages. @param {Message[]} messages */
  async countTokens(messages) {
    const { tokens, images } = await this.#encode({ messages });
    return this.#rows(tokens, images).ids.length;
  }

  /**
   * Return a completion, or its chunks if `stream` is set.
   * @param {any} request
   * @param {AbortSignal | null} [signal]
   */
  async answer(request, signal) {
    if (request.stream) return this.create(request, signal);
    return joinChunks(await this.create({ ...request, stream_options: { include_usage: true } }, signal));
  }

  /**
   * Return the chunks of an answer to `messages`, or of the text after `prompt`. They are computed while the caller
   * reads them.
   * @param {any} request
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<AsyncGenerator<any, void, undefined>>}
   */
  async create(request, signal) {
    throwIfAborted(signal);
    const { vocab_size, context_length } = this.#language;
    const settings = samplingParamsFrom(applyDefaults(request, this.#language.sampling ?? {}), vocab_size);
    const matcher = settings.schema === null ? null : await this.#matcher(settings.schema);
    const { tokens, images } = await this.#encode(request);
    const prompt = tokensFrom(tokens, vocab_size);
    const isChat = request.messages !== undefined;
    const template = isChat ? this.#language.chat_template : null;
    const splitter = thoughtAfter(template, this.#tokenizer, prompt, isThinking(request), matcher !== null);
    const { ids, ...rows } = this.#rows(prompt, images);
    if (!ids.length) throw inputError("prompt", "at least one token", 0);
    if (ids.length >= context_length) {
      const expected = `fewer tokens than the model's context of ${context_length}`;
      throw inputError("prompt", expected, ids.length, "Shorten it, or start a new chat.");
    }
    const limits = {
      ends: this.#special.ends,
      context: context_length,
      maxAdjustments: this.#engine.kvSlots.maxAdjustments,
    };
    const generation = new GenerationRequest(ids, settings, limits, matcher, splitter, rows);
    generation.reportsProgress = request.stream === true && request.return_progress === true;
    return this.#chunks(generation, request, signal);
  }

  /** Return tokens with the rows of images in the place of their tokens. @param {number[]} tokens
   * @param {import("./images/prompts.js").PreparedImage[]} images */
  #rows(tokens, images) {
    return this.#images && images.length ? this.#images.rows(tokens, images) : { ids: tokens, ...NO_IMAGES };
  }

  /** Return the tokens of a request, with one for each tile of its images. @param {any} request
   * @returns {Promise<{ tokens: number[], images: import("./images/prompts.js").PreparedImage[] }>} */
  async #encode(request) {
    const { prompt, parse_special } = request;
    let { messages } = request;
    /** @type {import("./images/prompts.js").PreparedImage[]} */
    let images = [];
    const { chat_template: template } = this.#language;
    if ((messages === undefined) === (prompt === undefined)) {
      throw inputError("request", "either messages or prompt", messages === undefined ? "neither" : "both");
    }
    if (Array.isArray(prompt)) return { tokens: prompt, images };
    if (messages === undefined) {
      return { tokens: encodePrompt(this.#tokenizer, this.#special, prompt, parse_special === true), images };
    }
    if (template === null) {
      throw new WebpteError("input", "messages: the model has no chat template. Pass prompt instead.");
    }
    const enabled = isThinking(request);
    const variables = { ...(enabled !== null && { enable_thinking: enabled }), ...this.#special.texts };
    if (this.#images) {
      ({ messages, images } = await this.#images.read(messages));
    } else if (Array.isArray(messages) && messages.some((message) => partsOf(message).some(isImage))) {
      throw inputError("messages", "texts only, because the model reads no images", "an image");
    }
    const expanded = (/** @type {string} */ text) => this.#images?.expanded(text, images) ?? text;
    const own = Array.isArray(messages) ? withReasoningFields(template, messages) : messages;
    const tokens =
      parse_special === true
        ? this.#tokenizer.encode(expanded(renderChat(template, own, variables)))
        : encodeChat(this.#tokenizer, template, own, variables, expanded);
    return { tokens, images };
  }

  /** Return a matcher for a schema. Its modules are loaded with the first schema. @param {object | boolean} schema */
  async #matcher(schema) {
    const { compileSchema, GrammarMatcher, Vocabulary } = await import("./grammar_matcher.js");
    const key = JSON.stringify(schema);
    const automaton = this.#automata.get(key) ?? compileSchema(schema);
    this.#automata.delete(key);
    this.#automata.set(key, automaton);
    if (this.#automata.size > MAX_COMPILED_SCHEMAS)
      this.#automata.delete(/** @type {string} */ (this.#automata.keys().next().value));
    this.#vocabulary ??= new Vocabulary(this.#tokenizer, this.#language.vocab_size, this.#special.ends);
    return new GrammarMatcher(this.#vocabulary, automaton);
  }

  /** @param {GenerationRequest} generation @param {any} request @param {AbortSignal | null} [signal] */
  async *#chunks(generation, request, signal) {
    const chat = request.messages !== undefined;
    const head = {
      id: `${chat ? "chatcmpl" : "cmpl"}-${++this.#numRequests}`,
      object: chat ? "chat.completion.chunk" : "text_completion",
      created: Math.floor(Date.now() / 1000),
      model: this.#program.manifest.name,
    };
    const chunk = (/** @type {string} */ text, /** @type {string | null} */ finish_reason, rest = {}) => {
      const piece = chat ? { delta: text || !finish_reason ? { content: text } : {} } : { text };
      return { ...head, choices: [{ index: 0, ...piece, logprobs: null, finish_reason, ...rest }] };
    };
    this.#engine.submit(generation);
    try {
      if (chat) yield chunk("", null, { delta: { role: "assistant", content: "" } });
      for await (const piece of this.#pieces(generation, signal)) {
        if ("numComputed" in piece) {
          yield { ...head, choices: [], prompt_progress: promptProgress(generation, piece.numComputed) };
          continue;
        }
        const { text, reasoning, finish, sampled } = piece;
        if (reasoning) yield chunk("", null, { delta: { reasoning_content: reasoning } });
        const { logprobs, top_logprobs } = generation.settings;
        const details = {
          ...(logprobs && { logprobs: { content: [this.#logprobs(sampled, top_logprobs)] } }),
          ...(request.return_token_ids && { token_ids: [sampled.token] }),
        };
        if (text || finish || Object.keys(details).length) yield chunk(text, finish, details);
      }
      if (request.stream_options?.include_usage) yield { ...head, choices: [], usage: usage(generation) };
    } finally {
      this.#engine.abort(generation);
    }
  }

  /**
   * Yield every token with the reasoning or text that it completes and, with the last one, the finish reason; before
   * the first token, the progress of the prompt if it is asked for.
   * @param {GenerationRequest} generation
   * @param {AbortSignal | null} [signal]
   */
  async *#pieces(generation, signal) {
    const stream = new TextStream(this.#tokenizer);
    const buffer = new StopStringBuffer(generation.settings.stop);
    const { splitter } = generation;
    const split = (/** @type {number} */ token) => {
      const text = splitter?.isTag(token) ? stream.flush() : stream.push(token);
      return splitter?.push(token, text) ?? { text, reasoning: "" };
    };
    for (;;) {
      const output = await this.#engine.next(generation, signal);
      throwIfAborted(signal);
      if (!output) return;
      if ("numComputed" in output) {
        yield output;
        continue;
      }
      const { sampled } = output;
      const silent = this.#special.ends.has(sampled.token);
      let { text, reasoning } = silent ? { text: "", reasoning: "" } : split(sampled.token);
      text = buffer.push(text);
      const finish = buffer.found ? "stop" : output.finish;
      if (finish && !buffer.found) {
        const rest = silent ? "" : stream.flush();
        const last = splitter?.flush(rest) ?? { text: rest, reasoning: "" };
        text += buffer.flush(last.text);
        reasoning += last.reasoning;
      }
      yield { text, reasoning, finish, sampled };
      if (finish) return;
    }
  }

  /** @param {import("./sampling.js").SampledToken} sampled @param {number} count of top_logprobs */
  #logprobs({ token, logprob, top_logprobs }, count) {
    const entry = (/** @type {number} */ id, /** @type {number} */ logprob) => ({
      token: this.#tokenizer.decode([id]) || this.#tokenizer.text(id),
      bytes: [...(this.#tokenizer.bytes(id) ?? [])],
      logprob,
    });
    const top = top_logprobs.slice(0, count).map(([id, value]) => entry(id, value));
    return { ...entry(token, logprob), top_logprobs: top };
  }
}

/** Return whether a request asks for a thought; null if the template decides. @param {any} request @returns {boolean | null} */
const isThinking = ({ enable_thinking, reasoning_effort }) =>
  enable_thinking ?? (reasoning_effort ? reasoning_effort !== "none" : null);

/** Return how much of a prompt is computed. @param {GenerationRequest} request @param {number} numComputed */
const promptProgress = ({ numPrompt, numCached }, numComputed) => ({
  total: numPrompt,
  cache: numCached ?? 0,
  processed: numComputed,
});

/** Return the usage of a request. Seconds are those of the steps that it took part in. @param {GenerationRequest} request */
function usage({ numPrompt, numGenerated, numCached, milliseconds, splitter }) {
  return {
    prompt_tokens: numPrompt,
    completion_tokens: numGenerated,
    total_tokens: numPrompt + numGenerated,
    prompt_tokens_details: { cached_tokens: numCached ?? 0 },
    ...(splitter?.numTokens && { completion_tokens_details: { reasoning_tokens: splitter.numTokens } }),
    prefill_seconds: milliseconds.prefill / 1000,
    decode_seconds: milliseconds.decode / 1000,
  };
}
