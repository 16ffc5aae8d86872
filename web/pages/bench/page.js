/** Measure this GPU, and show the report: checks, probes, and decoders with random weights. */

import { compare, golden } from "./compare.js";
import { measureProbes } from "./probes.js";
import { markdown, median, statistics } from "./report.js";
import { adapterName, announce, duration, loadModel, parts, save, showError, titleOf } from "./shared.js";

const TOKEN = 1; // the position of the sampled token among the outputs
const FEATURES = { "shader-f16": "shader-f16", subgroups: "subgroup", "timestamp-query": "timestamp-query" };
const WEIGHTS = { checks: 4, probes: 2, model: 10 }; // seconds on a GPU
const pause = () => new Promise((resolve) => setTimeout(resolve));
const limitName = (name) => name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase());

/** Return the browser's name with its main version, without the rest of the user agent. */
function browserVersion() {
  const names = { Firefox: "Firefox", Edg: "Edge", OPR: "Opera", HeadlessChrome: "Chrome", Chrome: "Chrome" };
  for (const [token, name] of Object.entries(names)) {
    const match = navigator.userAgent.match(new RegExp(`${token}/(\\d+)`));
    if (match) return `${name} ${match[1]}`;
  }
  return `Safari ${navigator.userAgent.match(/Version\/(\d+)/)?.[1] ?? ""}`.trim();
}

function systemName() {
  const names = [/iPhone|iPad/, /Android/, /Windows/, /Mac/, /CrOS/, /Linux/];
  return names.map((name) => navigator.userAgent.match(name)?.[0]).find(Boolean) ?? "unknown";
}

class Bench {
  #root;
  #part;
  #model;
  #bench;
  #stop = null;
  #report = null;

  constructor(root, model) {
    this.#root = root;
    this.#part = parts(root);
    this.#model = model;
    this.#bench = model.info.bench;
    const { work, run, stop, copy, keep } = this.#part;
    work.hidden = false;
    run.onclick = () => this.run();
    stop.onclick = () => this.#stop.abort();
    keep.onclick = () => save("webpte-report.json", `${JSON.stringify(this.#report, null, 2)}\n`, "application/json");
    copy.onclick = () => this.#copy();
  }

