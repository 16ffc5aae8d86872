/**
 * @typedef {import("./method.js").Argument} Argument
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {{ data: Uint8Array | Uint8ClampedArray, width: number, height: number }} Pixels  in RGBA, as ImageData
 * @typedef {{ type: "text", text: string } | { type: "image", image: Pixels | ImageBitmap | Blob }
 *   | { type: "image", url: string } | { type: "image_url", image_url: string | { url: string } }} ContentPart  addresses
 *   are data addresses with base64
 * @typedef {{ role: string, content: string }} Message  of an answer
 * @typedef {{ role: string, content: string | ContentPart[] }} ChatMessage
 * @typedef {{
 *   stream?: boolean, temperature?: number, top_p?: number, top_k?: number, min_p?: number, seed?: number,
 *   max_tokens?: number, stop?: string | string[], frequency_penalty?: number, presence_penalty?: number,
 *   repetition_penalty?: number, dry_multiplier?: number, dry_allowed_length?: number, logit_bias?: Record<string, number>, logprobs?: boolean, top_logprobs?: number,
 *   response_format?: {
 *     type: "text" | "json_object" | "json_schema", json_schema?: { name?: string, schema: object | boolean }
 *   },
 *   stream_options?: { include_usage?: boolean }, return_progress?: boolean, signal?: AbortSignal | null
 * }} SamplingParams
 * @typedef {SamplingParams & { messages: ChatMessage[] }} ChatRequest
 * @typedef {SamplingParams & { prompt: string | number[] }} CompletionRequest
 * @typedef {{ prompt_tokens: number, completion_tokens: number, total_tokens: number }} Usage
 * @typedef {{ token: string, bytes: number[], logprob: number }} TokenLogprob
 * @typedef {{ content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[] } | null} Logprobs
 * @typedef {"stop" | "length" | null} FinishReason
 * @typedef {{ id: string, object: string, created: number, model: string, usage?: Usage }} Head
 * @typedef {{ index: number, logprobs: Logprobs, finish_reason: FinishReason }} Choice
 * @typedef {Head & { choices: (Choice & { message: Message })[] }} ChatCompletion
 * @typedef {{ total: number, cache: number, processed: number }} PromptProgress  tokens of the prompt
 * @typedef {Head & { choices: (Choice & { delta: Partial<Message> })[], prompt_progress?: PromptProgress }} ChatCompletionChunk
 * @typedef {Head & { choices: (Choice & { text: string })[] }} Completion
 * @typedef {{
 *   create(request: ChatRequest & { stream: true }): Promise<AsyncIterable<ChatCompletionChunk>>,
 *   create(request: ChatRequest & { stream?: false }): Promise<ChatCompletion>,
 * }} ChatCompletions
 * @typedef {{
 *   create(request: CompletionRequest & { stream: true }): Promise<AsyncIterable<Completion>>,
 *   create(request: CompletionRequest & { stream?: false }): Promise<Completion>,
 * }} Completions
 */

/** A loaded model. Its events are "lost" when the GPU device was lost, and "recovered" when it was replaced. */
export class Model extends EventTarget {
  #backend;

  /** @param {import("./host.js").Backend} backend */
  constructor(backend) {
    super();
    this.#backend = backend;
    /** Answer messages. @type {{ completions: ChatCompletions }} */
    this.chat = { completions: completionsOf(backend) };
    /** Continue prompts. @type {Completions} */
    this.completions = completionsOf(backend);
  }

  /** The manifest of the bundle. */
  get info() {
    return this.#backend.state.info;
  }

  get name() {
    return this.info.name;
  }

  get kind() {
    return this.info.kind;
  }

  get adapter() {
    return this.#backend.state.adapter;
  }

  /** Number of times that a lost device was replaced. */
  get recoveries() {
    return this.#backend.state.recoveries;
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
   * Return a vector for each text, for a sentence encoder.
   * @param {string[]} texts
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Float32Array[]>}
   */
  embed(texts, { signal } = {}) {
    return this.#backend.call("embed", [texts], signal);
  }

  /**
   * Return the number of tokens of messages, for a language model.
   * @param {ChatMessage[]} messages
   * @returns {Promise<number>}
   */
  countTokens(messages) {
    return this.#backend.call("countTokens", [messages]);
  }

  /**
   * Return a verified file that `info` lists by its SHA-256.
   * @param {string} sha
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  bytes(sha, { signal } = {}) {
    return this.#backend.call("bytes", [sha], signal);
  }

  /** Lose the GPU device, as after a reset of the driver, to test a page. @returns {Promise<void>} */
  loseDevice() {
    return this.#backend.call("loseDevice", []);
  }

  /** Free everything and end all calls. */
  dispose() {
    this.#backend.dispose();
  }
}

/**
 * Completions, whole or as a stream of chunks. A signal, or leaving the loop over the chunks, ends one.
 * @param {import("./host.js").Backend} backend
 */
const completionsOf = (backend) => ({
  create: (/** @type {any} */ { signal, ...request }) => backend.call("answer", [request], signal),
});
