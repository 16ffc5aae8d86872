/**
 * @typedef {import("./method.js").Argument} Argument
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {{ role: string, content: string }} Message
 * @typedef {{
 *   stream?: boolean, temperature?: number, top_p?: number, top_k?: number, min_p?: number, seed?: number,
 *   max_tokens?: number, stop?: string | string[], frequency_penalty?: number, presence_penalty?: number,
 *   repetition_penalty?: number, logit_bias?: Record<string, number>, logprobs?: boolean, top_logprobs?: number,
 *   response_format?: {
 *     type: "text" | "json_object" | "json_schema", json_schema?: { name?: string, schema: object | boolean }
 *   },
 *   stream_options?: { include_usage?: boolean }, signal?: AbortSignal | null
 * }} Settings
 * @typedef {Settings & { messages: Message[] }} ChatRequest
 * @typedef {Settings & { prompt: string | number[] }} CompletionRequest
 * @typedef {{ prompt_tokens: number, completion_tokens: number, total_tokens: number }} Usage
 * @typedef {{ token: string, bytes: number[], logprob: number }} TokenLikelihood
 * @typedef {{ content: (TokenLikelihood & { top_logprobs: TokenLikelihood[] })[] } | null} Logprobs
 * @typedef {"stop" | "length" | null} FinishReason
 * @typedef {{ id: string, object: string, created: number, model: string, usage?: Usage }} Head
 * @typedef {{ index: number, logprobs: Logprobs, finish_reason: FinishReason }} Choice
 * @typedef {Head & { choices: (Choice & { message: Message })[] }} ChatAnswer
 * @typedef {Head & { choices: (Choice & { delta: Partial<Message> })[] }} ChatChunk
 * @typedef {Head & { choices: (Choice & { text: string })[] }} Completion
 * @typedef {{
 *   create(request: ChatRequest & { stream: true }): Promise<AsyncIterable<ChatChunk>>,
 *   create(request: ChatRequest & { stream?: false }): Promise<ChatAnswer>,
 * }} ChatCompletions
 * @typedef {{
 *   create(request: CompletionRequest & { stream: true }): Promise<AsyncIterable<Completion>>,
 *   create(request: CompletionRequest & { stream?: false }): Promise<Completion>,
 * }} Completions
 */

/** A loaded model. It tells of "lost" and "recovered" when its GPU device went away and is replaced. */
export class Model extends EventTarget {
  #backend;

  /** @param {import("./host.js").Backend} backend */
  constructor(backend) {
    super();
    this.#backend = backend;
    /** Answers to messages. @type {{ completions: ChatCompletions }} */
    this.chat = { completions: answering(backend) };
    /** What follows prompts. @type {Completions} */
    this.completions = answering(backend);
  }

  /** What the bundle says of itself: its manifest. */
  get info() {
    return this.#backend.about.info;
  }

  get name() {
    return this.info.name;
  }

  get kind() {
    return this.info.kind;
  }

  get adapter() {
    return this.#backend.about.adapter;
  }

  /** How often a lost device was replaced. */
  get recoveries() {
    return this.#backend.about.recoveries;
  }

  /**
   * Call a method.
   * @param {Argument[]} inputs
   * @param {{ method?: string, outputs?: number[], signal?: AbortSignal | null }} [options]
   * @returns {Promise<Tensor[]>}
   */
  run(inputs, { method = "forward", outputs, signal } = {}) {
    return this.#backend.call("run", [inputs, method, outputs], signal);
  }

  /**
   * The vectors of texts, by a sentence encoder.
   * @param {string[]} texts
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Float32Array[]>}
   */
  embed(texts, { signal } = {}) {
    return this.#backend.call("embed", [texts], signal);
  }

  /**
   * Return the number of tokens of messages, for a language model.
   * @param {Message[]} messages
   * @returns {Promise<number>}
   */
  countTokens(messages) {
    return this.#backend.call("countTokens", [messages]);
  }

  /**
   * A file that `info` names by its SHA-256, verified.
   * @param {string} sha
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  bytes(sha, { signal } = {}) {
    return this.#backend.call("bytes", [sha], signal);
  }

  /** Lose the GPU device, as a driver's reset would: to try out how a page copes. @returns {Promise<void>} */
  loseDevice() {
    return this.#backend.call("loseDevice", []);
  }

  /** Free everything; whatever is under way ends. */
  dispose() {
    this.#backend.dispose();
  }
}

/**
 * Answers, whole or as they come. Stop one by the signal, or by leaving the loop over its chunks.
 * @param {import("./host.js").Backend} backend
 */
const answering = (backend) => ({
  create: (/** @type {any} */ { signal, ...request }) => backend.call("answer", [request], signal),
});
