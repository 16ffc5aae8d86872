/**
 * A model on the thread that computes it. `Remote` has the same calls for a model in a worker.
 * @typedef {import("./method.js").Argument} Argument
 * @typedef {import("./progress.js").OnProgress} OnProgress
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {{ info: Manifest, adapter: import("./device.js").Adapter, recoveries: number }} ModelState
 * @typedef {(type: "lost" | "recovered", state: ModelState, detail: string) => void} OnEvent
 * @typedef {{
 *   state: ModelState,
 *   call(name: CallName, args: any[], signal?: AbortSignal | null): Promise<any>,
 *   dispose(): void,
 * }} Backend
 * @typedef {"run" | "embed" | "answer" | "countTokens" | "bytes" | "loseDevice"} CallName
 */
import { WebpteError } from "./errors.js";
import { openProgram } from "./program.js";

/** @implements {Backend} */
export class Host {
  #program;
  #language;
  #encoder;

  /**
   * @param {import("./program.js").Program} program
   * @param {any} [language]
   * @param {any} [encoder]
   */
  constructor(program, language, encoder) {
    this.#program = program;
    this.#language = language;
    this.#encoder = encoder;
  }

  /**
   * @param {string} url
   * @param {{ signal?: AbortSignal | null, onProgress?: OnProgress, onEvent: OnEvent,
   *   fetch?: import("./files.js").Fetch }} options
   */
  static async open(url, { signal, onProgress, onEvent, fetch }) {
    const program = await openProgram(url, { signal, onProgress, fetch });
    try {
      for (const type of /** @type {const} */ (["lost", "recovered"])) {
        program.addEventListener(type, (event) => {
          onEvent(type, stateOf(program), /** @type {CustomEvent} */ (event).detail);
        });
      }
      const host = new Host(program, ...(await openModel(program, signal)));
      program.ready();
      return host;
    } catch (error) {
      program.dispose();
      throw error;
    }
  }

  get state() {
    return stateOf(this.#program);
  }

  /**
   * @param {CallName} name
   * @param {any[]} args
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<any>}
   */
  async call(name, args, signal) {
    return /** @type {any} */ (this)[name](...args, signal);
  }

  /**
   * @param {Argument[]} inputs
   * @param {string} method
   * @param {number[] | undefined} outputs
   * @param {AbortSignal} signal
   */
  async run(inputs, method, outputs, signal) {
    return (await this.#program.method(method, null, signal)).run(inputs, { outputs, signal });
  }

  /** @param {string[]} texts @param {AbortSignal} signal */
  embed(texts, signal) {
    return this.#require(this.#encoder, "a sentence encoder").embed(texts, { signal });
  }

  /** @param {any} request @param {AbortSignal} signal */
  answer(request, signal) {
    return this.#require(this.#language, "a language model").answer(request, signal);
  }

  /** @param {any[]} messages */
  countTokens(messages) {
    return this.#require(this.#language, "a language model").countTokens(messages);
  }

  /** @param {string} sha @param {AbortSignal} signal */
  bytes(sha, signal) {
    return this.#program.bytes(sha, signal);
  }

  loseDevice() {
    this.#program.loseDevice();
  }

  dispose() {
    this.#program.dispose();
  }

  /** @param {any} model @param {string} kind */
  #require(model, kind) {
    if (model) return model;
    throw new WebpteError(
      "input",
      `${this.#program.manifest.name}: expected ${kind}, got a bundle of kind ${this.#program.kind}.`,
    );
  }
}

/** @param {import("./program.js").Program} program @returns {ModelState} */
function stateOf(program) {
  return { info: program.manifest, adapter: program.adapter, recoveries: program.recoveries };
}

/**
 * Open what the calls of this kind of bundle need. Programs without text do not load a tokenizer.
 * @param {import("./program.js").Program} program
 * @param {AbortSignal | null} [signal]
 * @returns {Promise<[language?: any, encoder?: any]>}
 */
async function openModel(program, signal) {
  if (program.kind === "language") {
    const { Language } = await import("./language/chat.js");
    return [await new Language(program).open(signal)];
  }
  if (program.kind === "encoder") {
    const { Encoder } = await import("./embed.js");
    return [undefined, await new Encoder(program).open(signal)];
  }
  if (program.kind === "check") return []; // it has hundreds of methods and calls each once
  const names = Object.keys(program.manifest.methods);
  await Promise.all(names.map((name) => program.method(name, null, signal)));
  return [];
}
