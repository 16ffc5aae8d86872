/**
 * Several calls of a method in one submit, each fed with results of the one before.
 * @typedef {import("./instance.js").Instance} Instance
 * @typedef {import("./instance.js").Feed} Feed
 * @typedef {import("./method.js").Method} Method
 * @typedef {import("./method.js").Argument} Argument
 * @typedef {import("./plan.js").Plan} Plan
 * @typedef {import("./tensors.js").Tensor} Tensor
 * @typedef {{ source: number, target: number, input: number, words: string }} Fed  values, and the target's place
 */
import { WebpteError } from "./errors.js";
import { Call } from "./plan.js";
import { numel, padded, show } from "./tensors.js";

const MOST_BYTES = 16 << 20; // of inputs and results that steps may hold at once before they run one by one
const NARROWED = ["f16", "bf16"]; // by the host, unless the device has them as they are

/**
 * @param {Method} method
 * @param {Instance} instance
 * @param {Argument[][]} steps
 * @param {Record<number, number>} feeds
 * @param {number[]} wanted
 * @returns {Promise<Tensor[][]>}
 */
export async function runSteps(method, instance, steps, feeds, wanted) {
  const fed = Object.entries(feeds).map(([output, input]) => wire(method.plan, Number(output), input));
  const calls = steps.map((args) => new Call(method.plan, args)); // all, so that nothing has run when one is refused
  if (!calls.length) return [];
  calls.slice(1).forEach((call, i) => fed.forEach((each) => checkSize(each, calls[i], call)));
  return (await together(method, instance, calls, fed, wanted)) ?? oneByOne(method, instance, steps, fed, wanted);
}

/** @param {Plan} plan @param {number} output @param {number} input @returns {Fed} */
function wire(plan, output, input) {
  const { name, inputs, outputs } = plan.document;
  const [source, target] = [outputs[output], inputs[input]];
  const words = `Output ${output} of ${name} cannot feed input ${input}`;
  const [made, taken] = [plan.spec(source), plan.spec(target)];
  if (made?.kind !== "tensor" || taken?.kind !== "tensor") {
    throw new WebpteError("input", `${words}: only tensors can be fed.`);
  }
  if (made.dtype !== taken.dtype) throw new WebpteError("input", `${words}: ${made.host} is no ${taken.host}.`);
  return { source, target, input, words };
}

/** @param {Fed} fed @param {Call} before @param {Call} next */
function checkSize({ source, target, words }, before, next) {
  const [made, taken] = [before.dims.get(source), next.dims.get(target)];
  if (made && taken && numel(made) !== numel(taken)) {
    throw new WebpteError("input", `${words}: its dims are ${show(made)}, the next step's input has ${show(taken)}.`);
  }
}

/**
 * All steps in one submit; null if they differ in more than live integers and inputs, or hold too much.
 * @param {Method} method
 * @param {Instance} instance
 * @param {Call[]} calls
 * @param {Fed[]} fed
 * @param {number[]} wanted
 */
async function together(method, instance, calls, fed, wanted) {
  const { plan } = method;
  const { segment } = plan;
  const { hosted } = plan.document;
  const stays = (/** @type {Fed} */ { source, target }) =>
    segment.reads.includes(source) && !hosted.includes(target) && !wanted.includes(target) && isExact(plan, source);
  if (segment.looks.length || !fed.every(stays) || wanted.some((value) => !segment.reads.includes(value))) return null;
  const schedule = plan.schedule(calls[0]);
  if (calls.some((call) => plan.schedule(call) !== schedule)) return null;
  const slots = calls.map((call) => call.slots(schedule));
  for (const call of calls) call.expect(schedule);
  calls.slice(1).forEach((call, i) => fed.forEach((each) => checkSize(each, calls[i], call)));
  const reads = method.reads(wanted);
  const ranges = reads.map((value) => method.range(value, calls[0]));
  const targets = fed.map(({ target }) => target);
  const steps = calls.map((call, i) => ({ slots: slots[i], uploads: method.uploads(call, i ? targets : []) }));
  if (bytesHeld(ranges, steps) > MOST_BYTES) return null;
  const live = fed.filter(({ target }) => segment.uploads.includes(target)); // an input that no kernel reads is nowhere
  const between = live.map(({ source, target }) => feedOf(method, source, target, calls[0]));
  const found = await instance.submit(schedule, steps, ranges, between);
  return calls.map((call, i) => {
    method.leave(call, reads, found[i]);
    return wanted.map((value) => call.output(value));
  });
}

/** @param {Plan} plan @param {number} source whether callers would see what the device has */
function isExact(plan, source) {
  const { dtype, host } = plan.spec(source);
  return !NARROWED.includes(host) || dtype !== "f32";
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
 * @param {Fed[]} fed
 * @param {number[]} wanted
 */
async function oneByOne(method, instance, steps, fed, wanted) {
  /** @type {Tensor[][]} */
  const results = [];
  /** @type {Tensor[]} */
  let made = [];
  for (const args of steps) {
    const given = [...args];
    made.forEach(({ data }, i) => {
      const { dims } = /** @type {Tensor} */ (given[fed[i].input]);
      given[fed[i].input] = { data, dims };
    });
    const sources = fed.map(({ source }) => source);
    const found = await method.call(instance, new Call(method.plan, given), [...wanted, ...sources]);
    results.push(found.slice(0, wanted.length));
    made = found.slice(wanted.length);
  }
  return results;
}
