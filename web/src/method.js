/**
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./manifest.js").Border} Border
 * @typedef {import("./instance.js").Instance} Instance
 * @typedef {TensorInput | number | boolean} Argument
 * @typedef {{ outputs?: number[], signal?: AbortSignal | null }} RunOptions  outputs: the indices of those wanted
 */
import { abortable, throwIfAborted, WebpteError } from "./errors.js";
import { lost } from "./instance.js";
import { Call } from "./plan.js";
import { runSteps } from "./steps.js";
import { fromDevice, storedBytes, toDevice } from "./tensors.js";

/** A method one can call. It outlives the device: after a loss the program gives it a new instance. */
export class Method {
  /** @type {Instance | null} */ #instance = null;
  /** @type {Promise<unknown>} */ #turn = Promise.resolve();
  #program;
  #told = 0; // losses that callers of a method with state know of

  /**
   * @param {import("./program.js").Program} program
   * @param {Plan} plan
   * @param {Border[]} inputs
   * @param {Border[]} outputs
   */
  constructor(program, plan, inputs, outputs) {
    this.#program = program;
    this.plan = plan;
    this.inputs = inputs;
    this.outputs = outputs;
    this.#told = program.losses;
  }

  /**
   * For the program: where it runs from now on.
   * @param {Instance | null} instance
   */
  move(instance) {
    this.#instance = instance;
  }

