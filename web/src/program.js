/**
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Variant} Variant
 * @typedef {import("./progress.js").OnProgress} OnProgress
 * @typedef {{ device: GPUDevice, constants: Constants, pace: Pace, isLost: () => boolean, adapter: import("./device.js").Adapter,
 *   raw: GPUAdapter }} Gpu
 */
import { Constants } from "./constants.js";
import { chooseVariant, describe, requestAdapter, requestDevice } from "./device.js";
import { abortable, damaged, throwIfAborted, WebpteError } from "./errors.js";
import { Files } from "./files.js";
import { deviceLostError, Instance, waitForLoss } from "./instance.js";
import { manifestURL } from "./manifest.js";
import { Method } from "./method.js";
import { Pace } from "./pacing.js";
import { Plan } from "./plan.js";
import { Progress } from "./progress.js";
import { openStore } from "./store.js";

/** @type {import("./files.js").Fetch} */
const globalFetch = (url, options) => fetch(url, options);
const MAX_SUBMIT_MS = 50; // on a GPU, which may drive a display
const MAX_ATTEMPTS = 5; // of work that fails because the device is lost

/**
 * @param {string | URL} url of a bundle's folder or manifest
 * @param {{
 *   signal?: AbortSignal | null, onProgress?: OnProgress, store?: import("./store.js").Store | null,
 *   fetch?: import("./files.js").Fetch, maxSubmitMs?: number
 * }} [options]  maxSubmitMs: predicted duration of a submit; 50 by default on a GPU, unlimited on a software device
 * @returns {Promise<Program>}
 */
export async function openProgram(url, { signal, onProgress, store, fetch = globalFetch, maxSubmitMs } = {}) {
  throwIfAborted(signal);
  const progress = new Progress(onProgress);
  progress.report("manifest");
  const fileStore = store ?? (await openStore());
  const files = new Files(manifestURL(url), fileStore, (name) => progress.reportDamaged(name), fetch);
  const [raw] = await abortable(Promise.all([requestAdapter(), files.open(signal)]), signal);
  const program = new Program(files, progress, maxSubmitMs);
  try {
    await abortable(program.open(raw), signal);
    return program;
  } catch (error) {
    program.dispose();
    throw error;
  }
}

/**
 * Return the name and the kind of a bundle, and the bytes of the weights that loading it needs on this device. `cached`
 * of them are stored here already.
 * @param {string | URL} url of a bundle's folder or manifest
 * @param {{
 *   signal?: AbortSignal | null, store?: import("./store.js").Store | null, fetch?: import("./files.js").Fetch
 * }} [options]
 */
export async function inspect(url, { signal, store, fetch = globalFetch } = {}) {
  const fileStore = store ?? (await openStore());
  const files = new Files(manifestURL(url), fileStore, () => {}, fetch);
  const [raw, manifest] = await abortable(Promise.all([requestAdapter(), files.open(signal)]), signal);
  const weights = Object.keys(manifest.methods).flatMap((name) => chooseVariant(manifest, name, null, raw).weights);
  const stored = new Set(await fileStore.names());
  let [bytes, cached] = [0, 0];
  for (const sha of new Set(weights)) {
    bytes += manifest.files[sha].bytes;
    if (stored.has(sha)) cached += manifest.files[sha].bytes;
  }
  return { name: manifest.name, kind: manifest.kind, bytes, cached };
}

