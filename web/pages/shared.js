/** What all pages share: loading with progress, errors in words, and small helpers for the document. */

/** The elements of a page, by id. */
export const parts = (root) =>
  Object.fromEntries([...root.querySelectorAll("[id]")].map((element) => [element.id, element]));

/** An element with these properties and children. Text stays text: nothing here reads HTML. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function bytes(count) {
  if (count < 1e6) return `${Math.ceil(count / 1e3)} kB`;
  return count < 1e9 ? `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} MB` : `${(count / 1e9).toFixed(2)} GB`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** A number for people: four digits, no more. */
export const short = (number) => (Number.isInteger(number) ? String(number) : Number(number.toPrecision(4)).toString());

/** Say it to those who cannot see the page. */
export function say(root, text) {
  root.getElementById("said").textContent = text;
}

/** Let the browser save a file. */
export function save(name, data, type = "application/octet-stream") {
  const link = make("a", { href: URL.createObjectURL(new Blob([data], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export const adapterName = (adapter) =>
  [adapter?.description, [adapter?.vendor, adapter?.architecture].filter(Boolean).join(" "), "unnamed GPU"].find(
    Boolean,
  );

// -- errors ---------------------------------------------------------------------------------------------------------

const BROWSERS = [
  [/firefox/i, "Update Firefox (141 on Windows, 145 on a Mac), or set dom.webgpu.enabled in about:config to true."],
  [/iphone|ipad/i, "Update to iOS 26."],
  [/chrome/i, "Update the browser (113, on Android 121), and turn on graphics acceleration in its settings."],
  [/safari/i, "Update to Safari 26."],
  [/./, ""],
];

function webgpuRemedy() {
  if (!isSecureContext) return "Browsers offer it to secure pages only: open this one by https:// or on localhost.";
  const [, remedy] = BROWSERS.find(([name]) => name.test(navigator.userAgent));
  return `${remedy} Chrome or Edge are likely to have it.`;
}

/** Titles, and what to do where the message itself does not say it. */
const ERRORS = {
  "webgpu-missing": ["This browser has no WebGPU", webgpuRemedy],
  "no-adapter": [
    "No GPU for WebGPU",
    () => "Turn on graphics acceleration, restart the browser, or update the driver.",
  ],
  unsupported: ["This GPU cannot run it", () => "Another device, browser or driver may."],
  damaged: ["A file arrived damaged", () => "Nothing of it was kept."],
  network: ["The download broke off", () => "What has arrived is kept: it goes on from there."],
  aborted: ["Stopped", () => "What has arrived is kept: it goes on from there."],
  "save-data": ["This browser is set to save data", () => "The model is downloaded once and then kept on this device."],
  "device-lost": ["The GPU was reset", () => "Close other pages that use it."],
  "out-of-memory": ["The GPU has too little memory", () => "Close other tabs and programs that use it."],
  input: ["That does not work"],
  shape: ["There is no plan for these shapes"],
};
const CALM = ["aborted", "save-data"]; // not errors, but waiting for a click

/** What went wrong, in a few words. */
export const titleOf = (error) => (ERRORS[error?.code] ?? ["Something went wrong"])[0];

/** Show an error in words, with a button if there is something to click. */
export function complain(place, error, label, onclick) {
  const calm = CALM.includes(error?.code);
  const words = [make("h2", { textContent: titleOf(error) })];
  if (!calm) words.push(make("p", { textContent: error?.message ?? String(error) }));
  words.push(make("p", { className: "quiet", textContent: ERRORS[error?.code]?.[1]?.() ?? "" }));
  if (label)
    words.push(make("div", { className: "row" }, make("button", { type: "button", textContent: label, onclick })));
  place.className = calm ? "card" : "card bad";
  place.setAttribute("role", "alert");
  place.replaceChildren(...words.filter((part) => part.textContent));
  place.hidden = false;
}

// -- loading --------------------------------------------------------------------------------------------------------

const STAGES = {
  manifest: () => "Reading what there is to load …",
  weights: ({ done, total, cached, secondsLeft, damagedFile }) =>
    (damagedFile ? `${damagedFile} was damaged and is downloaded again. ` : "") +
    (cached && cached === done ? "Reading the model from this device: " : "Downloading the model: ") +
    `${bytes(done)} of ${bytes(total)}` +
    (secondsLeft ? `, ${duration(secondsLeft)} left` : ""),
  compile: ({ done, total }) => `Preparing the GPU: ${done} of ${total} kernels`,
  recover: () => "The GPU was reset: loading again from this device …",
  ready: () => "Ready",
};

/** A function that shows progress in `place`: words and a bar. Screen readers hear of stages and quarters only. */
function bar(root, place, cancel) {
  const words = make("p");
  const line = make("progress", { max: 1 });
  line.setAttribute("aria-label", "Loading");
  const stop = make("button", { type: "button", textContent: "Cancel", onclick: cancel });
  place.className = "card";
  place.removeAttribute("role");
  place.replaceChildren(words, line, make("div", { className: "row" }, stop));
  place.hidden = false;
  let told = "";
  return (progress) => {
    const share = progress.total ? progress.done / progress.total : 0;
    words.textContent = (STAGES[progress.stage] ?? STAGES.manifest)(progress);
    if (progress.total) line.value = share;
    else line.removeAttribute("value");
    const quarter = `${progress.stage}${Math.floor(share * 4)}`;
    if (quarter !== told) say(root, words.textContent);
    told = quarter;
  };
}

const asked = (place, error, label) => new Promise((resolve) => complain(place, error, label, resolve));

/** Load the model, with progress, cancel and another try after whatever went wrong. */
export async function begin({ root, load }) {
  const { load: place, name, adapter, lost } = parts(root);
  if (navigator.connection?.saveData) await asked(place, { code: "save-data" }, "Load the model");
  for (;;) {
    const abort = new AbortController();
    const onProgress = bar(root, place, () => abort.abort());
    onProgress({ stage: "manifest" });
    try {
      const model = await load({ signal: abort.signal, onProgress });
      place.hidden = true;
      name.textContent = model.name;
      if (root === document) document.title = model.name;
      adapter.textContent = adapterName(model.adapter);
      watch(root, model, lost);
      return model;
    } catch (error) {
      await asked(place, error, error?.code === "aborted" ? "Go on" : "Try again");
    }
  }
}

/** A lost GPU comes back by itself; people should know why it took a while. */
function watch(root, model, place) {
  const tell = (text) => {
    place.textContent = text;
    place.hidden = !text;
    if (text) say(root, text);
  };
  model.addEventListener("lost", () => tell("The GPU was reset. The model is being loaded again from this device …"));
  model.addEventListener("recovered", () => {
    tell("The GPU was reset and is back.");
    setTimeout(() => tell(""), 8000);
  });
}
