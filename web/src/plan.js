/**
 * A saved plan (docs/plans.md of webpte) and the values of one call of it. No GPU here.
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./tensors.js").ValueSpec} ValueSpec
 * @typedef {import("./terms.js").Term} Term
 * @typedef {import("./terms.js").Compiled} Compiled
 * @typedef {[number, number, number]} Three
 * @typedef {[kernel: number, ranges: Three[], parameters: number, grid: Three]} Dispatch
 * @typedef {{ name: string, stored_dtype: string, spans: [file: number, offset: number, bytes: number][] }} Constant
 * @typedef {{
 *   bytes: number, kind: "constant" | "state" | "activation", fill: (Constant & { dtype: string }) | null
 * }} BufferSpec
 * @typedef {{
 *   label: string, workgroup: number, reads: number, writes: number, subgroups: boolean, text: [number, number]
 * }} KernelSpec
 * @typedef {{
 *   tensors: number[], scalars: number[], host_reads: number[], uploads: number[], updates: number[], readbacks: number[]
 * }} Segment
 * @typedef {{
 *   specializations: [Compiled, number][], guards: Guard[], slots: [number, Compiled][], dispatches: Dispatch[],
 *   work: number[][],
 *   results: [number, number[]][], scalars: [number, Compiled][]
 * }} Schedule
 * @typedef {{ term: Compiled, low: number, high: number, where: string, message: string, format_args: Compiled[] }} Guard
 * @typedef {{
 *   name: string, files: { sha256: string, bytes: number }[], inputs: number[], outputs: number[],
 *   names: Record<string, string>,
 *   values: Record<string, ValueSpec>, blocks: { stages: { submit: number }[] }[],
 *   segments: Segment[], cpu_calls: { name: string }[], buffers: BufferSpec[], value_buffers: Record<string, number>,
 *   on_host: number[], state: number[], unmodified_uploads: number[], checks: Record<string, string>, kernels: KernelSpec[],
 *   parameters: string[],
 *   schedules: any[]
 * }} Document
 */
import { inputError, reading, WebpteError } from "./errors.js";
import { fromCaller, show } from "./tensors.js";
import { compile } from "./terms.js";

const MAX_LISTED_SHAPES = 12; // in an error

export class Plan {
  /** @type {Map<string, any[]>} schedules by the dims and scalars that select them; compiled on first use */
  #schedules = new Map();
  /** @type {Map<any, Schedule>} */
  #compiled = new Map();

  /** @param {Document} document */
  constructor(document) {
    this.document = document;
    this.segment = reading("The plan", () => this.#read());
    this.hasState = document.state.length > 0;
  }

  /** Return the segment that is submitted. */
  #read() {
    const { name, blocks, cpu_calls, schedules, segments, state } = this.document;
    const stages = blocks.flatMap((block) => block.stages);
    if (blocks.length !== 1 || stages.length !== 1 || cpu_calls.length) {
      throw new WebpteError(
        "unsupported",
        `${name}: expected a plan of one submit without CPU kernels. Bundle it again with this version of webpte.`,
      );
    }
    for (const item of schedules) {
      const key = keyOf(item.dims, item.scalars);
      this.#schedules.set(key, [...(this.#schedules.get(key) ?? []), item]);
    }
    const segment = segments[stages[0].submit];
    if (!segment || !Array.isArray(state)) throw new WebpteError("damaged", `${name}: the plan has no segment.`);
    return segment;
  }

  /** Constants that the host reads. @returns {number[]} */
  get hostConstants() {
    const { outputs, value_buffers, state } = this.document;
    const computed = new Set([...this.segment.readbacks, ...state.filter((value) => value in value_buffers)]);
    const onHost = new Set([...outputs, ...this.segment.host_reads]);
    return [...onHost].filter((value) => !computed.has(value) && this.spec(value).constant);
  }

  /** @param {number} value */
  spec(value) {
    return this.document.values[value];
  }

  /**
   * Return the schedule of a call.
   * @param {Call} call
   */
  schedule(call) {
    const { tensors, scalars } = this.segment;
    const dims = tensors.map((value) => call.dims.get(value) ?? []);
    const terms = scalars.map((value) => ["scalar", value, this.spec(value).kind !== "symfloat"]);
    for (const item of this.#schedules.get(keyOf(dims, terms)) ?? []) {
      const schedule = this.#compile(item);
      if (schedule.specializations.every(([term, number]) => term(call) === number)) return schedule;
    }
    throw this.#shapeError(dims);
  }

  /** @param {any} item */
  #compile(item) {
    let schedule = this.#compiled.get(item);
    if (!schedule) {
      schedule = reading("The plan", () => compileSchedule(item));
      this.#compiled.set(item, schedule);
    }
    return schedule;
  }

  /** @param {number[][]} dims */
  #shapeError(dims) {
    const shapes = this.document.schedules.map((item) => item.dims.map(show).join(" "));
    const bundled = [...new Set(shapes)].slice(0, MAX_LISTED_SHAPES).join("; ");
    return new WebpteError(
      "shape",
      `inputs of ${this.document.name}: expected shapes out of ${bundled}, got ${dims.map(show).join(" ")}. ` +
        "Pass one of these, or bundle the program again with --shapes.",
    );
  }
}

/**
 * @param {number[][]} dims
 * @param {Term[]} scalars
 */
const keyOf = (dims, scalars) => `${dims.join(";")} ${scalars.length ? JSON.stringify(scalars) : ""}`;

