// Streamed text: stop strings are held back, and chunks are joined into one completion.

/** Holds back text that may be the beginning of a stop string. */
export class StopStringBuffer {
  #held = "";
  #stop;
  found = false;

  /** @param {string[]} stop */
  constructor(stop) {
    this.#stop = stop;
  }

  /** The text that is held back; once a stop string was found, that string and what follows it. */
  get held() {
    return this.#held;
  }

  /** Add text; return what cannot be part of a stop string. @param {string} text */
  push(text) {
    this.#held += text;
    const positions = this.#stop.map((stop) => this.#held.indexOf(stop)).filter((at) => at >= 0);
    this.found = positions.length > 0;
    return this.#take(this.found ? Math.min(...positions) : this.#held.length - this.#partial());
  }

  /** Add the last text; return all that is held back, up to a stop string. @param {string} text */
  flush(text) {
    const out = this.push(text);
    return this.found ? out : out + this.#take(this.#held.length);
  }

  /** Return the length of the longest tail that begins a stop string. */
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

/** Return the completion that chunks make together. @param {AsyncIterable<any>} chunks of one answer, with its usage */
export async function joinChunks(chunks) {
  /** @type {any} */
  let completion;
  for await (const {
    choices: [piece],
    usage,
    object,
    ...head
  } of chunks) {
    const chat = object === "chat.completion.chunk";
    const empty = chat ? { message: { role: "assistant", content: "" } } : { text: "" };
    completion ??= {
      ...head,
      object: chat ? "chat.completion" : object,
      choices: [{ index: 0, ...empty, logprobs: null, finish_reason: null }],
    };
    const [result] = completion.choices;
    if (usage) completion.usage = usage;
    if (!piece) continue;
    if (piece.delta?.reasoning_content) {
      result.message.reasoning_content = (result.message.reasoning_content ?? "") + piece.delta.reasoning_content;
    }
    if (chat) result.message.content += piece.delta.content ?? "";
    else result.text += piece.text;
    if (piece.logprobs) result.logprobs = { content: [...(result.logprobs?.content ?? []), ...piece.logprobs.content] };
    if (piece.token_ids) result.token_ids = [...(result.token_ids ?? []), ...piece.token_ids];
    result.finish_reason ??= piece.finish_reason;
  }
  return completion;
}
