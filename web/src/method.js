/**
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./manifest.js").IoSpec} IoSpec
 * @typedef {import("./instance.js").Instance} Instance
 * @typedef {TensorInput | number | boolean} Argument
 * @typedef {{ outputs?: number[], signal?: AbortSignal | null }} RunOptions  outputs: positions; all by default
 */
import { abortable, inputError, throwIfAborted, WebpteError } from "./errors.js";
import { deviceLostError } from "./instance.js";
import { Call } from "./plan.js";
import { runSteps } from "./steps.js";
import { fromDevice, storedBytes, toDevice } from "./tensors.js";

const MAX_ATTEMPTS = 4; // of a call without state

/** A method of the program. It outlives the device: after a loss, the program attaches a new instance. */
export class Method {
  /** @type {Instance | null} */ #instance = null;
  /** @type {Promise<unknown>} */ #lastCall = Promise.resolve();
  #program;
  #reportedLosses = 0; // losses that were reported to callers of a method with state

  /**
   * @param {import("./program.js").Program} program
   * @param {Plan} plan
   * @param {IoSpec[]} inputs
   * @param {IoSpec[]} outputs
   */
  constructor(program, plan, inputs, outputs) {
    this.#program = program;
    this.plan = plan;
    this.inputs = inputs;
    this.outputs = outputs;
    this.#reportedLosses = program.losses;
  }

  /**
   * Run on this instance from now on. Called by the program.
   * @param {Instance | null} instance
   */
  attach(instance) {
    this.#instance = instance;
  }

  get instance() {
    if (!this.#instance) throw new WebpteError("disposed", `${this.plan.document.name} was disposed.`);
    return this.#instance;
  }

  /** The buffers of the method's state, in the plan's order. Sizes may differ between variants. */
  get stateBuffers() {
    return this.instance.state;
  }

  /** Copy the state of another variant. Larger buffers start with the other's contents. @param {Method} other */
  takeState(other) {
    const { device } = this.instance;
    const encoder = device.createCommandEncoder();
    this.stateBuffers.forEach((buffer, number) => {
      const from = other.stateBuffers[number];
      encoder.copyBufferToBuffer(from, 0, buffer, 0, Math.min(from.size, buffer.size));
    });
    device.queue.submit([encoder.finish()]);
  }

  /** The recurrent states of a language model: each has rows (M, N) for checkpoints, then for slots. */
  get recurrentStates() {
    return this.#states(3);
  }

  /** The state of a language model with rows (N) of embeddings. */
  get embeddingPool() {
    return this.#states(2)[0];
  }

  /** @param {number} rank */
  #states(rank) {
    const { state, value_buffers } = this.plan.document;
    return state.flatMap((value) => {
      const { dtype, dims } = this.plan.spec(value);
      const bytes = storedBytes(dtype, dims.slice(1));
      return value in value_buffers && dims.length === rank
        ? [{ buffer: value_buffers[value], rows: dims[0], bytes }]
        : [];
    });
  }

  /** Copy the output of an encoder, which is its state, to rows of the embeddings. @param {Method} encoder
   * @param {number} row the first */
  takeRows(encoder, row) {
    const { outputs, value_buffers } = encoder.plan.document;
    const { buffer, bytes } = this.embeddingPool;
    const [from, to] = [encoder.instance.buffers[value_buffers[outputs[0]]], this.instance.buffers[buffer]];
    const { device } = this.instance;
    const commands = device.createCommandEncoder();
    commands.copyBufferToBuffer(from, 0, to, row * bytes, encoder.plan.spec(outputs[0]).dims[1] * bytes);
    device.queue.submit([commands.finish()]);
  }

  /** Copy a row of every recurrent state. @param {number} from @param {number} to */
  copyStateRow(from, to) {
    this.instance.copyRows(this.recurrentStates, from, to);
  }

  /** Reset the state to its initial contents. */
  reset() {
    this.instance.reset();
  }

  /**
   * @param {Argument[]} args
   * @param {RunOptions} [options]
   * @returns {Promise<Tensor[]>}
   */
  async run(args, { outputs, signal } = {}) {
    const values = this.outputValues(outputs);
    return this.#exclusive(signal, (instance) => this.call(instance, new Call(this.plan, args), values));
  }

  /**
   * Run several calls in one submit, if only device memory and live integers pass from one to the next. Otherwise run
   * them one by one, with the same results.
   * @param {Argument[][]} steps
   * @param {Record<number, number>} feeds by output: the input of the next step that it becomes
   * @param {number[]} [outputs] positions; all by default
   * @param {{ signal?: AbortSignal | null }} [options]
   * @returns {Promise<Tensor[][]>}
   */
  async runSteps(steps, feeds, outputs, { signal } = {}) {
    const values = this.outputValues(outputs);
    return this.#exclusive(signal, (instance) => runSteps(this, instance, steps, feeds, values));
  }

