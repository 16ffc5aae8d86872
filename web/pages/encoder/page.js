/** Semantic search: texts and query are embedded on this device, and sorted by similarity. */
import { loadModel, make, parts, plural, showError } from "./shared.js";

const PAUSE_MS = 150; // without a key, before a query is embedded
const BATCH_SIZE = 8; // texts, so that a long list shows its progress

const dot = (one, other) => one.reduce((sum, value, at) => sum + value * other[at], 0);

/** Return a unit vector: the dot product of two is the cosine of their angle. */
function unit(vector) {
  const length = Math.sqrt(dot(vector, vector)) || 1;
  return vector.map((value) => value / length);
}

class Search {
  #part;
  #model = null;
  #vectors = new Map();
  #timer;
  #abort = null;

  constructor(root) {
    this.#part = parts(root);
    const { form, query, texts } = this.#part;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#schedule(0);
    });
    query.oninput = texts.oninput = () => this.#schedule(PAUSE_MS);
  }

  ready(model) {
    this.#model = model;
    this.#schedule(0);
    this.#part.query.focus();
  }

  #schedule(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#search(), pause);
  }

  async #search() {
    if (!this.#model) return;
    this.#abort?.abort(); // of the previous query
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    const { query, texts, error: errorBox } = this.#part;
    const lines = [
      ...new Set(
        texts.value
          .split("\n")
          .map((line) => line.trim())
          .filter(Boolean),
      ),
    ];
    const question = query.value.trim();
    try {
      if (!question || !lines.length) return this.#show([], question ? "Enter texts to search." : "Enter a query.");
      await this.#embed([question, ...lines], signal);
      const target = this.#vectors.get(question);
      const results = lines.map((text) => ({ text, score: dot(target, this.#vectors.get(text)) }));
      this.#evict(new Set([...lines, question]));
      errorBox.hidden = true;
      this.#show(
        results.sort((a, b) => b.score - a.score),
        `${plural(results.length, "text")}, most similar first`,
      );
    } catch (error) {
      if (!signal.aborted) showError(errorBox, error);
    }
  }

  /** Embed the texts without a vector. */
  async #embed(texts, signal) {
    const missing = texts.filter((text) => !this.#vectors.has(text));
    for (let at = 0; at < missing.length; at += BATCH_SIZE) {
      if (missing.length > BATCH_SIZE) this.#part.state.textContent = `Embedding the texts: ${at} of ${missing.length}`;
      const batch = missing.slice(at, at + BATCH_SIZE);
      const vectors = await this.#model.embed(batch, { signal });
      batch.forEach((text, number) => this.#vectors.set(text, unit(vectors[number])));
      if (signal.aborted) throw signal.reason;
    }
  }

  #evict(kept) {
    for (const text of this.#vectors.keys()) if (!kept.has(text)) this.#vectors.delete(text);
  }

  #show(results, state) {
    this.#part.state.textContent = state;
    this.#part.results.replaceChildren(
      ...results.map(({ text, score }) => {
        const meter = make("meter", { min: 0, max: 1, value: Math.max(0, score) });
        meter.setAttribute("aria-hidden", "true"); // the number beside it is the same
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
  search.ready(await loadModel(page));
}
