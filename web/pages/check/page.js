/** Run every program of the bundle on this GPU, compare the outputs, and show the results by operator. */

import { compare, golden, suspects } from "./compare.js";
import { adapterName, announce, loadModel, make, parts, plural, save, showError, titleOf } from "./shared.js";

const pause = () => new Promise((resolve) => setTimeout(resolve));

/** The row of an operator, filled as its programs run. */
class Row {
  #result = make("td");
  #count = make("td", { className: "numbers" });
  #error = make("td", { className: "numbers" });
  #done = [];
  #total = 0;
  #list = make("ul");

  constructor(op) {
    this.element = make(
      "tr",
      {},
      make("th", { scope: "row", textContent: op }, this.#list),
      this.#result,
      this.#count,
      this.#error,
    );
  }

  expect() {
    this.#total += 1;
    this.#show();
  }

  add(result) {
    this.#done.push(result);
    if (!result.ok) this.#list.append(make("li", { textContent: `${result.name}: ${result.why}` }));
    this.#show();
  }

  #show() {
    const wrong = this.#done.filter(({ ok }) => !ok).length;
    const over = this.#done.length === this.#total;
    this.element.className = wrong ? "failed" : "passed";
    this.#result.textContent = wrong ? "✗ failed" : over ? "✓ passed" : "…";
    this.#result.className = wrong ? "bad-text" : over ? "good-text" : "quiet";
    this.#count.textContent = `${this.#done.length - wrong} of ${this.#total}`;
    if (this.#done.length) this.#error.textContent = Math.max(...this.#done.map(({ error }) => error)).toExponential(1);
  }
}

class Check {
  #root;
  #part;
  #model;
  #programs;
  #results = [];
  #stopped = false;
  #rows = new Map();

  constructor(root, model) {
    this.#root = root;
    this.#part = parts(root);
    this.#model = model;
    this.#programs = model.info.check;
    const { work, results, run, stop, copy, keep, failures, rows } = this.#part;
    work.hidden = results.hidden = false;
    const omitted = model.info.omitted ?? [];
    this.#part.omitted.hidden = omitted.length === 0;
    const names = omitted.map(({ op, name }) => `${op}/${name}`).join(", ");
    this.#part.omitted.textContent = `Not supported in a page: ${names}.`;
    run.onclick = () => this.run();
    stop.onclick = () => (this.#stopped = true);
    keep.onclick = () => save("webpte-check.json", this.#report(), "application/json");
    copy.onclick = () => this.#copy();
    failures.onchange = () => rows.classList.toggle("only", failures.checked);
  }

  async run() {
    const { run, stop, bar, verdict, rows } = this.#part;
    this.#results = [];
    this.#rows.clear();
    this.#stopped = false;
    for (const { op } of this.#programs) this.#row(op).expect();
    rows.replaceChildren(...[...this.#rows.values()].map(({ element }) => element));
    bar.max = this.#programs.length;
    run.hidden = true;
    stop.hidden = false;
    for (const program of this.#programs) {
      if (this.#stopped) break;
      verdict.textContent = `${this.#results.length} of ${plural(this.#programs.length, "program")}: ${program.op}`;
      const result = await this.#one(program);
      this.#results.push(result);
      this.#row(program.op).add(result);
      bar.value = this.#results.length;
      await pause(); // so that the page is drawn and the button "Stop" works
    }
    run.hidden = false;
    stop.hidden = true;
    this.#conclude();
  }

  #row(op) {
    if (!this.#rows.has(op)) this.#rows.set(op, new Row(op));
    return this.#rows.get(op);
  }

  async #one(program) {
    const { op, name, method } = program;
    const result = { op, name, ok: false, error: Infinity, why: "", kernels: [] };
    try {
      const [inputs, expected] = await Promise.all([this.#arrays(program.inputs), this.#arrays(program.outputs)]);
      result.kernels = await this.#kernels(method);
      const got = await this.#model.run(inputs, { method });
      const compared = expected.map((array, at) => compare(got[at], array, program.atol, program.rtol));
      result.error = Math.max(0, ...compared.map(({ error }) => error));
      result.ok = compared.every(({ ok }) => ok);
      result.why = compared
        .map(({ why }, at) => why && `output ${at}: ${why}`)
        .filter(Boolean)
        .join("; ");
    } catch (error) {
      result.why = `${titleOf(error)}: ${error.message}`;
    }
    return result;
  }

  #arrays(items) {
    return Promise.all(items.map(async (item) => golden(item, await this.#model.bytes(item.file))));
  }

  /** Return the kernels of a method's plans. */
  async #kernels(method) {
    const plans = this.#model.info.methods[method].variants.map(({ plan }) => plan);
    const kernels = [];
    for (const plan of plans)
      kernels.push(...JSON.parse(new TextDecoder().decode(await this.#model.bytes(plan))).kernels);
    return kernels.map(({ label, sha256 }) => ({ label, sha256 }));
  }

  #conclude() {
    const { verdict, suspects: place } = this.#part;
    const failed = this.#results.filter(({ ok }) => !ok);
    const kernels = suspects(this.#results);
    const [run, total] = [this.#results.length, this.#programs.length];
    const outcome = failed.length ? `${failed.length} failed` : "none failed";
    if (this.#stopped) verdict.textContent = `Stopped after ${run} of ${plural(total, "program")}, ${outcome}`;
    else
      verdict.textContent = failed.length
        ? `${failed.length} of ${plural(total, "program")} failed`
        : total === 1
          ? "1 program passed"
          : `All ${total} programs passed`;
    verdict.className = failed.length ? "bad-text" : this.#stopped ? "" : "good-text";
    place.hidden = kernels.length === 0;
    place.textContent = `Kernels that only failing programs use: ${kernels.join(", ")}`;
    announce(this.#root, verdict.textContent);
  }

  #report() {
    const { adapter, info, name } = this.#model;
    const results = this.#results.map(({ kernels, error, ...result }) => ({
      ...result,
      error: Number.isFinite(error) ? error : String(error),
      kernels: result.ok ? undefined : kernels.map(({ label }) => label),
    }));
    const failed = results.filter(({ ok }) => !ok).length;
    const about = {
      report: "webpte check",
      bundle: name,
      webpte: info.webpte,
      date: new Date().toISOString(),
      browser: navigator.userAgent,
    };
    const sums = { programs: this.#programs.length, run: results.length, failed, suspects: suspects(this.#results) };
    return JSON.stringify({ ...about, adapter: { ...adapter, name: adapterName(adapter) }, ...sums, results }, null, 1);
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#report());
      this.#part.copy.textContent = "Copied";
      announce(this.#root, "Copied");
    } catch (error) {
      showError(this.#part.lost, Object.assign(error, { code: "input" }));
    }
  }
}

export async function start(page) {
  await new Check(page.root, await loadModel(page)).run();
}