  /** Return the values at these positions. @param {number[]} [outputs] @returns {number[]} */
  outputValues(outputs) {
    const { outputs: values, name } = this.plan.document;
    return (outputs ?? values.map((_, i) => i)).map((position) => {
      if (values[position] !== undefined) return values[position];
      throw inputError(`outputs of ${name}`, `positions from 0 to ${values.length - 1}`, position);
    });
  }

  dispose() {
    this.#program.remove(this);
    this.#instance?.dispose();
    this.#instance = null;
  }

  /**
   * Run one call at a time. If the device is lost, a call of a method without state is repeated on the next device. With
   * state, the call fails.
   * @template T
   * @param {AbortSignal | null | undefined} signal
   * @param {(instance: Instance) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async #exclusive(signal, work) {
    throwIfAborted(signal);
    const { losses } = this.#program;
    const result = this.#lastCall.then(async () => {
      for (let attempts = MAX_ATTEMPTS; ; attempts--) {
        throwIfAborted(signal);
        this.#reportLoss(losses);
        try {
          await this.#program.ensureDevice();
          return await work(this.instance);
        } catch (error) {
          if (!(error instanceof WebpteError) || error.code !== "device-lost") throw error;
          this.#reportedLosses = this.#program.losses;
          if (this.plan.hasState || attempts === 1) throw error;
          await this.#program.recover();
        }
      }
    });
    this.#lastCall = result.catch(() => {});
    return abortable(result, signal);
  }

  /** Throw if a loss was not reported yet. @param {number} losses when the call was made */
  #reportLoss(losses) {
    const now = this.#program.losses;
    if (!this.plan.hasState || (this.#reportedLosses === now && losses === now)) return;
    this.#reportedLosses = now;
    throw deviceLostError();
  }

  /**
   * Run one call. Callers hold the lock of `#exclusive`.
   * @param {Instance} instance
   * @param {Call} call
   * @param {number[]} outputs values
   */
  async call(instance, call, outputs) {
    const { plan } = this;
    for (const value of plan.segment.host_reads) await this.#readValue(instance, call, value);
    const schedule = plan.schedule(call);
    const slots = call.slots(schedule);
    call.setDims(schedule);
    const reads = this.reads(outputs);
    const ranges = reads.map((value) => this.range(value, call));
    const [results] = await instance.submit(schedule, [{ slots, uploads: this.uploads(call) }], ranges);
    for (const value of plan.segment.updates) call.arrays.delete(value); // the host's copy is outdated
    this.storeResults(call, reads, results);
    call.storeScalars(schedule);
    for (const value of outputs) await this.#readValue(instance, call, value);
    return outputs.map((value) => call.output(value));
  }

  /** Return the values to read back. @param {number[]} outputs values */
  reads(outputs) {
    const { on_host } = this.plan.document;
    return this.plan.segment.readbacks.filter((value) => on_host.includes(value) || outputs.includes(value));
  }

  /** @param {number} value @param {Call} call @returns {[number, number]} its buffer and its current size in bytes */
  range(value, call) {
    const { dtype } = this.plan.spec(value);
    return [this.plan.document.value_buffers[value], storedBytes(dtype, call.dims.get(value) ?? [])];
  }

  /**
   * @param {Call} call
   * @param {number[]} [fed] values that the previous step provides
   * @returns {[number, Uint8Array<ArrayBuffer>][]}
   */
  uploads(call, fed = []) {
    const { inputs, name, value_buffers } = this.plan.document;
    return this.plan.segment.uploads
      .filter((value) => !fed.includes(value))
      .map((value) => {
        const tensor = /** @type {Tensor} */ (call.arrays.get(value));
        const argument = `input ${inputs.indexOf(value)} of ${name}`;
        return [value_buffers[value], toDevice(tensor, this.plan.spec(value).dtype, argument)];
      });
  }

  /** @param {Call} call @param {number[]} reads @param {ArrayBuffer[]} results */
  storeResults(call, reads, results) {
    reads.forEach((value, i) => {
      const tensor = fromDevice(results[i], call.dims.get(value) ?? [], this.plan.spec(value));
      const message = this.plan.document.checks[value];
      const wrong = message && tensor.data.find(Boolean); // of a check of positions, one of them
      if (wrong) throw new WebpteError("input", message.replace("{0}", String(wrong)));
      call.arrays.set(value, tensor);
    });
  }

  /**
   * Read a state or constant for the host.
   * @param {Instance} instance
   * @param {Call} call
   * @param {number} value
   */
  async #readValue(instance, call, value) {
    const { document } = this.plan;
    const spec = this.plan.spec(value);
    if (spec.kind !== "tensor" || call.arrays.has(value)) return;
    const place = document.value_buffers[value];
    const bytes =
      document.state.includes(value) && place !== undefined
        ? await instance.read(place, storedBytes(spec.dtype, spec.dims))
        : instance.host.get(value)?.slice(0);
    if (!bytes)
      throw new WebpteError("damaged", `The plan of ${document.name} reads value ${value} before it is computed.`);
    call.arrays.set(value, fromDevice(bytes, spec.dims, spec));
  }
}
