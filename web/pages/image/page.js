/** Run a vision program on an image, and show the most probable labels, maps, or numbers. */
import { announce, loadModel, make, parts, short, showError } from "./shared.js";

const TOP_CLASSES = 5;

/** Return f32 (1, 3, height, width) of an image, scaled to cover the program's size, and cropped to its center. */
function pixels(bitmap, { height, width, mean, std }) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const scale = Math.max(width / bitmap.width, height / bitmap.height);
  const [wide, high] = [bitmap.width * scale, bitmap.height * scale];
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff"; // under transparent pixels
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, (width - wide) / 2, (height - high) / 2, wide, high);
  const { data } = context.getImageData(0, 0, width, height);
  const area = width * height;
  const planes = new Float32Array(3 * area);
  for (let at = 0; at < area; at += 1)
    for (let channel = 0; channel < 3; channel += 1)
      planes[channel * area + at] = (data[4 * at + channel] / 255 - mean[channel]) / std[channel];
  return { data: planes, dims: [1, 3, height, width], canvas };
}

/** Return a sentence about what is done to an image before the model gets it. */
function describeSteps({ height, width, mean, std }) {
  const list = (numbers) => (new Set(numbers).size === 1 ? numbers.slice(0, 1) : numbers).map(short).join(", ");
  const identity = mean.every((value) => value === 0) && std.every((value) => value === 1);
  const numbers = identity ? "from 0 to 1" : `from 0 to 1, less ${list(mean)}, divided by ${list(std)}`;
  const size = `${width} × ${height} pixels`;
  return `An image is scaled to cover ${size} and cropped to its center. Its colors are numbers ${numbers}.`;
}

/** Return the probabilities of logits; a distribution is returned unchanged. */
function probabilities(scores) {
  const sum = scores.reduce((total, score) => total + score, 0);
  if (scores.every((score) => score >= 0) && Math.abs(sum - 1) < 1e-3) return scores;
  const max = scores.reduce((a, b) => Math.max(a, b));
  const powers = scores.map((score) => Math.exp(score - max));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

function ranking({ data }, labels) {
  const classes = Array.from(probabilities(Float32Array.from(data)), (probability, number) => ({
    probability,
    number,
  }));
  classes.sort((a, b) => b.probability - a.probability);
  const body = make("tbody");
  for (const { probability, number } of classes.slice(0, TOP_CLASSES)) {
    const meter = make("meter", { value: probability });
    meter.setAttribute("aria-hidden", "true"); // the number beside it is the same
    body.append(
      make(
        "tr",
        {},
        make("th", { scope: "row", textContent: labels[number] ?? `class ${number}` }),
        make("td", { className: "share" }, meter),
        make("td", { className: "numbers", textContent: `${(100 * probability).toFixed(1)} %` }),
      ),
    );
  }
  return make("table", {}, make("caption", { className: "unseen", textContent: "Most probable first" }), body);
}

/** Return the planes of an output as greyscale maps, from the minimum to the maximum. */
function maps({ data, dims }) {
  const [height, width] = dims.slice(-2);
  const area = height * width;
  const figures = [];
  for (let plane = 0; plane < Math.min(3, data.length / area); plane += 1) {
    const numbers = Array.from(data.slice(plane * area, (plane + 1) * area), Number);
    const [min, max] = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
    const canvas = make("canvas", { className: "map", width, height, role: "img" });
    canvas.setAttribute("aria-label", `Plane ${plane}`);
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    numbers.forEach((number, at) =>
      image.data.set([...Array(3).fill((255 * (number - min)) / (max - min || 1)), 255], 4 * at),
    );
    context.putImageData(image, 0, 0);
    figures.push(
      make("figure", {}, canvas, make("figcaption", { textContent: `plane ${plane}, ${short(min)} to ${short(max)}` })),
    );
  }
  return make("div", { className: "row" }, ...figures);
}

/** Return an output as classes, maps, or its first numbers. */
function outputCard(output, number, labels) {
  const { data, dims } = output;
  const rank = dims.filter((dim) => dim > 1).length;
  const heading = make("h2", {
    textContent: labels.length && number === 0 ? "Most probable" : `Output ${number}: ${dims.join(" × ")}`,
  });
  const classes = rank === 1 && dims.length <= 2 && (number === 0 || !labels.length);
  const map = dims.length >= 3 && dims.at(-1) > 3 && dims.at(-2) > 3;
  const first =
    Array.from(data.slice(0, 16), (item) => short(Number(item))).join(", ") + (data.length > 16 ? ", …" : "");
  const body = classes
    ? ranking(output, labels)
    : map
      ? maps(output)
      : make("p", { className: "numbers", textContent: first });
  return make("article", { className: "card" }, heading, body);
}

class Images {
  #root;
  #part;
  #model = null;
  #labels = [];
  #queuedFile = null;

  constructor(root) {
    this.#root = root;
    this.#part = parts(root);
    const { drop, file, choose } = this.#part;
    choose.onclick = () => file.click();
    file.onchange = () => this.#take(file.files[0]);
    drop.addEventListener("dragover", (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      this.#take(event.dataTransfer.files[0]);
    });
    root.addEventListener("paste", (event) =>
      this.#take([...event.clipboardData.files].find(({ type }) => type.startsWith("image/"))),
    );
  }

  async ready(model) {
    this.#model = model;
    const { labels } = model.info.image;
    this.#part.steps.textContent = describeSteps(model.info.image);
    this.#part.steps.hidden = false;
    if (labels)
      this.#labels = new TextDecoder()
        .decode(await model.bytes(labels))
        .split("\n")
        .map((label) => label.trim());
    await this.#take(this.#queuedFile);
  }

  async #take(file) {
    if (!file) return;
    if (!this.#model) {
      this.#queuedFile = file; // until the model has loaded
      return;
    }
    const { error: errorBox, outputs, time } = this.#part;
    try {
      const image = await this.#read(file);
      const began = performance.now();
      const results = await this.#model.run([{ data: image.data, dims: image.dims }]);
      time.textContent = `${short(performance.now() - began)} ms`;
      outputs.replaceChildren(...results.map((output, number) => outputCard(output, number, this.#labels)));
      errorBox.hidden = true;
      announce(this.#root, outputs.innerText);
    } catch (error) {
      showError(errorBox, error);
    }
  }

  async #read(file) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      throw Object.assign(
        new Error(`${file.name}: expected an image that this browser can decode. Choose another file.`),
        { code: "input" },
      );
    }
    const image = pixels(bitmap, this.#model.info.image);
    const { preview, ask } = this.#part;
    [preview.width, preview.height] = [image.canvas.width, image.canvas.height];
    preview.getContext("2d").drawImage(image.canvas, 0, 0);
    preview.setAttribute("aria-label", `${file.name}, as the model sees it`);
    ask.hidden = true;
    bitmap.close();
    return image;
  }
}

export async function start(page) {
  const images = new Images(page.root);
  await images.ready(await loadModel(page));
}