/** A bundle on a device. Its events are "lost" and "recovered". */
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
  #maxSubmitMs;

  /** @param {Files} files @param {Progress} progress @param {number} [maxSubmitMs] */
  constructor(files, progress, maxSubmitMs) {
    super();
    this.#maxSubmitMs = maxSubmitMs;
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
    let isLost = false;
    const constants = new Constants(device, this.#files, this.#progress);
    const adapter = describe(raw);
    const pace = new Pace(this.#maxSubmitMs ?? (adapter.software ? Infinity : MAX_SUBMIT_MS));
    const gpu = { device, raw, adapter, constants, pace, isLost: () => isLost };
    device.lost.then((info) => {
      isLost = true;
      if (this.#stop.signal.aborted || this.#gpu !== gpu) return;
      this.losses++;
      this.dispatchEvent(new CustomEvent("lost", { detail: info.message || info.reason }));
      this.recover().catch(() => {}); // the next call raises the error
    });
    this.#gpu = gpu;
  }

  /**
   * Return a method, ready to be called; the same object for the same arguments.
   * @param {string} [name]
   * @param {number | null} [slots] concurrent sequences, for language models
   * @param {AbortSignal | null} [signal]
   * @returns {Promise<Method>}
   */
  method(name = "forward", slots = null, signal = null) {
    if (this.#stop.signal.aborted) return Promise.reject(disposedError(this.manifest.name));
    const key = `${name} ${slots}`;
    let method = this.#methods.get(key);
    if (!method) {
      method = this.#open(name, slots, signal);
      this.#methods.set(key, method);
      method.catch(() => this.#methods.delete(key));
    }
    return abortable(method, signal);
  }

  /** @param {string} name @param {number | null} slots @param {AbortSignal | null} signal */
  async #open(name, slots, signal) {
    const stop = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
    return this.#retryOnLoss(async () => {
      const variant = chooseVariant(this.manifest, name, slots, this.#gpu.raw);
      try {
        const plan = new Plan(JSON.parse(await this.#files.text(variant.plan, stop)));
        const { inputs, outputs } = this.manifest.methods[name];
        const method = new Method(this, plan, inputs, outputs);
        method.attach(await this.#instance(plan, variant, stop));
        this.#variants.set(method, variant);
        return method;
      } catch (error) {
        throw damaged(`the plan of ${name}`, error);
      }
    }, stop);
  }

  /** @param {Plan} plan @param {Variant} variant @param {AbortSignal} signal */
  async #instance(plan, variant, signal) {
    const instance = new Instance(this.#gpu, plan);
    try {
      await instance.open(await this.#files.text(variant.wgsl, signal), plan.hostConstants, this.#progress, signal);
      if (instance.gpu.isLost()) throw deviceLostError();
      return instance;
    } catch (error) {
      instance.dispose();
      throw error;
    }
  }

  /**
   * Run work that needs a device. If the device is lost meanwhile, repeat it on the next one.
   * @template T
   * @param {() => Promise<T>} work
   * @param {AbortSignal} signal
   * @returns {Promise<T>}
   */
  async #retryOnLoss(work, signal) {
    for (let attempt = 1; ; attempt++) {
      const { losses } = this;
      await abortable(this.ensureDevice(), signal);
      try {
        return await work();
      } catch (error) {
        if (this.#stop.signal.aborted) throw disposedError(this.manifest.name);
        throwIfAborted(signal);
        const wasLost = losses !== this.losses || (await waitForLoss(this.#gpu));
        if (!wasLost || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }

  /** Wait until there is a device with all methods. */
  async ensureDevice() {
    if (this.#stop.signal.aborted) throw disposedError(this.manifest.name);
    if (this.#recovery || this.#gpu.isLost()) await this.recover();
  }

  /** Open a new device with all methods and their initial state. Concurrent calls share one recovery. */
  recover() {
    if (!this.#recovery && !this.#gpu.isLost()) return Promise.resolve();
    this.#recovery ??= this.#reopen().finally(() => (this.#recovery = null));
    return this.#recovery;
  }

  async #reopen() {
    for (let attempt = 1; ; attempt++) {
      this.#progress.restart();
      try {
        await this.open(await requestAdapter());
        for (const [method, variant] of this.#variants) {
          method.attach(await this.#instance(method.plan, variant, this.#stop.signal));
        }
        break;
      } catch (error) {
        if (this.#stop.signal.aborted || attempt === MAX_ATTEMPTS || !(await waitForLoss(this.#gpu))) throw error;
      }
    }
    this.recoveries++;
    this.#progress.ready();
    this.dispatchEvent(new CustomEvent("recovered", { detail: this.recoveries }));
  }

  /** Report that loading has finished. */
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

  /** Lose the device on purpose, to test a page. */
  loseDevice() {
    this.#gpu.device.destroy();
  }

  /** Do not open a method again after a loss. @param {Method} method */
  remove(method) {
    this.#variants.delete(method);
    for (const [key, promise] of this.#methods) {
      promise.then(
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
const disposedError = (name) => new WebpteError("disposed", `${name} was disposed.`);
