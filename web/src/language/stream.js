// Text on its way to a reader: stop strings must not leak, and pieces become one answer.

/** Keeps back text that may turn out to be the beginning of a stop string. */
export class Holder {
  #held = "";
  #stop;
  found = false;

  /** @param {string[]} stop */
  constructor(stop) {
    this.#stop = stop;
  }

  /** What of the text so far can be given out. @param {string} text */
  push(text) {
    this.#held += text;
    const places = this.#stop.map((stop) => this.#held.indexOf(stop)).filter((at) => at >= 0);
    this.found = places.length > 0;
    return this.#take(this.found ? Math.min(...places) : this.#held.length - this.#partial());
  }

  /** All that is held, at the end. @param {string} text */
  rest(text) {
    const out = this.push(text);
    return this.found ? out : out + this.#take(this.#held.length);
  }

  /** The length of the longest tail that begins a stop string. */
  #partial() {
    let longest = 0;
    for (const stop of this.#stop) {
      for (let length = Math.min(stop.length - 1, this.#held.length); length > longest; length--) {
        if (this.#held.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }

  /** @param {number} count */
  #take(count) {
    const out = this.#held.slice(0, count);
    this.#held = this.#held.slice(count);
    return out;
  }
}

/** The answer that chunks make together. @param {AsyncIterable<any>} chunks of one answer, with its usage */
export async function gather(chunks) {
  /** @type {any} */
  let answer;
  for await (const {
    choices: [piece],
    usage,
    object,
    ...head
  } of chunks) {
    const chat = object === "chat.completion.chunk";
    const empty = chat ? { message: { role: "assistant", content: "" } } : { text: "" };
    answer ??= {
      ...head,
      object: chat ? "chat.completion" : object,
      choices: [{ index: 0, ...empty, logprobs: null, finish_reason: null }],
    };
    const [whole] = answer.choices;
    if (usage) answer.usage = usage;
    if (!piece) continue;
    if (chat) whole.message.content += piece.delta.content ?? "";
    else whole.text += piece.text;
    if (piece.logprobs) whole.logprobs = { content: [...(whole.logprobs?.content ?? []), ...piece.logprobs.content] };
    if (piece.token_ids) whole.token_ids = [...(whole.token_ids ?? []), ...piece.token_ids];
    whole.finish_reason ??= piece.finish_reason;
  }
  return answer;
}
