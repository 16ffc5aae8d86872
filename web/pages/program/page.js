/** A form for any program: a field for every input, and what comes out. */

import { readNpy, writeNpy } from "./npy.js";
import { begin, complain, make, parts, save, say, short } from "./shared.js";

const WHOLE = /^(i|u|bool)/;
const FILLS = { random: "random numbers", zeros: "zeros", ones: "ones", typed: "typed numbers", file: "a .npy file" };
const count = (dims) => dims.reduce((product, dim) => product * dim, 1);
const shape = (dims) => (dims.length ? dims.join(" × ") : "one number");

/** A normal deviate; a whole number below 2, which is a valid index into anything that has two rows. */
const random = (dtype) =>
  WHOLE.test(dtype)
    ? Math.floor(Math.random() * 2)
    : Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

/** One input of the program: its fieldset, and the argument that was asked for. */
class Field {
  #border;
  #fill;
  #typed;
  #file;

  constructor(border, number) {
    this.#border = border;
    this.dims = border.dims ?? [];
    this.#typed = make("textarea", { rows: 2, spellcheck: false, className: "numbers", placeholder: "1, 2.5, -3 …" });
    this.#typed.setAttribute("aria-label", `Numbers of input ${number}`);
    this.#fill = make("select");
    for (const [value, textContent] of Object.entries(FILLS)) this.#fill.append(make("option", { value, textContent }));
    this.#file = make("input", { type: "file", accept: ".npy" });
    this.#file.setAttribute("aria-label", `File of input ${number}`);
    this.legend = make("legend");
    this.element = make("fieldset", {}, this.legend);
    this.number = number;
    if (border.kind === "tensor") {
      this.element.append(make("label", {}, "Filled with", this.#fill), this.#typed, this.#file);
      this.#fill.onchange = () => this.show();
    } else {
      this.#typed = make("input", { type: "number", step: border.kind === "symfloat" ? "any" : "1", value: "0" });
      this.element.append(
        make(
          "label",
          {},
          { symint: "A whole number", symfloat: "A number", symbool: "0 or 1" }[border.kind],
          this.#typed,
        ),
      );
    }
  }

  show() {
    const tensor = this.#border.kind === "tensor";
    const about = tensor ? `${this.#border.dtype}, ${shape(this.dims)}` : this.#border.kind;
    this.legend.textContent = `Input ${this.number}: ${about}`;
    if (!tensor) return;
    this.#typed.hidden = this.#fill.value !== "typed";
    this.#file.hidden = this.#fill.value !== "file";
  }

  async argument() {
    if (this.#border.kind !== "tensor") return this.#typed.valueAsNumber;
    const { dtype } = this.#border;
    const size = count(this.dims);
    if (this.#fill.value === "file") return this.#fromFile();
    if (this.#fill.value === "typed") return { data: this.#numbers(size), dims: this.dims };
    const item = { random: () => random(dtype), zeros: () => 0, ones: () => 1 }[this.#fill.value];
    return { data: Array.from({ length: size }, item), dims: this.dims };
  }

  #numbers(size) {
    const words = this.#typed.value.split(/[\s,;[\]()]+/).filter(Boolean);
    const wrong = words.find((word) => Number.isNaN(Number(word)) && !/^[+-]?(nan|inf)$/i.test(word));
    if (wrong) throw this.#refused(`"${wrong}" is not a number`);
    if (words.length !== size && words.length !== 1)
      throw this.#refused(`${size} numbers are needed (or one for all), there are ${words.length}`);
    const numbers = words.map((word) => Number(word.replace(/inf$/i, "Infinity")));
    return words.length === 1 ? new Array(size).fill(numbers[0]) : numbers;
  }

  async #fromFile() {
    const [file] = this.#file.files;
    if (!file) throw this.#refused("choose a .npy file");
    let array;
    try {
      array = readNpy(await file.arrayBuffer());
    } catch (error) {
      throw this.#refused(`${file.name}: ${error.message}`);
    }
    if (array.dims.join() !== this.dims.join())
      throw this.#refused(`${file.name} is ${shape(array.dims)}, and ${shape(this.dims)} is needed`);
    return array;
  }

  #refused(message) {
    return Object.assign(new Error(`Input ${this.number}: ${message}.`), { code: "input" });
  }
}

/** What one looks at first in an array: least, mean, largest, and how many are no numbers. */
function statistics(data) {
  let [least, largest, sum, odd] = [Infinity, -Infinity, 0, 0];
  for (const item of data) {
    const number = Number(item);
    if (!Number.isFinite(number)) odd += 1;
    else {
      least = Math.min(least, number);
      largest = Math.max(largest, number);
      sum += number;
    }
  }
  const fine = data.length - odd;
  const shown = fine ? { least: short(least), mean: short(sum / fine), largest: short(largest) } : {};
  return odd ? { ...shown, "NaN or infinite": String(odd) } : shown;
}

function card(output, number) {
  if (typeof output !== "object")
    return make("article", { className: "card" }, make("h2", { textContent: `Output ${number}: ${output}` }));
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
    make("h2", { textContent: `Output ${number}: ${dtype}, ${shape(dims)}` }),
    list,
    make("p", { className: "numbers", textContent: first + (data.length > 24 ? ", …" : "") }),
    make(
      "div",
      { className: "row" },
      make("button", {
        type: "button",
        textContent: "Download as .npy",
        onclick: () => save(`output${number}.npy`, writeNpy(output)),
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
    method.onchange = () => this.#chosen();
    shapes.onchange = () => this.#shaped();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    this.#chosen();
    form.hidden = false;
    this.#part.run.focus();
  }

  #planned() {
    return this.#model.info.shapes?.[this.#part.method.value] ?? [];
  }

  #chosen() {
    const { method, shapes, inputs, whichShapes } = this.#part;
    this.#fields = this.#methods[method.value].inputs.map((border, number) => new Field(border, number));
    inputs.replaceChildren(...this.#fields.map((field) => field.element));
    shapes.replaceChildren(
      ...this.#planned().map((set, value) =>
        make("option", { value: String(value), textContent: set.map(shape).join(", ") }),
      ),
    );
    whichShapes.hidden = shapes.length < 2;
    this.#shaped();
  }

  #shaped() {
    const set = this.#planned()[this.#part.shapes.value];
    for (const [number, field] of this.#fields.entries()) {
      if (set?.[number]) field.dims = set[number];
      field.show();
    }
  }

  async #run() {
    if (this.#busy) return;
    const { wrong, time, outputs, method } = this.#part;
    this.#busy = wrong.hidden = true;
    time.textContent = "Running …";
    try {
      const args = await Promise.all(this.#fields.map((field) => field.argument()));
      const began = performance.now();
      const results = await this.#model.run(args, { method: method.value });
      time.textContent = `${short(performance.now() - began)} ms`;
      outputs.replaceChildren(...results.map(card));
      say(this.#root, `Done: ${results.length} ${results.length === 1 ? "output" : "outputs"}.`);
    } catch (error) {
      time.textContent = "";
      complain(wrong, error);
    }
    this.#busy = false;
  }
}

export async function start(page) {
  new Form(page.root, await begin(page));
}
