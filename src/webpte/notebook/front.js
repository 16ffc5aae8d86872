/**
 * A bundle's page inside a notebook. Files come over the widget's messages, piece by piece; modules of the page and the
 * player become blobs, each after those that it imports.
 */

const PIECE = 1 << 19; // bytes a message: some notebook servers drop what exceeds a rate
const PATIENCE = 5000; // milliseconds for a piece, before it counts as dropped
const TRIES = 6;
const RATE = 800; // bytes a millisecond, once a piece was dropped: Jupyter's server allows 1000 by default
const IMPORT = /((?:\bfrom|\bimport)\s*\(?\s*)"(\.[^"]+)"/g;
const FITTING = "main { min-height: 0; } #log { max-height: 24rem; } :host { display: block; border-radius: .5rem; }";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Pieces of files, asked for by number. Where one is dropped, those that follow are asked for at a slower pace. */
class Files {
  #model; #count = 0; #waiting = new Map(); #dropped = false; #last = 0; #turn = Promise.resolve();

  constructor(model) {
    this.#model = model;
    this.take = (content, buffers) => {
      this.#waiting.get(content.number)?.({ ...content, data: buffers[0] });
      this.#waiting.delete(content.number);
    };
    model.on("msg:custom", this.take);
  }

  /** {data, size} of a piece. One after the other, so that a rate can be kept. */
  piece(path, begin) {
    const asked = this.#turn.then(() => this.#piece(path, begin));
    this.#turn = asked.catch(() => {});
    return asked;
  }

  async #piece(path, begin) {
    for (let attempt = 1; attempt <= TRIES; attempt += 1) {
      if (this.#dropped) await pause(this.#last / RATE);
      const number = (this.#count += 1);
      const answer = new Promise((resolve) => this.#waiting.set(number, resolve));
      this.#model.send({ number, path, begin, end: begin + PIECE });
      const got = await Promise.race([answer, pause(PATIENCE)]);
      this.#waiting.delete(number);
      if (got?.error) throw new Error(got.error);
      if (got) {
        this.#last = got.data.byteLength;
        return { data: new Uint8Array(got.data.buffer, got.data.byteOffset, this.#last), size: got.size };
      }
      this.#dropped = true;
    }
    throw new Error(`The kernel gives no answer to "${path}". Is it running, and not busy?`);
  }

  /** A Response whose body is asked for as it is read. */
  async response(path, signal) {
    const first = await this.piece(path, 0);
    let at = 0;
    const body = new ReadableStream({
      pull: async (stream) => {
        signal?.throwIfAborted();
        const { data } = at ? await this.piece(path, at) : first;
        at += data.length;
        if (data.length) stream.enqueue(data.slice());
        if (at >= first.size) stream.close();
      },
    });
    return new Response(body);
  }

  async text(path) {
    return (await this.response(path)).text();
  }
}

/** The address of a module as a blob, with those that it imports. */
class Modules {
  #files; #addresses = new Map();

  constructor(files) {
    this.#files = files;
  }

  address(path) {
    if (!this.#addresses.has(path)) this.#addresses.set(path, this.#made(path));
    return this.#addresses.get(path);
  }

  async #made(path) {
    const text = await this.#files.text(path);
    const here = `https://bundle.invalid/${path}`;
    const wanted = [...text.matchAll(IMPORT)].map(([, , name]) => new URL(name, here).pathname.slice(1));
    const addresses = await Promise.all(wanted.map((name) => this.address(name)));
    const joined = text.replace(IMPORT, (_, words) => `${words}"${addresses.shift()}"`);
    return URL.createObjectURL(new Blob([joined], { type: "text/javascript" }));
  }

  import(path) {
    return this.address(path).then((address) => import(address));
  }

  async revoke() {
    for (const address of this.#addresses.values()) URL.revokeObjectURL(await address.catch(() => ""));
  }
}

async function sheet(text) {
  return new CSSStyleSheet().replace(text);
}

/** The page's body and styles, where nothing of the notebook reaches them. */
async function dressed(el, files, page) {
  const root = el.attachShadow({ mode: "open" });
  const styles = page.filter((name) => name.endsWith(".css"));
  const texts = await Promise.all(styles.map((name) => files.text(name)));
  root.adoptedStyleSheets = await Promise.all([...texts, FITTING].map(sheet));
  const html = new DOMParser().parseFromString(await files.text("index.html"), "text/html");
  root.append(document.importNode(html.querySelector("main"), true));
  for (const type of ["keydown", "keyup", "keypress", "paste"]) root.addEventListener(type, (e) => e.stopPropagation());
  return root;
}

async function render({ model, el }) {
  const files = new Files(model);
  const modules = new Modules(files);
  const place = el.appendChild(document.createElement("div"));
  let loaded = null;
  const base = `https://bundle.invalid/${model.get("digest")}/`; // a name for the local store; nothing is fetched there
  const fetch = (url, { signal }) => files.response(String(url).slice(base.length), signal);
  try {
    const root = await dressed(place, files, model.get("page"));
    const [{ load }, { start }] = await Promise.all([modules.import("player/src/index.js"), modules.import("page.js")]);
    const opened = async (options) => (loaded = await load(base, { ...options, fetch }));
    start({ root, load: opened }); // not waited for: it ends when the model is there
  } catch (error) {
    place.replaceWith(`webpte: ${error.message}`);
  }
  return () => {
    model.off("msg:custom", files.take);
    loaded?.dispose();
    modules.revoke();
  };
}

export default { render };
