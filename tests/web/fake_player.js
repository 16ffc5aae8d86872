/**
 * A player that plays nothing, for what a real one rarely does: slow downloads, errors, lost devices.
 * The test says what to do by globalThis.fake, set before the page's own scripts run.
 */
const wait = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(coded("aborted", "stopped"))), { once: true });
  });
const coded = (code, message) => Object.assign(new Error(message), { code });
const plan = () => globalThis.fake ?? {};

async function download({ signal, onProgress }) {
  const total = 94_200_000;
  for (const done of plan().progress ?? [total]) {
    const cached = plan().cached ? done : 0;
    onProgress({ stage: "weights", done, total, cached, secondsLeft: (total - done) / 2e6, damagedFile: plan().damagedFile });
    await wait(plan().pace ?? 1, signal);
  }
  if (plan().hang) await wait(1e9, signal);
  onProgress({ stage: "compile", done: 1, total: 2, cached: 0, secondsLeft: 0 });
}

async function* answer({ messages, signal }) {
  plan().requests?.push(messages);
  for (const [processed, total] of plan().promptProgress ?? []) {
    yield { choices: [], prompt_progress: { total, cache: 0, processed } };
  }
  while (plan().hold) await wait(10, signal);
  for (const piece of plan().pieces ?? ["Hello", " there"]) {
    await wait(plan().pace ?? 1, signal);
    yield { choices: [{ index: 0, delta: { content: piece }, finish_reason: null }] };
  }
  const failure = plan().failures?.shift();
  if (failure) throw coded(...failure);
  yield { choices: [{ index: 0, delta: {}, finish_reason: plan().reason ?? "stop" }] };
  yield { choices: [], usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: plan().used ?? 15 } };
}

class FakeModel extends EventTarget {
  name = "Tiny talker";
  adapter = { vendor: "acme", architecture: "gpu-1", description: "ACME GPU 9000", isFallbackAdapter: false };
  info = plan().info ?? { language: { context_length: 512 } };
  requests = [];
  chat = { completions: { create: async (request) => (this.requests.push(request), answer(request)) } };

  async embed(texts, { signal } = {}) {
    await wait(plan().pace ?? 1, signal);
    return texts.map((text) => Float32Array.from("abcdefghijklmnopqrstuvwxyz", (letter) => text.toLowerCase().split(letter).length - 1));
  }

  async run(inputs, { method } = {}) {
    this.requests.push({ inputs, method });
    const failure = plan().failures?.shift();
    if (failure) throw coded(...failure);
    return plan().outputs?.(inputs, method) ?? inputs.map(({ data, dims }) => ({ data, dims, dtype: "f32" }));
  }

  async bytes(sha) {
    return plan().files[sha];
  }
}

export async function inspect() {
  return { name: "Tiny talker", kind: "language", bytes: 94_200_000, cached: 94_200_000, ...plan().about };
}

export async function load(url, options) {
  globalThis.loads = (globalThis.loads ?? 0) + 1;
  options.onProgress({ stage: "manifest", done: 0, total: 0, cached: 0, secondsLeft: 0 });
  const failure = plan().loadFailures?.shift();
  if (failure) throw coded(...failure);
  await download(options);
  return (globalThis.model = new FakeModel());
}
