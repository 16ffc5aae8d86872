/** Images of the next message: dropped, pasted or chosen, and shown until it is sent. */

import { announce, make, parts, showError } from "./shared.js";

const PREVIEW_PIXELS = 96;

/** Return the data address of a file. */
function addressOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Draw a file on a canvas. */
async function draw(canvas, file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, PREVIEW_PIXELS / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, bitmap.width * scale);
  canvas.height = Math.max(1, bitmap.height * scale);
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}

/** Return a row of small images, each { name, url } with a data address, and what `extra` returns for it. */
export function previews(images, extra = () => "") {
  const figures = images.map((image) => {
    const canvas = make("canvas", { width: 1, height: 1, role: "img", ariaLabel: image.name });
    const data = Uint8Array.from(atob(image.url.split(",")[1]), (character) => character.charCodeAt(0));
    draw(canvas, new Blob([data])).catch(() => {}); // it was drawn when it was added
    return make("figure", {}, canvas, extra(image));
  });
  return make("div", { className: "row" }, ...figures);
}

export class Attachments {
  #root;
  #part;
  #list = [];
  #isAllowed = true; // until the model has loaded

  constructor(root) {
    this.#root = root;
    this.#part = parts(root);
    const { attach, file, composer, log } = this.#part;
    attach.onclick = () => file.click();
    file.onchange = async () => {
      await this.#add([...file.files]);
      file.value = ""; // the same file may be chosen again
    };
    const page = log.parentElement;
    const mark = (isOver) => composer.classList.toggle("over", isOver);
    page.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      mark(true);
    });
    page.addEventListener("dragleave", () => mark(false));
    page.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      mark(false);
      this.#add([...event.dataTransfer.files]);
    });
    page.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files].filter(({ type }) => type.startsWith("image/"));
      if (!files.length) return;
      event.preventDefault();
      this.#add(files);
    });
  }

  /** Offer images if the model reads them. */
  allow(isAllowed) {
    this.#isAllowed = isAllowed;
    this.#part.attach.hidden = !isAllowed;
    if (!isAllowed) this.#show([]);
  }

  get any() {
    return this.#list.length > 0;
  }

  /** Replace the images, those of a message that is edited. */
  set(list) {
    this.#show(list);
  }

  /** Return the images, and forget them. */
  take() {
    const list = this.#list;
    this.#show([]);
    return list;
  }

  async #add(files) {
    for (const file of files) {
      try {
        if (!this.#isAllowed) throw new Error("This model takes no images.");
        await draw(make("canvas"), file).catch(() => {
          throw new Error(`${file.name}: expected an image that this browser can decode. Choose another file.`);
        });
        this.#show([...this.#list, { name: file.name || "Image", url: await addressOf(file) }]);
        announce(this.#root, `${file.name} is added.`);
      } catch (error) {
        showError(this.#part.imageError, Object.assign(error, { code: "input" }));
      }
    }
    this.#part.message.focus();
  }

  #show(list) {
    this.#list = list;
    const { images, imageError, message } = this.#part;
    const remove = (image) => {
      const onclick = () => {
        this.#show(this.#list.filter((each) => each !== image));
        message.focus();
      };
      return make("button", { type: "button", textContent: "×", ariaLabel: `Remove ${image.name}`, onclick });
    };
    images.replaceChildren(...(list.length ? [previews(list, remove)] : []));
    imageError.hidden = true;
  }
}
