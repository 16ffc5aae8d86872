/** The server's models, with the interface of a loaded bundle: the page talks to them by OpenAI's API. */

import { make, parts } from "./shared.js";

const RETRY_MS = 1000; // while the server loads its models
const KEY = "webpte api key"; // of this tab only

const headers = () => {
  const key = sessionStorage.getItem(KEY);
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

class ServerError extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** Return the response to a request; throw what the server says if it fails. Ask for an API key if it needs one. */
async function request(path, options = {}) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: headers() });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ServerError("The server does not answer. Is it running?", "server");
    }
    if (response.ok) return response;
    const body = await response.json().catch(() => ({}));
    const message = body.error?.message ?? `The server answered with status ${response.status}.`;
    const key = response.status === 401 ? prompt(`${message}\nAPI key:`) : null;
    if (!key) throw new ServerError(message, body.error?.code === "loading" ? "loading" : "server");
    sessionStorage.setItem(KEY, key);
  }
}

/** Yield the objects of a stream of server-sent events. */
async function* events(response) {
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new ServerError(event.error.message, "server");
      yield event;
    }
  }
}

/** One of the server's language models. Its parts are those of a bundle's model that the page uses. */
class ServerModel extends EventTarget {
  #select;
  #models;

  constructor(models, select) {
    super();
    this.#models = models;
    this.#select = select;
    this.chat = { completions: { create: (fields) => this.#create(fields) } };
  }

  get name() {
    return this.#select.value;
  }

  get info() {
    const model = this.#models.find(({ id }) => id === this.name);
    return { language: { ...model, context_length: model.context } };
  }

  get adapter() {
    return { description: location.host };
  }

  async #create({ signal, return_progress, ...fields }) {
    const body = JSON.stringify({ model: this.name, ...fields });
    const response = await request("v1/chat/completions", { method: "POST", body, signal });
    // The server knows the context of a model once it is loaded.
    if (this.info.language.context_length === undefined) this.#models = await languageModels(signal);
    return events(response);
  }
}

/** Return the address and a first request, for other programs. */
function forPrograms(model) {
  const url = new URL("v1", location.href).href;
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello!" }] });
  const code = (text) => make("pre", {}, make("code", { textContent: text }));
  return [
    make("p", {}, "Address for clients of OpenAI's API: ", make("code", { textContent: url })),
    code(`curl ${url}/chat/completions \\\n  -d '${body.replaceAll("'", "'\\''")}'`),
  ];
}

async function languageModels(signal) {
  const list = await (await request("v1/models", { signal })).json();
  return list.data.filter(({ kind }) => kind === "language");
}

const pause = (signal) =>
  new Promise((resolve, reject) => {
    setTimeout(resolve, RETRY_MS);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });

/** Wait until the server has loaded its models, and return the first. The page gets a choice of models. */
export async function connect(root, { signal, onProgress }) {
  const { settings, name } = parts(root);
  let models;
  while (!models) {
    try {
      models = await languageModels(signal);
    } catch (error) {
      if (error.code !== "loading") throw error;
      onProgress({ stage: "server" });
      await pause(signal);
    }
  }
  if (!models.length) throw new ServerError("The server has no language model.", "server");
  const select = make("select", { ariaLabel: "Model" }, ...models.map(({ id }) => make("option", { textContent: id })));
  const details = make("details", {}, make("summary", { textContent: "Use it from programs" }));
  const show = () => {
    details.replaceChildren(details.firstChild, make("div", { className: "card" }, ...forPrograms(select.value)));
    document.title = name.textContent = select.value;
  };
  select.value = (models.find(({ state }) => state !== "failed") ?? models[0]).id;
  select.onchange = show;
  show();
  if (models.length > 1) name.after(select);
  settings.after(details);
  return new ServerModel(models, select);
}
