/**
 * A saved plan (docs/plans.md of webpte) and the values of one call of it. No GPU here.
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {import("./tensors.js").TensorInput} TensorInput
 * @typedef {import("./tensors.js").ValueSpec} ValueSpec
 * @typedef {import("./terms.js").Term} Term
 * @typedef {import("./terms.js").Compiled} Compiled
 * @typedef {[number, number, number]} Three
 * @typedef {[kernel: number, ranges: Three[], parameters: number, grid: Three]} Dispatch
 * @typedef {{ name: string, stored: string, spans: [file: number, offset: number, bytes: number][] }} Constant
 * @typedef {{
 *   bytes: number, kind: "constant" | "state" | "activation", fill: (Constant & { dtype: string }) | null
 * }} BufferSpec
 * @typedef {{
 *   label: string, workgroup: number, reads: number, writes: number, subgroups: boolean, text: [number, number]
 * }} KernelSpec
 * @typedef {{
 *   tensors: number[], scalars: number[], looks: number[], uploads: number[], updates: number[], reads: number[]
 * }} Segment
 * @typedef {{
 *   decisions: [Compiled, number][], guards: Guard[], slots: [number, Compiled][], dispatches: Dispatch[],
 *   made: [number, number[]][], told: [number, Compiled][]
 * }} Schedule
 * @typedef {{ term: Compiled, low: number, high: number, where: string, message: string, further: Compiled[] }} Guard
 * @typedef {{
 *   name: string, files: { sha256: string, bytes: number }[], inputs: number[], outputs: number[],
 *   names: Record<string, string>,
 *   values: Record<string, ValueSpec>, blocks: { stages: { submit: number }[] }[],
 *   segments: Segment[], cpu: { name: string }[], buffers: BufferSpec[], places: Record<string, number>,
 *   hosted: number[], state: number[], kept: number[], checks: Record<string, string>, kernels: KernelSpec[],
 *   parameters: string[],
 *   schedules: any[]
 * }} Document
 */
import { WebpteError } from "./errors.js";
import { fromCaller, show } from "./tensors.js";
import { compile } from "./terms.js";

export class Plan {
  /** @type {Map<string, any[]>} schedules by what selects them; each is compiled when it is first used */
  #schedules = new Map();
  /** @type {Map<any, Schedule>} */
  #compiled = new Map();

  /** @param {Document} document */
  constructor(document) {
    this.document = document;
    const stages = document.blocks.flatMap((block) => block.stages);
    if (document.blocks.length !== 1 || stages.length !== 1 || document.cpu.length) {
      throw new WebpteError("unsupported", `The plan of ${document.name} takes more than one submit.`);
    }
    this.segment = document.segments[stages[0].submit];
    for (const item of document.schedules) {
      const key = keyOf(item.dims, item.scalars);
      this.#schedules.set(key, [...(this.#schedules.get(key) ?? []), item]);
    }
    this.hasState = document.state.length > 0;
  }

  /** Constants that the host looks at. @returns {number[]} */
  get hosted() {
    const { outputs, places, state } = this.document;
    const made = new Set([...this.segment.reads, ...state.filter((value) => value in places)]);
    const seen = new Set([...outputs, ...this.segment.looks]);
    return [...seen].filter((value) => !made.has(value) && this.spec(value).constant);
  }

  /** @param {number} value */
  spec(value) {
    return this.document.values[value];
  }

  /**
   * What there is to do in this call.
   * @param {Call} call
   */
  schedule(call) {
    const { tensors, scalars } = this.segment;
    const dims = tensors.map((value) => call.dims.get(value) ?? []);
    const terms = scalars.map((value) => ["given", value, this.spec(value).kind !== "symfloat"]);
    for (const item of this.#schedules.get(keyOf(dims, terms)) ?? []) {
      const schedule = this.#compile(item);
      if (schedule.decisions.every(([term, decided]) => term(call) === decided)) return schedule;
    }
    throw this.#unplanned(dims);
  }

  /** @param {any} item */
  #compile(item) {
    let found = this.#compiled.get(item);
    if (!found) {
      found = compileSchedule(item);
      this.#compiled.set(item, found);
    }
    return found;
  }

  /** @param {number[][]} dims */
  #unplanned(dims) {
    const shapes = this.document.schedules.map((item) => item.dims.map(show).join(" "));
    const known = [...new Set(shapes)].slice(0, 12).join("; ");
    return new WebpteError(
      "shape",
      `${this.document.name} was not bundled for ${dims.map(show).join(" ")}. It was for: ${known}. ` +
        "Pass one of these, or bundle it again with --shapes.",
    );
  }
}

