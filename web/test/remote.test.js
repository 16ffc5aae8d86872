import assert from "node:assert/strict";
import { test } from "node:test";
import { packError, WebpteError } from "../src/errors.js";
import { Host } from "../src/host.js";
import { memoryOf } from "../src/messages.js";
import { Model } from "../src/model.js";
import { Remote } from "../src/remote.js";

/** A worker whose messages are kept until `answer` is called for them. */
class FakeWorker {
  sent = [];
  terminated = 0;
  onmessage = (_event) => {};
  onerror = (_event) => {};

  postMessage(message) {
    this.sent.push(message);
  }

  terminate() {
    this.terminated++;
  }

  answer(message) {
    this.onmessage({ data: message });
  }
}

/** @returns {any} */
const fakeWorker = () => new FakeWorker();

const state = { info: { name: "m", kind: "program" }, adapter: null, recoveries: 0 };

async function opened(options = {}) {
  const worker = fakeWorker();
  const remote = new Remote(worker, { onEvent: () => {}, ...options });
  const opening = remote.open("https://a.example/");
  worker.answer({ done: 1, value: state });
  await opening;
  worker.sent.length = 0;
  return { worker, remote };
}

test("a worker with WebGPU is taken, one without it is ended", async () => {
  const starting = (hello) => {
    const worker = fakeWorker();
    const started = Remote.start(worker);
    hello(worker);
    return started.then((found) => [found === worker, worker.terminated]);
  };
  assert.deepEqual(await starting((worker) => worker.answer({ hello: { gpu: true } })), [true, 0]);
  assert.deepEqual(await starting((worker) => worker.answer({ hello: { gpu: false } })), [false, 1]);
  assert.deepEqual(await starting((worker) => worker.onerror({ message: "404" })), [false, 1]);
  await assert.rejects(Remote.start(fakeWorker(), AbortSignal.abort()), { code: "aborted" });
});

test("answers find their questions in any order", async () => {
  const { worker, remote } = await opened();
  const [first, second] = [remote.call("embed", [["a"]]), remote.call("countTokens", [[]])];
  const [one, other] = worker.sent;
  assert.deepEqual([one.name, one.args, other.name], ["embed", [["a"]], "countTokens"]);
  worker.answer({ done: other.call, value: 7 });
  worker.answer({ done: one.call, value: [1] });
  assert.deepEqual([await first, await second], [[1], 7]);
});

test("errors of the worker arrive with their codes", async () => {
  const { worker, remote } = await opened();
  const call = remote.call("run", []);
  worker.answer({ failed: worker.sent[0].call, error: packError(new WebpteError("shape", "no")) });
  await assert.rejects(call, (error) => error instanceof WebpteError && error.code === "shape");
});

test("a stream is pulled item by item, and stopped when its reader leaves", async () => {
  const { worker, remote } = await opened();
  const calling = remote.call("answer", [{ stream: true }]);
  const { call } = worker.sent[0];
  worker.answer({ stream: call });
  const items = await calling;
  assert.equal(worker.sent.length, 1); // nothing is asked for before somebody reads
  worker.postMessage = (message) => {
    worker.sent.push(message);
    if (message.next) queueMicrotask(() => worker.answer({ item: message.next, value: message.next, last: false }));
  };
  const seen = [];
  for await (const item of items) {
    seen.push(item);
    if (seen.length === 3) break;
  }
  assert.equal(seen.length, 3);
  assert.deepEqual(
    worker.sent.slice(1, 4).map(({ of }) => of),
    [call, call, call],
  );
  assert.deepEqual(worker.sent.at(-1), { stop: call });
  assert.equal(worker.sent.length, 5);
});

test("a signal ends a call here and there", async () => {
  const { worker, remote } = await opened();
  const stop = new AbortController();
  const call = remote.call("run", [], stop.signal);
  stop.abort();
  await assert.rejects(call, { code: "aborted" });
  assert.deepEqual(worker.sent.at(-1), { abort: worker.sent[0].call });
});

test("a worker that stops ends all calls, now and later", async () => {
  const { worker, remote } = await opened();
  const calls = [remote.call("run", []), remote.call("embed", [])];
  worker.onerror({ message: "out of memory" });
  for (const call of calls) await assert.rejects(call, { code: "disposed", message: /out of memory/ });
  await assert.rejects(remote.call("run", []), { code: "disposed" });
  assert.equal(worker.terminated, 1);
});

test("a bundle that does not open ends its worker", async () => {
  const worker = fakeWorker();
  const opening = new Remote(worker, { onEvent: () => {} }).open("https://a.example/");
  worker.answer({ failed: 1, error: packError(new WebpteError("network", "404")) });
  await assert.rejects(opening, { code: "network" });
  assert.equal(worker.terminated, 1);
});

test("progress and events reach the page, and the model knows of recoveries", async () => {
  const [progress, events] = [[], []];
  const { worker, remote } = await opened({
    onProgress: (event) => progress.push(event),
    onEvent: (type, _, detail) => events.push([type, detail]),
  });
  worker.answer({ progress: { stage: "ready" } });
  worker.answer({ event: "recovered", state: { ...state, recoveries: 1 }, detail: "1" });
  assert.deepEqual([progress, events], [[{ stage: "ready" }], [["recovered", "1"]]]);
  assert.equal(new Model(remote).recoveries, 1);
});

test("a model hands its requests on without the signal", async () => {
  const calls = [];
  const backend = { state, call: async (...args) => void calls.push(args), dispose: () => calls.push("dispose") };
  const model = new Model(/** @type {any} */ (backend));
  const { signal } = new AbortController();
  await model.chat.completions.create({ messages: [], temperature: 1, signal });
  await model.run([], { outputs: [1] });
  await model.embed(["a"], { signal });
  model.dispose();
  assert.deepEqual(calls, [
    ["answer", [{ messages: [], temperature: 1 }], signal],
    ["run", [[], "forward", [1]], undefined],
    ["embed", [["a"]], signal],
    "dispose",
  ]);
  assert.deepEqual([model.name, model.kind], ["m", "program"]);
});

test("a host refuses what its kind of program cannot do", async () => {
  const program = { kind: "program", manifest: { name: "m", methods: {} }, adapter: null, recoveries: 2 };
  const host = new Host(/** @type {any} */ (program));
  await assert.rejects(host.call("embed", [["a"]]), { code: "input", message: /m: expected a sentence encoder/ });
  await assert.rejects(host.call("answer", [{}]), { code: "input", message: /expected a language model/ });
  assert.equal(host.state.recoveries, 2);
});

test("memoryOf finds each buffer of a result once", () => {
  const shared = new ArrayBuffer(8);
  const [one, other] = [new Uint8Array(shared, 0, 4), new Uint8Array(shared, 4)];
  const alone = new Float32Array(2);
  assert.deepEqual(memoryOf(one), [shared]);
  assert.deepEqual(memoryOf([{ data: one, dims: [4] }, { data: other, dims: [4] }, alone]), [shared, alone.buffer]);
  assert.deepEqual(memoryOf({ choices: [] }), []);
  assert.deepEqual(memoryOf(undefined), []);
});
