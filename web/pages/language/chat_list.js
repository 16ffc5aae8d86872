/** The list of chats in this browser: open, delete, export. */

import { announce, make, parts, save } from "./shared.js";

export class ChatList {
  #root;
  #part;
  #conversations;
  #change;

  /** `change` shows the current conversation after a function has chosen or removed one. */
  constructor(root, conversations, change) {
    this.#root = root;
    this.#part = parts(root);
    this.#conversations = conversations;
    this.#change = change;
    const { newChat, exportChats, deleteChats } = this.#part;
    newChat.onclick = () => change(() => conversations.begin());
    exportChats.onclick = () => save("chats.json", JSON.stringify(conversations.list, null, 1), "application/json");
    deleteChats.onclick = () => {
      if (!confirm("Delete all chats of this page from this browser?")) return;
      change(() => conversations.clear());
      announce(root, "All chats are deleted.");
    };
  }

  show() {
    const { list, chats, newChat } = this.#part;
    const { titles } = this.#conversations;
    newChat.disabled = !titles.some(({ current }) => current);
    chats.hidden = titles.length === 0;
    list.replaceChildren(...titles.map((entry) => this.#row(entry)));
  }

  #row({ id, title, current }) {
    const open = make("button", { type: "button", textContent: title, title });
    if (current) open.setAttribute("aria-current", "true");
    open.onclick = () => {
      this.#change(() => this.#conversations.open(id));
      if (!this.#part.chats.closest(".columns")) this.#part.chats.open = false;
    };
    const remove = make("button", { type: "button", textContent: "×", ariaLabel: `Delete chat: ${title}` });
    remove.onclick = () => {
      this.#change(() => this.#conversations.remove(id));
      announce(this.#root, `The chat is deleted: ${title}`);
    };
    return make("li", { className: "row" }, open, remove);
  }
}
