/**
 * Several calls of a method in one submit. Outputs of a call are inputs of the next.
 * @typedef {import("./instance.js").Instance} Instance
 * @typedef {import("./instance.js").Feed} Feed
 * @typedef {import("./method.js").Method} Method
 * @typedef {import("./method.js").Argument} Argument
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {{ source: number, target: number, input: number, argument: string }} Feedback  source and target are values, input is a position
 */
import { inputError } from "./errors.js";
import { Call } from "./plan.js";
import { numel, padded, show } from "./tensors.js";

const MAX_STAGED_BYTES = 16 << 20; // inputs and results of all steps; with more, steps run one by one
const ROUNDED_ON_HOST = ["f16", "bf16"]; // if the device has them as f32

/**
 * @param {Method} method
 * @param {Instance} instance
 * @param {Argument[][]} steps
 * @param {Record<number, number>} feeds
 * @param {number[]} outputs
 * @returns {Promise<Tensor[][]>}
 */
export async function runSteps(method, instance, steps, feeds, outputs) {
  const feedback = Object.entries(feeds).map(([output, input]) => feedbackOf(method.plan, Number(output), input));
  const calls = steps.map((args) => new Call(method.plan, args)); // all are checked before the first one runs
  if (!calls.length) return [];
  calls.slice(1).forEach((call, i) => feedback.forEach((each) => checkSize(each, calls[i], call)));
  return (
    (await together(method, instance, calls, feedback, outputs)) ?? oneByOne(method, instance, steps, feedback, outputs)
  );
}

/** @param {Plan} plan @param {number} output @param {number} input @returns {Feedback} */
function feedbackOf(plan, output, input) {
  const { name, inputs, outputs } = plan.document;
  const [source, target] = [outputs[output], inputs[input]];
  const argument = `feeds from output ${output} to input ${input} of ${name}`;
  const [from, to] = [plan.spec(source), plan.spec(target)];
  if (from?.kind !== "tensor" || to?.kind !== "tensor") {
    throw inputError(argument, "two tensors", `${from?.kind} and ${to?.kind}`);
  }
  if (from.dtype !== to.dtype) throw inputError(argument, `the dtype ${to.host_dtype}`, from.host_dtype);
  return { source, target, input, argument };
}

/** @param {Feedback} feedback @param {Call} before @param {Call} next */
function checkSize({ source, target, argument }, before, next) {
  const [from, to] = [before.dims.get(source), next.dims.get(target)];
  if (from && to && numel(from) !== numel(to)) {
    throw inputError(argument, `the size of dims ${show(to)}`, from);
  }
}

/**
 * Run all steps in one submit. Return null if they differ in more than live integers and inputs, or are too large.
 * @param {Method} method
 * @param {Instance} instance
 * @param {Call[]} calls
 * @param {Feedback[]} feedback
 * @param {number[]} outputs
 */
async function together(method, instance, calls, feedback, outputs) {
  const { plan } = method;
  const { segment } = plan;
  const { on_host } = plan.document;
  const staysOnDevice = (/** @type {Feedback} */ { source, target }) =>
    segment.readbacks.includes(source) &&
    !on_host.includes(target) &&
    !outputs.includes(target) &&
    isExact(plan, source);
  if (
    segment.host_reads.length ||
    !feedback.every(staysOnDevice) ||
    outputs.some((value) => !segment.readbacks.includes(value))
  )
    return null;
  const schedule = plan.schedule(calls[0]);
  if (calls.some((call) => plan.schedule(call) !== schedule)) return null;
  const slots = calls.map((call) => call.slots(schedule));
  for (const call of calls) call.setDims(schedule);
  calls.slice(1).forEach((call, i) => feedback.forEach((each) => checkSize(each, calls[i], call)));
  const reads = method.reads(outputs);
  const ranges = reads.map((value) => method.range(value, calls[0]));
  const targets = feedback.map(({ target }) => target);
  const steps = calls.map((call, i) => ({ slots: slots[i], uploads: method.uploads(call, i ? targets : []) }));
  if (bytesHeld(ranges, steps) > MAX_STAGED_BYTES) return null;
  const live = feedback.filter(({ target }) => segment.uploads.includes(target)); // an input that no kernel reads has no buffer
  const between = live.map(({ source, target }) => feedOf(method, source, target, calls[0]));
  const results = await instance.submit(schedule, steps, ranges, between);
  return calls.map((call, i) => {
    method.storeResults(call, reads, results[i]);
    return outputs.map((value) => call.output(value));
  });
}

/** Return whether callers get the numbers of the device unchanged. @param {Plan} plan @param {number} source */
function isExact(plan, source) {
  const { dtype, host_dtype } = plan.spec(source);
  return !ROUNDED_ON_HOST.includes(host_dtype) || dtype !== "f32";
}

/** @param {Method} method @param {number} source @param {number} target @param {Call} call @returns {Feed} */
function feedOf(method, source, target, call) {
  const [to, bytes] = method.range(target, call);
  return { from: method.range(source, call)[0], to, bytes };
}

/** @param {[number, number][]} ranges @param {import("./instance.js").Step[]} steps */
function bytesHeld(ranges, steps) {
  const read = ranges.reduce((sum, [, bytes]) => sum + padded(bytes), 0);
  return steps.flatMap((step) => step.uploads).reduce((sum, [, data]) => sum + data.length, read * steps.length);
}

/**
 * @param {Method} method
 * @param {Instance} instance
 * @param {Argument[][]} steps
 * @param {Feedback[]} feedback
 * @param {number[]} outputs
 */
async function oneByOne(method, instance, steps, feedback, outputs) {
  /** @type {Tensor[][]} */
  const results = [];
  /** @type {Tensor[]} */
  let previous = [];
  for (const args of steps) {
    const inputs = [...args];
    previous.forEach(({ data }, i) => {
      const { dims } = /** @type {Tensor} */ (inputs[feedback[i].input]);
      inputs[feedback[i].input] = { data, dims };
    });
    const sources = feedback.map(({ source }) => source);
    const values = await method.call(instance, new Call(method.plan, inputs), [...outputs, ...sources]);
    results.push(values.slice(0, outputs.length));
    previous = values.slice(outputs.length);
  }
  return results;
}
