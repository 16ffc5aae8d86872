/** Shared by all pages: loading with progress, error messages, and helpers for the document. */

/** Return the elements of a page by id. */
export const parts = (root) =>
  Object.fromEntries([...root.querySelectorAll("[id]")].map((element) => [element.id, element]));

/** Return a new element with these properties and children. Text is never parsed as HTML. */
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

/** Return a count with its noun. */
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Return a number with at most four digits. */
export const short = (number) => (Number.isInteger(number) ? String(number) : Number(number.toPrecision(4)).toString());

/** Announce a text to screen readers. */
export function announce(root, text) {
  root.getElementById("announcer").textContent = text;
}

/** Download a file. */
export function save(name, data, type = "application/octet-stream") {
  const link = make("a", { href: URL.createObjectURL(new Blob([data], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const COPIED_MS = 2000; // how long a button shows that it has copied

/** Return a button that copies a text. */
export function copyButton(label, textOf) {
  const button = make("button", { type: "button", className: "copy", textContent: label });
  button.hidden = !navigator.clipboard; // pages that are not secure have none
  button.onclick = async () => {
    const done = await navigator.clipboard.writeText(textOf()).then(
      () => "Copied",
      () => "Not allowed",
    );
    button.textContent = done;
    announce(button.getRootNode(), done);
    setTimeout(() => (button.textContent = label), COPIED_MS);
  };
  return button;
}

const THEME = "webpte theme"; // of this origin's pages, in this browser
const THEMES = { "": "System theme", light: "Light theme", dark: "Dark theme" };

/** Offer the choice of a theme, and use the one that was chosen before. */
export function offerThemes() {
  const options = Object.entries(THEMES).map(([value, textContent]) => make("option", { value, textContent }));
  const select = make("select", { ariaLabel: "Theme" }, ...options);
  const use = (theme) => (document.documentElement.dataset.theme = select.value = theme in THEMES ? theme : "");
  select.onchange = () => {
    use(select.value);
    try {
      localStorage.setItem(THEME, select.value);
    } catch {
      // no storage: for this visit
    }
  };
  try {
    use(localStorage.getItem(THEME) ?? "");
  } catch {
    use("");
  }
  (document.getElementById("tools") ?? document.querySelector("header")).append(select);
}

export const adapterName = (adapter) =>
  [adapter?.description, [adapter?.vendor, adapter?.architecture].filter(Boolean).join(" "), "unnamed GPU"].find(
    Boolean,
  );

// -- errors ---------------------------------------------------------------------------------------------------------

const BROWSERS = [
  [/firefox/i, "Update Firefox (to 141 on Windows, 145 on a Mac), or set dom.webgpu.enabled in about:config to true."],
  [/iphone|ipad/i, "Update to iOS 26."],
  [/chrome/i, "Update the browser (to 113, or 121 on Android), and turn on graphics acceleration in its settings."],
  [/safari/i, "Update to Safari 26."],
  [/./, ""],
];

function webgpuFix() {
  if (!isSecureContext) return "Browsers provide it to secure pages only: open this page over https or on localhost.";
  const [, fix] = BROWSERS.find(([name]) => name.test(navigator.userAgent));
  return `${fix} Current versions of Chrome and Edge have it.`;
}

/** Titles, and a fix that the message does not contain. */
const ERRORS = {
  "webgpu-missing": ["This browser has no WebGPU", webgpuFix],
  "no-adapter": ["No GPU found", () => "Then restart the browser. If that does not help, update the GPU driver."],
  unsupported: ["This GPU cannot run the model", () => "Try another device, browser or driver."],
  damaged: ["A file is damaged", () => "It was not stored."],
  server: ["The server cannot answer", () => ""],
  network: ["The download failed", () => "Downloaded files are stored. The download continues with the missing ones."],
  aborted: ["Stopped", () => "Downloaded files are stored. The download continues with the missing ones."],
  "device-lost": ["The GPU was reset", () => "Close other pages that use the GPU."],
  "out-of-memory": ["The GPU has not enough memory", () => "Close other tabs and programs that use the GPU."],
  input: ["Invalid input"],
  shape: ["These shapes were not bundled"],
};
const NO_GPU = ["webgpu-missing", "no-adapter", "unsupported"]; // the model cannot run in this browser

/** Return the title of an error. */
export const titleOf = (error) => (ERRORS[error?.code] ?? ["Error"])[0];

/** Show an error, with a button if there is something to click. */
export function showError(place, error, label, onclick) {
  const paused = error?.code === "aborted"; // not an error: loading waits for a click
  const words = [make("h2", { textContent: titleOf(error) })];
  // The fix of webgpu-missing depends on the browser, and replaces the general one in the message.
  if (!paused && error?.code !== "webgpu-missing")
    words.push(make("p", { textContent: error?.message ?? String(error) }));
  words.push(make("p", { className: "quiet", textContent: ERRORS[error?.code]?.[1]?.() ?? "" }));
  if (label)
    words.push(make("div", { className: "row" }, make("button", { type: "button", textContent: label, onclick })));
  place.className = paused ? "card" : "card bad";
  place.setAttribute("role", "alert");
  place.replaceChildren(...words.filter((part) => part.textContent));
  place.hidden = false;
}

// -- loading --------------------------------------------------------------------------------------------------------

const NOTE_MS = 8000; // how long a finished recovery is shown
const STAGES = {
  manifest: () => "Loading the list of files …",
  weights: ({ done, total, cached, secondsLeft, damagedFile }) =>
    (damagedFile ? `${damagedFile} was damaged and is downloaded again. ` : "") +
    (cached && cached === done ? "Loading the model from this device: " : "Downloading the model: ") +
    `${bytes(done)} of ${bytes(total)}` +
    (secondsLeft ? `, ${duration(secondsLeft)} left` : ""),
  compile: ({ done, total }) => `Compiling for the GPU: ${done} of ${plural(total, "kernel")}`,
  recover: () => "The GPU was reset. Loading again from this device …",
  server: () => "The server is loading its models …",
  ready: () => "Ready",
};

/** Return a function that shows progress in `place`. It announces stages and quarters only. */
function progressBar(root, place, cancel) {
  const words = make("p");
  const line = make("progress", { max: 1 });
  line.setAttribute("aria-label", "Loading");
  const stop = make("button", { type: "button", textContent: "Cancel", onclick: cancel });
  place.className = "card";
  place.removeAttribute("role");
  place.replaceChildren(words, line, make("div", { className: "row" }, stop));
  place.hidden = false;
  let announced = "";
  return (progress) => {
    const share = progress.total ? progress.done / progress.total : 0;
    words.textContent = (STAGES[progress.stage] ?? STAGES.manifest)(progress);
    if (progress.total) line.value = share;
    else line.removeAttribute("value");
    const quarter = `${progress.stage}${Math.floor(share * 4)}`;
    if (quarter !== announced) announce(root, words.textContent);
    announced = quarter;
  };
}

const ASK_BYTES = 2e6; // a smaller download needs no permission

/** Ask before a download, and return after a click; at once if the weights are stored here, or are few. */
async function askToDownload(root, inspect) {
  const { load: place, name: heading } = parts(root);
  const saveData = navigator.connection?.saveData === true;
  const about = await inspect().catch(() => null); // the load reports the error
  if (!about) return;
  const { name, bytes: total, cached } = about;
  heading.textContent = name;
  if (root === document) document.title = name;
  if (total - cached <= (saveData ? 0 : ASK_BYTES)) return;
  const words = [
    make("h2", { textContent: `${name}, ${bytes(total - cached)}` }),
    make("p", { textContent: "The model is downloaded once and stays on this device." }),
    make("p", { className: "quiet", textContent: saveData ? "This browser is set to save data." : "" }),
    make("p", { className: "quiet", textContent: cached ? `${bytes(cached)} of it are stored here already.` : "" }),
  ];
  const load = make("button", { type: "button", className: "main", textContent: "Load" });
  place.className = "card";
  place.replaceChildren(...words.filter((part) => part.textContent), make("div", { className: "row" }, load));
  await new Promise((resolve) => {
    load.onclick = resolve;
  });
}

const clicked = (place, error, label) => new Promise((resolve) => showError(place, error, label, resolve));

/** Load and return the model, with progress, a button to cancel, and a button to try again after an error. */
export async function loadModel({ root, load, inspect }) {
  const { load: place, name, adapter, lost } = parts(root);
  if (inspect) await askToDownload(root, inspect);
  for (;;) {
    const abort = new AbortController();
    const onProgress = progressBar(root, place, () => abort.abort());
    onProgress({ stage: "manifest" });
    try {
      const model = await load({ signal: abort.signal, onProgress });
      place.hidden = true;
      name.textContent = model.name;
      if (root === document) document.title = model.name;
      adapter.textContent = adapterName(model.adapter);
      showLosses(root, model, lost);
      return model;
    } catch (error) {
      const inputs = NO_GPU.includes(error?.code) ? [...root.querySelectorAll(".needs-model:not([hidden])")] : [];
      for (const element of inputs) element.hidden = true;
      await clicked(place, error, error?.code === "aborted" ? "Continue" : "Try again");
      for (const element of inputs) element.hidden = false;
    }
  }
}

/** Show when the GPU is lost, which interrupts the model, and when it is replaced. */
function showLosses(root, model, place) {
  const show = (text) => {
    place.textContent = text;
    place.hidden = !text;
    if (text) announce(root, text);
  };
  model.addEventListener("lost", () => show("The GPU was reset. The model is being loaded again from this device …"));
  model.addEventListener("recovered", () => {
    show("The GPU was reset. The model is ready again.");
    setTimeout(() => show(""), NOTE_MS);
  });
}