/**
 * @param {number[][]} dims
 * @param {Term[]} scalars
 */
const keyOf = (dims, scalars) => `${dims.join(";")} ${scalars.length ? JSON.stringify(scalars) : ""}`;

/** @param {Term} number that stands on no call */
const fixed = (number) => compile(number)(/** @type {any} */ (null));

/**
 * @param {any} item
 * @returns {Schedule}
 */
function compileSchedule(item) {
  return {
    decisions: item.decisions.map((/** @type {any} */ [term, decided]) => [compile(term), fixed(decided)]),
    guards: item.guards.map((/** @type {any} */ guard) => ({
      ...guard,
      term: compile(guard.term),
      low: guard.low === null ? -Infinity : fixed(guard.low),
      high: guard.high === null ? Infinity : fixed(guard.high),
      further: guard.further.map(compile),
    })),
    slots: item.slots.map((/** @type {any} */ [slot, term]) => [slot, compile(term)]),
    dispatches: item.dispatches,
    made: Object.entries(item.made).map(([value, dims]) => [Number(value), dims]),
    told: Object.entries(item.told).map(([value, term]) => [Number(value), compile(/** @type {Term} */ (term))]),
  };
}

/** The values of one call, as far as the host knows them. */
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
      throw new WebpteError("input", `${name} takes ${inputs.length} inputs; ${args.length} were given.`);
    }
    inputs.forEach((value, position) => this.#enter(value, args[position], `Input ${position} of ${name}`));
  }

  /**
   * @param {number} value
   * @param {any} given
   * @param {string} where
   */
  #enter(value, given, where) {
    const spec = this.plan.spec(value);
    if (spec.kind === "tensor") {
      const tensor = fromCaller(given, spec, where);
      this.arrays.set(value, tensor);
      this.dims.set(value, tensor.dims);
    } else if (spec.kind.startsWith("sym")) {
      const number = Number(typeof given === "object" && given?.data ? given.data[0] : given);
      if (Number.isNaN(number) && !Number.isNaN(given)) throw new WebpteError("input", `${where} must be a number.`);
      if (spec.kind === "symint" && number !== (number | 0)) {
        throw new WebpteError("input", `${where} is ${number}; it must be an integer of 32 bits.`);
      }
      this.#numbers.set(value, spec.kind === "symbool" ? Number(Boolean(number)) : number);
    }
  }

  /**
   * @param {number} value
   * @param {number[]} index
   */
  element(value, index) {
    const tensor = this.arrays.get(value);
    if (!tensor) throw new WebpteError("damaged", `The plan looks at value ${value} before anything has made it.`);
    const { data, dims } = tensor;
    return Number(data[index.reduce((at, i, axis) => at * dims[axis] + (i < 0 ? i + dims[axis] : i), 0)]);
  }

  /** @param {number} value */
  given(value) {
    return this.#numbers.get(value) ?? this.plan.spec(value).value;
  }

  /**
   * The live integers of a schedule, if its guards let the call pass.
   * @param {Schedule} schedule
   * @returns {[number, number][]}
   */
  slots(schedule) {
    for (const { term, low, high, where, message, further } of schedule.guards) {
      const found = term(this);
      if (low <= found && found < high) continue;
      const numbers = [found, ...further.map((each) => each(this))];
      throw new WebpteError("input", `${where}: ${message.replace(/\{(\d)\}/g, (_, i) => String(numbers[Number(i)]))}`);
    }
    return schedule.slots.map(([slot, term]) => [slot, term(this)]);
  }

  /**
   * The shapes of what a schedule will make.
   * @param {Schedule} schedule
   */
  expect(schedule) {
    for (const [value, dims] of schedule.made) this.dims.set(value, dims);
  }

  /**
   * The numbers of what it has made.
   * @param {Schedule} schedule
   */
  leave(schedule) {
    for (const [value, number] of schedule.told) this.#numbers.set(value, number(this));
  }
  /**
   * @param {number} value
   * @returns {Tensor}
   */
  output(value) {
    const tensor = this.arrays.get(value);
    if (tensor) return { ...tensor, data: tensor.data.slice() };
    const { kind } = this.plan.spec(value);
    const number = Number(this.given(value));
    if (kind === "symint" || kind === "int") return { data: Int32Array.of(number), dims: [], dtype: "i64" };
    if (kind === "symbool" || kind === "bool") return { data: Uint8Array.of(number), dims: [], dtype: "bool" };
    return { data: Float64Array.of(number), dims: [], dtype: "f64" };
  }
}
