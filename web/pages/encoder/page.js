/** Search by meaning: texts and query become vectors on this device, and the nearest come first. */
import { begin, complain, make, parts } from "./shared.js";

const PAUSE = 150; // milliseconds without a key before a query is embedded
const BATCH = 8; // texts at once, so that a long list shows its progress

const dot = (one, other) => one.reduce((sum, value, at) => sum + value * other[at], 0);

/** A unit vector, so that a product of two is the cosine of their angle. */
function unit(vector) {
  const length = Math.sqrt(dot(vector, vector)) || 1;
  return vector.map((value) => value / length);
}

class Search {
  #part;
  #model = null;
  #known = new Map();
  #timer;
  #abort = null;

  constructor(root) {
    this.#part = parts(root);
    const { form, query, texts } = this.#part;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#soon(0);
    });
    query.oninput = texts.oninput = () => this.#soon(PAUSE);
  }

  ready(model) {
    this.#model = model;
    this.#soon(0);
    this.#part.query.focus();
  }

  #soon(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#search(), pause);
  }

  async #search() {
    if (!this.#model) return;
    this.#abort?.abort(); // the newest question only
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const { query, texts, wrong } = this.#part;
    const lines = [
      ...new Set(
        texts.value
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean),
      ),
    ];
    const asked = query.value.trim();
    try {
      if (!asked || !lines.length)
        return this.#show([], asked ? "There are no texts to search." : "Type what to search for.");
      await this.#embed([asked, ...lines], signal);
      const wanted = this.#known.get(asked);
      const found = lines.map((text) => ({ text, score: dot(wanted, this.#known.get(text)) }));
      this.#forget(new Set([...lines, asked]));
      wrong.hidden = true;
      this.#show(
        found.sort((a, b) => b.score - a.score),
        `${found.length} texts, nearest in meaning first`,
      );
    } catch (error) {
      if (!signal.aborted) complain(wrong, error);
    }
  }

  /** Vectors of what has none yet. */
  async #embed(texts, signal) {
    const missing = texts.filter((text) => !this.#known.has(text));
    for (let at = 0; at < missing.length; at += BATCH) {
      if (missing.length > BATCH) this.#part.state.textContent = `Reading the texts: ${at} of ${missing.length}`;
      const batch = missing.slice(at, at + BATCH);
      const vectors = await this.#model.embed(batch, { signal });
      batch.forEach((text, number) => this.#known.set(text, unit(vectors[number])));
      if (signal.aborted) throw signal.reason;
    }
  }

  #forget(kept) {
    for (const text of this.#known.keys()) if (!kept.has(text)) this.#known.delete(text);
  }

  #show(found, state) {
    this.#part.state.textContent = state;
    this.#part.results.replaceChildren(
      ...found.map(({ text, score }) => {
        const meter = make("meter", { min: 0, max: 1, value: Math.max(0, score) });
        meter.setAttribute("aria-hidden", "true"); // the number beside it says the same
        return make(
          "li",
          { className: "card" },
          make("span", { textContent: text }),
          make("span", { className: "numbers", textContent: score.toFixed(3) }),
          meter,
        );
      }),
    );
  }
}

export async function start(page) {
  const search = new Search(page.root);
  search.ready(await begin(page));
}
