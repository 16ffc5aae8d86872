/** The conversations of a page, in this browser's storage. They stay on this device. */

const MAX_CONVERSATIONS = 50;
const MAX_TITLE = 60;

/** Stores conversations under a key. Without a key or storage, it keeps them in memory. */
export class Conversations {
  #key;
  /** The newest first: { id, messages }. */
  #list = [];
  #current = null;

  constructor(key) {
    this.#key = key;
    try {
      const stored = JSON.parse((key && localStorage.getItem(key)) ?? "[]");
      if (Array.isArray(stored)) this.#list = stored.filter(isConversation);
    } catch {
      // no storage, or not ours
    }
    this.#current = this.#list[0] ?? null;
  }

  /** The messages of the current conversation. */
  get messages() {
    return this.#current?.messages ?? [];
  }

  /** All conversations, the newest first. */
  get list() {
    return this.#list;
  }

  /** The titles of all conversations, the newest first. */
  get titles() {
    return this.#list.map((each) => ({
      id: each.id,
      title: each.messages[0].content.slice(0, MAX_TITLE) || "Image",
      current: each === this.#current,
    }));
  }

  /** Store the messages of the current conversation. */
  save(messages) {
    if (!messages.length) return;
    this.#current ??= { id: crypto.randomUUID?.() ?? String(Date.now()) };
    this.#current.messages = messages;
    this.#list = [this.#current, ...this.#list.filter((each) => each !== this.#current)].slice(0, MAX_CONVERSATIONS);
    this.#write();
  }

  /** Begin a new conversation. */
  begin() {
    this.#current = null;
  }

  /** Continue an earlier conversation. */
  open(id) {
    this.#current = this.#list.find((each) => each.id === id) ?? null;
  }

  /** Delete a conversation. */
  remove(id) {
    this.#list = this.#list.filter((each) => each.id !== id);
    if (this.#current?.id === id) this.#current = null;
    this.#write();
  }

  /** Delete all conversations. */
  clear() {
    this.#list = [];
    this.#current = null;
    this.#write();
  }

  #write() {
    if (!this.#key) return;
    try {
      if (this.#list.length) localStorage.setItem(this.#key, JSON.stringify(this.#list));
      else localStorage.removeItem(this.#key);
    } catch (error) {
      if (error?.name !== "QuotaExceededError" || this.#list.length < 2) return;
      this.#list.pop();
      this.#write();
    }
  }
}

function isConversation(value) {
  const isMessage = (each) => typeof each?.content === "string" && ["user", "assistant"].includes(each.role);
  return typeof value?.id === "string" && value.messages?.length > 0 && value.messages.every(isMessage);
}