  async run() {
    const { run, stop, verdict, results } = this.#part;
    this.#stop = new AbortController();
    run.hidden = true;
    stop.hidden = false;
    results.hidden = true;
    verdict.className = "";
    try {
      this.#report = await this.#measure();
      this.#show();
    } catch (error) {
      verdict.textContent = this.#stop.signal.aborted ? "Stopped" : `${titleOf(error)}: ${error.message}`;
      verdict.className = this.#stop.signal.aborted ? "" : "bad-text";
      announce(this.#root, verdict.textContent);
    }
    run.textContent = "Run again";
    run.hidden = false;
    stop.hidden = true;
  }

  async #measure() {
    const began = performance.now();
    const { models, probes, seconds } = this.#bench;
    const raw = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    const progress = this.#progress(WEIGHTS.checks + WEIGHTS.probes + WEIGHTS.model * models.length, began);
    const report = this.#machine(raw);
    await progress(0, "op checks");
    report.checks = [];
    for (const program of this.#model.info.check) report.checks.push(await this.#check(program));
    await progress(WEIGHTS.checks, "probes");
    report.probes = await measureProbes(raw, probes);
    await progress(WEIGHTS.probes, "");
    report.models = [];
    report.left_out = [];
    for (const model of models) {
      await progress(0, `width ${model.width}`);
      if ((performance.now() - began) / 1e3 > seconds.total) report.left_out.push(model.width);
      else report.models.push(await this.#decoder(model));
      await progress(WEIGHTS.model, "");
    }
    return { ...report, programs: [], load: null, seconds: (performance.now() - began) / 1e3 };
  }

  /** Return a function that counts a finished step and shows the next. */
  #progress(total, began) {
    const { bar, verdict } = this.#part;
    let done = 0;
    bar.max = total;
    return async (weight, note) => {
      done += weight;
      bar.value = done;
      const elapsed = (performance.now() - began) / 1e3;
      const left = done && elapsed > 2 ? `, ${duration((elapsed * (total - done)) / done)} left` : "";
      verdict.textContent = `${note}${left}`;
      await pause();
      this.#stop.signal.throwIfAborted();
    };
  }

  #machine(raw) {
    const { adapter, info } = this.#model;
    return {
      report: "webpte bench",
      version: 1,
      date: new Date().toISOString().slice(0, 10),
      runtime: "browser",
      software: adapter.software,
      versions: { webpte: info.webpte, browser: browserVersion() },
      os: systemName(),
      adapter: {
        name: adapterName(adapter),
        driver: "",
        backend: "WebGPU",
        kind: adapter.software ? "CPU" : "GPU",
      },
      restricted: null,
      features: [...raw.features]
        .filter((name) => name in FEATURES)
        .map((name) => FEATURES[name])
        .sort(),
      limits: Object.fromEntries(this.#bench.limits.map((name) => [name, raw.limits[limitName(name)]])),
      subgroup: raw.info.subgroupMinSize ?? 0,
    };
  }

  async #check({ op, method, inputs, outputs, atol, rtol }) {
    const arrays = (items) => Promise.all(items.map(async (item) => golden(item, await this.#model.bytes(item.file))));
    try {
      const [given, expected] = await Promise.all([arrays(inputs), arrays(outputs)]);
      const got = await this.#model.run(given, { method, signal: this.#stop.signal });
      const compared = expected.map((array, at) => compare(got[at], array, atol, rtol));
      const error = Math.max(0, ...compared.map((each) => each.error));
      return { name: op, ok: compared.every(({ ok }) => ok), detail: `largest error ${error.toExponential(1)}` };
    } catch (error) {
      this.#stop.signal.throwIfAborted();
      return { name: op, ok: false, detail: `${titleOf(error)}: ${error.message}` };
    }
  }

  async #decoder({ method, width, layers, weight_bytes, prefill, prompt, tokens }) {
    const result = { width, layers, weight_bytes, problem: null };
    Object.assign(result, { tokens: null, prefill: null, decode: null, decode_paced: null });
    const rates = (seconds, count) => ({
      ...statistics(seconds),
      tokens: count,
      tokens_per_second: count / median(seconds),
      weight_bytes_per_second: weight_bytes / median(seconds),
    });
    try {
      const got = [];
      for (let step = prompt, position = 0; got.length < tokens.length; ) {
        const token = await this.#step(method, step, position);
        position += step.length;
        step = [token];
        got.push(token);
      }
      const different = got.findIndex((token, at) => token !== tokens[at]);
      result.tokens = { n: tokens.length, equal: different < 0 ? got.length : different, ok: different < 0 };
      result.prefill = rates(await this.#sample(() => this.#step(method, prefill, 0)), prefill.length);
      result.decode = rates(await this.#sample(() => this.#step(method, [1], prefill.length)), 1);
    } catch (error) {
      this.#stop.signal.throwIfAborted();
      result.problem = `${titleOf(error)}: ${error.message}`;
    }
    return result;
  }

  /** Return the token after others that begin at a position. */
  async #step(method, tokens, position) {
    const [words, adjustments, features] = this.#bench.sampling;
    const inputs = [
      { data: tokens, dims: [1, tokens.length] },
      { data: [position], dims: [1] },
      0,
      { data: words, dims: [words.length] },
      adjustments,
      features,
    ];
    const [token] = await this.#model.run(inputs, { method, outputs: [TOKEN], signal: this.#stop.signal });
    return token.data[0];
  }

  /** Return the seconds of calls within the time of a measurement. The first may compile and is not counted. */
  async #sample(call) {
    const { point, slow_call, single_call } = this.#bench.seconds;
    const timed = async () => {
      const began = performance.now();
      await call();
      return (performance.now() - began) / 1e3;
    };
    const first = await timed();
    const times = first > slow_call ? [first] : [];
    const [least, most] = [first > single_call ? 1 : this.#bench.calls[0], this.#bench.calls[1]];
    let total = times[0] ?? 0;
    while (times.length < least || (total < point && times.length < most)) {
      times.push(await timed());
      total += times.at(-1);
    }
    return times;
  }

  #show() {
    const { verdict, results, block } = this.#part;
    const { checks, models } = this.#report;
    const wrong = checks.some(({ ok }) => !ok) || models.some(({ tokens }) => !tokens?.ok);
    verdict.textContent = wrong ? "Measured, with wrong results" : "Measured, all results are as expected";
    verdict.className = wrong ? "bad-text" : "good-text";
    block.textContent = markdown(this.#report);
    results.hidden = false;
    announce(this.#root, verdict.textContent);
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(markdown(this.#report));
      this.#part.copy.textContent = "Copied";
      announce(this.#root, "Copied");
    } catch (error) {
      showError(this.#part.lost, Object.assign(error, { code: "input" }));
    }
  }
}

export async function start(page) {
  new Bench(page.root, await loadModel(page));
}
