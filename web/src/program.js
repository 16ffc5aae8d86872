/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Variant} Variant
 * @typedef {import("./progress.js").OnProgress} OnProgress
 * @typedef {{ device: GPUDevice, constants: Constants, isLost: () => boolean, adapter: import("./device.js").Adapter,
 *   raw: GPUAdapter }} Gpu
 */
import { Constants } from "./constants.js";
import { chooseVariant, describe, requestAdapter, requestDevice } from "./device.js";
import { abortable, throwIfAborted, WebpteError } from "./errors.js";
import { Files } from "./files.js";
import { Instance, isGone, lost } from "./instance.js";
import { manifestURL } from "./manifest.js";
import { Method } from "./method.js";
import { Plan } from "./plan.js";
import { Progress } from "./progress.js";
import { openStore } from "./store.js";

/** @type {import("./files.js").Fetch} */
const globalFetch = (url, options) => fetch(url, options);
const TRIES = 5; // of something that a lost device breaks

/**
 * @param {string | URL} url of a bundle's folder or manifest
 * @param {{
 *   signal?: AbortSignal | null, onProgress?: OnProgress, store?: import("./store.js").Store | null,
 *   fetch?: import("./files.js").Fetch
 * }} [options]
 * @returns {Promise<Program>}
 */
export async function openProgram(url, { signal, onProgress, store, fetch = globalFetch } = {}) {
  throwIfAborted(signal);
  const progress = new Progress(onProgress);
  progress.say("manifest");
  const kept = store ?? (await openStore());
  const files = new Files(manifestURL(url), kept, (name) => progress.refuse(name), fetch);
  const [raw] = await abortable(Promise.all([requestAdapter(), files.open(signal)]), signal);
  const program = new Program(files, progress);
  try {
    await abortable(program.open(raw), signal);
    return program;
  } catch (error) {
    program.dispose();
    throw error;
  }
}

/** A bundle on a device. It tells of "lost" and "recovered". */
export class Program extends EventTarget {
  losses = 0;
  recoveries = 0;
  /** @type {Gpu} */ #gpu = /** @type {any} */ (null);
  /** @type {Map<string, Promise<Method>>} */ #methods = new Map();
  /** @type {Map<Method, Variant>} */ #variants = new Map();
  /** @type {Promise<void> | null} */ #recovery = null;
  #stop = new AbortController();
  #files;
  #progress;

  /** @param {Files} files @param {Progress} progress */
  constructor(files, progress) {
    super();
    this.#files = files;
    this.#progress = progress;
    this.manifest = files.manifest;
    this.kind = files.manifest.kind;
  }

  get adapter() {
    return this.#gpu.adapter;
  }