/** Return the number of a term without variables. @param {Term} number */
const constantOf = (number) => compile(number)(/** @type {any} */ (null));

/** Return the work of a dispatch as far as its bindings show it. @param {Dispatch} dispatch */
const boundBytes = ([, ranges]) => [0, ranges.reduce((sum, [, , bytes]) => sum + bytes, 0)];

/**
 * @param {any} item
 * @returns {Schedule}
 */
function compileSchedule(item) {
  return {
    specializations: item.specializations.map((/** @type {any} */ [term, number]) => [
      compile(term),
      constantOf(number),
    ]),
    guards: item.guards.map((/** @type {any} */ guard) => ({
      ...guard,
      term: compile(guard.term),
      low: guard.low === null ? -Infinity : constantOf(guard.low),
      high: guard.high === null ? Infinity : constantOf(guard.high),
      format_args: guard.format_args.map(compile),
    })),
    slots: item.slots.map((/** @type {any} */ [slot, term]) => [slot, compile(term)]),
    dispatches: item.dispatches,
    work: item.work?.length === item.dispatches.length ? item.work : item.dispatches.map(boundBytes),
    results: Object.entries(item.result_dims).map(([value, dims]) => [Number(value), dims]),
    scalars: Object.entries(item.result_scalars).map(([value, term]) => [
      Number(value),
      compile(/** @type {Term} */ (term)),
    ]),
  };
}

/** The values of one call on the host. */
export class Call {
  /** @type {Map<number, Tensor>} */ arrays = new Map();
  /** @type {Map<number, number[]>} */ dims = new Map();
  /** @type {Map<number, number>} */ #numbers = new Map();

  /**
   * @param {Plan} plan
   * @param {(TensorInput | number | boolean)[]} args
   */
  constructor(plan, args) {
    const { name, inputs } = plan.document;
    this.plan = plan;
    if (args.length !== inputs.length) {
      throw inputError(`inputs of ${name}`, String(inputs.length), args.length);
    }
    inputs.forEach((value, position) => this.#bind(value, args[position], `input ${position} of ${name}`));
  }

  /**
   * @param {number} value
   * @param {any} input
   * @param {string} argument
   */
  #bind(value, input, argument) {
    const spec = this.plan.spec(value);
    if (spec.kind === "tensor") {
      const tensor = fromCaller(input, spec, argument);
      this.arrays.set(value, tensor);
      this.dims.set(value, tensor.dims);
    } else if (spec.kind.startsWith("sym")) {
      const number = Number(typeof input === "object" && input?.data ? input.data[0] : input);
      if (Number.isNaN(number) && !Number.isNaN(input)) throw inputError(argument, "a number", input);
      if (spec.kind === "symint" && number !== (number | 0)) {
        throw inputError(argument, "a 32-bit integer", number);
      }
      this.#numbers.set(value, spec.kind === "symbool" ? Number(Boolean(number)) : number);
    }
  }

  /**
   * @param {number} value
   * @param {number[]} index
   */
  element(value, index) {
    const { data, dims } = this.#array(value);
    return Number(data[index.reduce((at, i, axis) => at * dims[axis] + (i < 0 ? i + dims[axis] : i), 0)]);
  }

  /**
   * Return the least or the greatest element of a tensor.
   * @param {number} value
   * @param {boolean} greatest
   */
  extreme(value, greatest) {
    const { data } = this.#array(value);
    let found = data[0];
    for (const each of data) if (greatest ? each > found : each < found) found = each;
    return Number(found);
  }

  /** @param {number} value */
  #array(value) {
    const tensor = this.arrays.get(value);
    if (!tensor) throw new WebpteError("damaged", `The plan reads value ${value} before it is computed.`);
    return tensor;
  }

  /** @param {number} value */
  scalar(value) {
    return this.#numbers.get(value) ?? this.plan.spec(value).value;
  }

  /**
   * Check the guards of a schedule and return its live integers.
   * @param {Schedule} schedule
   * @returns {[number, number][]}
   */
  slots(schedule) {
    for (const { term, low, high, where, message, format_args } of schedule.guards) {
      const number = term(this);
      if (low <= number && number < high) continue;
      const numbers = [number, ...format_args.map((each) => each(this))];
      throw new WebpteError("input", `${where}: ${message.replace(/\{(\d)\}/g, (_, i) => String(numbers[Number(i)]))}`);
    }
    return schedule.slots.map(([slot, term]) => [slot, term(this)]);
  }

  /**
   * Set the dims of a schedule's results.
   * @param {Schedule} schedule
   */
  setDims(schedule) {
    for (const [value, dims] of schedule.results) this.dims.set(value, dims);
  }

  /**
   * Store the scalar results of a schedule.
   * @param {Schedule} schedule
   */
  storeScalars(schedule) {
    for (const [value, term] of schedule.scalars) this.#numbers.set(value, term(this));
  }

  /**
   * @param {number} value
   * @returns {Tensor}
   */
  output(value) {
    const tensor = this.arrays.get(value);
    if (tensor) return { ...tensor, data: tensor.data.slice() };
    const { kind } = this.plan.spec(value);
    const number = Number(this.scalar(value));
    if (kind === "symint" || kind === "int") return { data: Int32Array.of(number), dims: [], dtype: "i64" };
    if (kind === "symbool" || kind === "bool") return { data: Uint8Array.of(number), dims: [], dtype: "bool" };
    return { data: Float64Array.of(number), dims: [], dtype: "f64" };
  }
}