  get instance() {
    if (!this.#instance) throw new WebpteError("disposed", `${this.plan.document.name} was disposed.`);
    return this.#instance;
  }

  /** What the method keeps from call to call, in the plan's order: in another variant the sizes may differ. */
  get stateBuffers() {
    return this.instance.state;
  }

  /** @param {Method} other whose state this one continues from: buffers that are larger here begin with the other's */
  takeState(other) {
    const { device } = this.instance;
    const encoder = device.createCommandEncoder();
    this.stateBuffers.forEach((buffer, number) => {
      const from = other.stateBuffers[number];
      encoder.copyBufferToBuffer(from, 0, buffer, 0, Math.min(from.size, buffer.size));
    });
    device.queue.submit([encoder.finish()]);
  }

  /** The state as at the beginning. */
  reset() {
    this.instance.reset();
  }

  /**
   * @param {Argument[]} args
   * @param {RunOptions} [options]
   * @returns {Promise<Tensor[]>}
   */
  async run(args, { outputs, signal } = {}) {
    const wanted = this.wanted(outputs);
    return this.#inTurn(signal, (instance) => this.call(instance, new Call(this.plan, args), wanted));
  }

  /**
   * Several calls in one submit, where nothing but device memory and live integers passes from one to the next;
   * otherwise one by one, with the same results.
   * @param {Argument[][]} steps
   * @param {Record<number, number>} feeds by output: the input of the next step that it becomes
   * @param {number[]} [outputs] wanted
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Tensor[][]>}
   */
  async runSteps(steps, feeds, outputs, { signal } = {}) {
    const wanted = this.wanted(outputs);
    return this.#inTurn(signal, (instance) => runSteps(this, instance, steps, feeds, wanted));
  }

  /** @param {number[]} [outputs] @returns {number[]} the values at these positions */
  wanted(outputs) {
    const { outputs: values, name } = this.plan.document;
    return (outputs ?? values.map((_, i) => i)).map((position) => {
      if (values[position] !== undefined) return values[position];
      throw new WebpteError("input", `${name} has ${values.length} outputs; ${position} is none of them.`);
    });
  }

  dispose() {
    this.#program.forget(this);
    this.#instance?.dispose();
    this.#instance = null;
  }

  /**
   * One call at a time. Where the device is lost, a method without state is called again on the next one; with state,
   * the caller has to know.
   * @template T
   * @param {AbortSignal | null | undefined} signal
   * @param {(instance: Instance) => Promise<T>} job
   * @returns {Promise<T>}
   */
  async #inTurn(signal, job) {
    throwIfAborted(signal);
    const { losses } = this.#program;
    const result = this.#turn.then(async () => {
      for (let again = 3; ; again--) {
        throwIfAborted(signal);
        this.#tellOfLoss(losses);
        try {
          await this.#program.healthy();
          return await job(this.instance);
        } catch (error) {
          if (!(error instanceof WebpteError) || error.code !== "device-lost") throw error;
          this.#told = this.#program.losses;
          if (this.plan.hasState || again === 0) throw error;
          await this.#program.recover();
        }
      }
    });
    this.#turn = result.catch(() => {});
    return abortable(result, signal);
  }

  /** @param {number} losses when the call was made */
  #tellOfLoss(losses) {
    const now = this.#program.losses;
    if (!this.plan.hasState || (this.#told === now && losses === now)) return;
    this.#told = now;
    throw lost();
  }

  /**
   * One call, by whoever has the turn.
   * @param {Instance} instance
   * @param {Call} call
   * @param {number[]} wanted
   */
  async call(instance, call, wanted) {
    const { plan } = this;
    for (const value of plan.segment.looks) await this.#know(instance, call, value);
    const schedule = plan.schedule(call);
    const slots = call.slots(schedule);
    call.expect(schedule);
    const reads = this.reads(wanted);
    const ranges = reads.map((value) => this.range(value, call));
    const [found] = await instance.submit(schedule, [{ slots, uploads: this.uploads(call) }], ranges);
    for (const value of plan.segment.updates) call.arrays.delete(value); // what the host knew of them is of before
    this.leave(call, reads, found);
    call.leave(schedule);
    for (const value of wanted) await this.#know(instance, call, value);
    return wanted.map((value) => call.output(value));
  }

  /** @param {number[]} wanted */
  reads(wanted) {
    const { hosted } = this.plan.document;
    return this.plan.segment.reads.filter((value) => hosted.includes(value) || wanted.includes(value));
  }

  /** @param {number} value @param {Call} call @returns {[number, number]} the buffer of a value, and its bytes now */
  range(value, call) {
    const { dtype } = this.plan.spec(value);
    return [this.plan.document.places[value], storedBytes(dtype, call.dims.get(value) ?? [])];
  }

  /**
   * @param {Call} call
   * @param {number[]} [fed] values that need none
   * @returns {[number, Uint8Array<ArrayBuffer>][]}
   */
  uploads(call, fed = []) {
    const { inputs, name, places } = this.plan.document;
    return this.plan.segment.uploads
      .filter((value) => !fed.includes(value))
      .map((value) => {
        const tensor = /** @type {Tensor} */ (call.arrays.get(value));
        const where = `Input ${inputs.indexOf(value)} of ${name}`;
        return [places[value], toDevice(tensor, this.plan.spec(value).dtype, where)];
      });
  }

  /** @param {Call} call @param {number[]} reads @param {ArrayBuffer[]} found */
  leave(call, reads, found) {
    reads.forEach((value, i) => {
      const tensor = fromDevice(found[i], call.dims.get(value) ?? [], this.plan.spec(value));
      const message = this.plan.document.checks[value];
      if (message && tensor.data.some(Boolean)) throw new WebpteError("input", message);
      call.arrays.set(value, tensor);
    });
  }

  /**
   * State and constants that the host wants to know.
   * @param {Instance} instance
   * @param {Call} call
   * @param {number} value
   */
  async #know(instance, call, value) {
    const { document } = this.plan;
    const spec = this.plan.spec(value);
    if (spec.kind !== "tensor" || call.arrays.has(value)) return;
    const place = document.places[value];
    const bytes =
      document.state.includes(value) && place !== undefined
        ? await instance.read(place, storedBytes(spec.dtype, spec.dims))
        : instance.host.get(value)?.slice(0);
    if (!bytes) throw new WebpteError("damaged", `The plan of ${document.name} reads value ${value} too early.`);
    call.arrays.set(value, fromDevice(bytes, spec.dims, spec));
  }
}
