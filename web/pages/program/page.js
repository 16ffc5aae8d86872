/** A form for any program: a field for every input, and the outputs. */

import { readNpy, writeNpy } from "./npy.js";
import { announce, loadModel, make, parts, plural, save, short, showError } from "./shared.js";

const KINDS = { symint: "integer", symfloat: "number", symbool: "0 or 1" };
const INTEGER_DTYPES = /^(i|u|bool)/;
const FILLS = { random: "random numbers", zeros: "zeros", ones: "ones", typed: "typed numbers", file: "a .npy file" };
const count = (dims) => dims.reduce((product, dim) => product * dim, 1);
const shape = (dims) => (dims.length ? dims.join(" × ") : "one number");

/** Return a normal deviate; for integers 0 or 1, which are valid indices into two rows. */
const random = (dtype) =>
  INTEGER_DTYPES.test(dtype)
    ? Math.floor(Math.random() * 2)
    : Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

/** One input of the program: its fieldset, and the argument that it describes. */
class Field {
  #spec;
  #name;
  #fill;
  #typed;
  #file;

  constructor(spec) {
    this.#spec = spec;
    this.dims = spec.dims ?? [];
    this.#typed = make("textarea", { rows: 2, spellcheck: false, className: "numbers", placeholder: "1, 2.5, -3 …" });
    this.#name = spec.name;
    this.#typed.setAttribute("aria-label", `Numbers of ${this.#name}`);
    this.#fill = make("select");
    for (const [value, textContent] of Object.entries(FILLS)) this.#fill.append(make("option", { value, textContent }));
    this.#file = make("input", { type: "file", accept: ".npy" });
    this.#file.setAttribute("aria-label", `File of ${this.#name}`);
    // An integer is an index or a position as a rule, for which a random number makes no sense.
    if (INTEGER_DTYPES.test(spec.dtype)) this.#fill.value = "zeros";
    this.legend = make("legend");
    this.element = make("fieldset", {}, this.legend);
    if (spec.kind === "tensor") {
      this.element.append(make("label", {}, "Filled with", this.#fill), this.#typed, this.#file);
      this.#fill.onchange = () => this.show();
    } else {
      this.#typed = make("input", { type: "number", step: spec.kind === "symfloat" ? "any" : "1", value: "0" });
      this.element.append(make("label", {}, "Value", this.#typed));
    }
  }

  show() {
    const tensor = this.#spec.kind === "tensor";
    const about = tensor ? `${this.#spec.dtype}, ${shape(this.dims)}` : KINDS[this.#spec.kind];
    this.legend.textContent = `${this.#name}: ${about}`;
    if (!tensor) return;
    this.#typed.hidden = this.#fill.value !== "typed";
    this.#file.hidden = this.#fill.value !== "file";
  }

  async argument() {
    if (this.#spec.kind !== "tensor") return this.#typed.valueAsNumber;
    const { dtype } = this.#spec;
    const size = count(this.dims);
    if (this.#fill.value === "file") return this.#fromFile();
    if (this.#fill.value === "typed") return { data: this.#numbers(size), dims: this.dims };
    const item = { random: () => random(dtype), zeros: () => 0, ones: () => 1 }[this.#fill.value];
    return { data: Array.from({ length: size }, item), dims: this.dims };
  }

  #numbers(size) {
    const words = this.#typed.value.split(/[\s,;[\]()]+/).filter(Boolean);
    const wrong = words.find((word) => Number.isNaN(Number(word)) && !/^[+-]?(nan|inf)$/i.test(word));
    if (wrong) throw this.#inputError(`expected numbers, got "${wrong}"`);
    if (words.length !== size && words.length !== 1)
      throw this.#inputError(`expected ${plural(size, "number")}, or 1 for all, got ${words.length}`);
    const numbers = words.map((word) => Number(word.replace(/inf$/i, "Infinity")));
    return words.length === 1 ? new Array(size).fill(numbers[0]) : numbers;
  }

  async #fromFile() {
    const [file] = this.#file.files;
    if (!file) throw this.#inputError("expected a .npy file, got none");
    let array;
    try {
      array = readNpy(await file.arrayBuffer());
    } catch (error) {
      throw this.#inputError(`${file.name}: ${error.message}`);
    }
    if (array.dims.join() !== this.dims.join())
      throw this.#inputError(`${file.name}: expected shape ${shape(this.dims)}, got ${shape(array.dims)}`);
    return array;
  }

  #inputError(message) {
    return Object.assign(new Error(`${this.#name}: ${message}.`), { code: "input" });
  }
}

/** Return minimum, mean and maximum of an array, and the count of NaN and infinite numbers. */
function statistics(data) {
  let [min, max, sum, notFinite] = [Infinity, -Infinity, 0, 0];
  for (const item of data) {
    const number = Number(item);
    if (!Number.isFinite(number)) notFinite += 1;
    else {
      min = Math.min(min, number);
      max = Math.max(max, number);
      sum += number;
    }
  }
  const finite = data.length - notFinite;
  const statistics = finite ? { minimum: short(min), mean: short(sum / finite), maximum: short(max) } : {};
  return notFinite ? { ...statistics, "NaN or infinite": String(notFinite) } : statistics;
}

function card(output, name) {
  if (typeof output !== "object")
    return make("article", { className: "card" }, make("h2", { textContent: `${name}: ${output}` }));
  const { data, dims, dtype } = output;
  const list = make("dl");
  for (const [term, value] of Object.entries(statistics(data)))
    list.append(
      make("div", {}, make("dt", { textContent: term }), make("dd", { className: "numbers", textContent: value })),
    );
  const first = Array.from(data.slice(0, 24), (item) => short(Number(item))).join(", ");
  return make(
    "article",
    { className: "card" },
    make("h2", { textContent: `${name}: ${dtype}, ${shape(dims)}` }),
    list,
    make("p", { className: "numbers", textContent: first + (data.length > 24 ? ", …" : "") }),
    make(
      "div",
      { className: "row" },
      make("button", {
        type: "button",
        textContent: "Download as .npy",
        onclick: () => save(`${name.replace(/\W+/g, "_").toLowerCase()}.npy`, writeNpy(output)),
      }),
    ),
  );
}

class Form {
  #root;
  #part;
  #model;
  #fields = [];
  #methods;
  #busy = false;

  constructor(root, model) {
    this.#root = root;
    this.#part = parts(root);
    this.#model = model;
    this.#methods = model.info.methods;
    const { form, method, shapes } = this.#part;
    method.append(...Object.keys(this.#methods).map((name) => make("option", { textContent: name })));
    this.#part.whichMethod.hidden = method.length < 2;
    method.onchange = () => this.#showInputs();
    shapes.onchange = () => this.#showShapes();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    this.#showInputs();
    form.hidden = false;
    this.#part.run.focus();
  }

  #bundledShapes() {
    return this.#model.info.shapes?.[this.#part.method.value] ?? [];
  }

  #showInputs() {
    const { method, shapes, inputs, whichShapes } = this.#part;
    this.#fields = this.#methods[method.value].inputs.map((spec) => new Field(spec));
    inputs.replaceChildren(...this.#fields.map((field) => field.element));
    shapes.replaceChildren(
      ...this.#bundledShapes().map((set, value) =>
        make("option", { value: String(value), textContent: set.map(shape).join(", ") }),
      ),
    );
    whichShapes.hidden = shapes.length < 2;
    this.#showShapes();
  }

  #showShapes() {
    const set = this.#bundledShapes()[this.#part.shapes.value];
    for (const [number, field] of this.#fields.entries()) {
      if (set?.[number]) field.dims = set[number];
      field.show();
    }
  }

  async #run() {
    if (this.#busy) return;
    const { error: errorBox, time, outputs, method } = this.#part;
    this.#busy = errorBox.hidden = true;
    time.textContent = "Running …";
    try {
      const args = await Promise.all(this.#fields.map((field) => field.argument()));
      const started = performance.now();
      const results = await this.#model.run(args, { method: method.value });
      time.textContent = `${short(performance.now() - started)} ms`;
      const specs = this.#methods[method.value].outputs;
      outputs.replaceChildren(...results.map((output, number) => card(output, specs[number].name)));
      announce(this.#root, `Done: ${plural(results.length, "output")}.`);
    } catch (error) {
      time.textContent = "";
      showError(errorBox, error);
    }
    this.#busy = false;
  }
}

export async function start(page) {
  new Form(page.root, await loadModel(page));
}