  /** @param {GPUAdapter} raw */
  async open(raw) {
    const device = await requestDevice(this.manifest, raw);
    if (this.#stop.signal.aborted) device.destroy();
    let gone = false;
    const constants = new Constants(device, this.#files, this.#progress);
    const gpu = { device, raw, adapter: describe(raw), constants, isLost: () => gone };
    device.lost.then((info) => {
      gone = true;
      if (this.#stop.signal.aborted || this.#gpu !== gpu) return;
      this.losses++;
      this.dispatchEvent(new CustomEvent("lost", { detail: info.message || info.reason }));
      this.recover().catch(() => {}); // whoever calls next is told
    });
    this.#gpu = gpu;
  }

  /**
   * A method, ready to be called. The same one for the same question.
   * @param {string} [name]
   * @param {number | null} [slots] sequences at once, for language models
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<Method>}
   */
  method(name = "forward", slots = null, signal = null) {
    if (this.#stop.signal.aborted) return Promise.reject(disposed(this.manifest.name));
    const key = `${name} ${slots}`;
    let found = this.#methods.get(key);
    if (!found) {
      found = this.#open(name, slots, signal);
      this.#methods.set(key, found);
      found.catch(() => this.#methods.delete(key));
    }
    return abortable(found, signal);
  }

  /** @param {string} name @param {number | null} slots @param {AbortSignal | null} signal */
  async #open(name, slots, signal) {
    const stop = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
    return this.#persist(async () => {
      const variant = chooseVariant(this.manifest, name, slots, this.#gpu.raw);
      const plan = new Plan(JSON.parse(await this.#files.text(variant.plan, stop)));
      const { inputs, outputs } = this.manifest.methods[name];
      const method = new Method(this, plan, inputs, outputs);
      method.move(await this.#instance(plan, variant, stop));
      this.#variants.set(method, variant);
      return method;
    }, stop);
  }

  /** @param {Plan} plan @param {Variant} variant @param {AbortSignal} signal */
  async #instance(plan, variant, signal) {
    const instance = new Instance(this.#gpu, plan);
    try {
      await instance.open(await this.#files.text(variant.wgsl, signal), plan.hosted, this.#progress, signal);
      if (instance.gpu.isLost()) throw lost();
      return instance;
    } catch (error) {
      instance.dispose();
      throw error;
    }
  }

  /**
   * What needs a device, again on the next one if that is lost meanwhile.
   * @template T
   * @param {() => Promise<T>} job
   * @param {AbortSignal} signal
   * @returns {Promise<T>}
   */
  async #persist(job, signal) {
    for (let attempt = 1; ; attempt++) {
      const { losses } = this;
      await abortable(this.healthy(), signal);
      try {
        return await job();
      } catch (error) {
        if (this.#stop.signal.aborted) throw disposed(this.manifest.name);
        throwIfAborted(signal);
        const gone = losses !== this.losses || (await isGone(this.#gpu));
        if (!gone || attempt === TRIES) throw error;
      }
    }
  }

  /** As soon as there is a device on which everything is in place. */
  async healthy() {
    if (this.#stop.signal.aborted) throw disposed(this.manifest.name);
    if (this.#recovery || this.#gpu.isLost()) await this.recover();
  }

  /** A new device with all methods, their state as at the beginning; one for all who ask. */
  recover() {
    if (!this.#recovery && !this.#gpu.isLost()) return Promise.resolve();
    this.#recovery ??= this.#reopen().finally(() => (this.#recovery = null));
    return this.#recovery;
  }

  async #reopen() {
    for (let attempt = 1; ; attempt++) {
      this.#progress.again();
      try {
        await this.open(await requestAdapter());
        for (const [method, variant] of this.#variants) {
          method.move(await this.#instance(method.plan, variant, this.#stop.signal));
        }
        break;
      } catch (error) {
        if (this.#stop.signal.aborted || attempt === TRIES || !(await isGone(this.#gpu))) throw error;
      }
    }
    this.recoveries++;
    this.#progress.ready();
    this.dispatchEvent(new CustomEvent("recovered", { detail: this.recoveries }));
  }

  /** Say that all is in place. */
  ready() {
    this.#progress.ready();
  }

  /** @param {string} sha @param {AbortSignal | null} [signal] */
  text(sha, signal) {
    return this.#files.text(sha, signal);
  }

  /** @param {string} sha @param {AbortSignal | null} [signal] */
  bytes(sha, signal) {
    return this.#files.bytes(sha, { signal });
  }

  /** Lose the device on purpose, to see how a page copes. */
  loseDevice() {
    this.#gpu.device.destroy();
  }

  /** @param {Method} method that is not wanted any more */
  forget(method) {
    this.#variants.delete(method);
    for (const [key, found] of this.#methods) {
      found.then(
        (each) => each === method && this.#methods.delete(key),
        () => {},
      );
    }
  }

  /** Free everything. */
  dispose() {
    this.#stop.abort();
    for (const method of this.#variants.keys()) method.dispose();
    this.#gpu?.device.destroy();
  }
}

/** @param {string} name */
const disposed = (name) => new WebpteError("disposed", `${name} was disposed.`);
