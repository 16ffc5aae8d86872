// Images in the messages of a chat: taken out of the messages, prepared, and put into the prompt.
import { inputError } from "../../errors.js";
import { sha256 } from "../../hash.js";
import { isImage, partsOf, rowIds } from "../parts.js";
import { KINDS } from "./processors.js";
import { planesOf } from "./resize.js";

/** @typedef {import("../template.js").Message} Message */
/** @typedef {import("./processors.js").EncoderInput} EncoderInput */
/** @typedef {{ ids: number[], inputs: () => EncoderInput[], columns: number }} Tile  ids: of its rows in a prompt */
/** @typedef {{ text: string, tiles: Tile[] }} PreparedImage */
/**
 * @typedef {object} ImageRows a prompt
 * @property {number[]} ids of its tokens and rows of images
 * @property {Map<number, import("../embeddings.js").Inputs>} inputs what rows are encoded from, by the first id of a tile
 * @property {number[]} ends the ids up to the last row of each image
 * @property {number[][]} offsets by position, and of those after the prompt: what is added for time, row and column. A
 * grid of h x w rows takes up the positions of max(h, w) tokens
 */

const SOURCES = ["image", "url", "image_url"]; // fields of a part with an image

export class ImagePrompts {
  /** The ids of the rows of a tile, by its hash. @type {Map<string, number[]>} */
  #ids = new Map();
  #declared;
  #kind;
  #token;

  /** @param {{ processor: any, max_rows: number }} declared in the manifest
   * @param {import("../tokenizer.js").Tokenizer} tokenizer */
  constructor(declared, tokenizer) {
    this.#declared = declared;
    this.#kind = KINDS[declared.processor.kind];
    this.#token = tokenizer.id(declared.processor.image_token);
  }

  /** Return messages as templates of models that see read them, and their images in order.
   * @param {Message[]} messages @returns {Promise<{ messages: Message[], images: PreparedImage[] }>} */
  async read(messages) {
    /** @type {PreparedImage[]} */
    const images = [];
    if (!Array.isArray(messages)) return { messages, images };
    const separated = [];
    for (const [number, message] of messages.entries()) {
      const parts = [];
      for (const [at, part] of partsOf(message).entries()) {
        parts.push(isImage(part) ? { type: "image" } : part);
        if (isImage(part)) images.push(await this.#prepare(part, `messages[${number}].content[${at}]`));
      }
      if (typeof message?.content === "string") parts.push({ type: "text", text: message.content });
      separated.push(parts.length ? { ...message, content: parts } : message);
    }
    return { messages: separated, images };
  }

  /** @param {any} part @param {string} argument @returns {Promise<PreparedImage>} */
  async #prepare(part, argument) {
    const { processor, max_rows } = this.#declared;
    const split = this.#kind.split(planesOf(await pixelsOf(part, argument)), processor);
    const tiles = split.tiles.map(async (tile) => {
      const key = `${tile.width} ${await sha256(new Uint8Array(tile.data.buffer))}`;
      const ids = this.#ids.get(key) ?? rowIds(this.#ids.size, this.#kind.rows(tile, processor, max_rows));
      this.#ids.set(key, ids);
      return { ids, inputs: () => this.#kind.inputs(tile, processor), columns: this.#kind.columns(tile, processor) };
    });
    return { text: this.#kind.text(split, processor), tiles: await Promise.all(tiles) };
  }

  /** Return a rendered chat with the text of each image in the place of its token.
   * @param {string} text @param {PreparedImage[]} images */
  expanded(text, images) {
    const pieces = text.split(this.#declared.processor.placeholder);
    if (pieces.length !== images.length + 1) {
      throw inputError("messages", `a chat template that renders ${images.length} images`, pieces.length - 1);
    }
    return pieces.map((piece, at) => piece + (images[at]?.text ?? "")).join("");
  }

  /** Return the tokens of an expanded chat with the ids of a tile's rows for each image token.
   * @param {number[]} tokens @param {PreparedImage[]} images @returns {ImageRows} */
  rows(tokens, images) {
    const tiles = images.flatMap((image) => image.tiles);
    const last = new Set(images.map((image) => image.tiles.at(-1)));
    /** @type {ImageRows} */
    const { ids, inputs, ends, offsets } = { ids: [], inputs: new Map(), ends: [], offsets: [] };
    let [next, after] = [0, 0];
    for (const token of tokens) {
      const tile = token === this.#token ? tiles[next++] : undefined;
      const { ids: rows, columns } = tile ?? { ids: [token], columns: 0 };
      ids.push(...rows);
      rows.forEach((_, row) => {
        const first = after - (columns && row);
        offsets.push(
          columns ? [first, first + Math.trunc(row / columns), first + (row % columns)] : [after, after, after],
        );
      });
      if (columns) after += Math.max(rows.length / columns, columns) - rows.length;
      if (tile) inputs.set(rows[0], tile.inputs);
      if (last.has(tile)) ends.push(ids.length);
    }
    if (next !== tiles.length) throw inputError("messages", `${tiles.length} image tokens`, next);
    return { ids, inputs, ends, offsets: [...offsets, [after, after, after]] };
  }
}

/** Return the pixels of a part in RGBA. @param {any} part @param {string} argument
 * @returns {Promise<{ data: ArrayLike<number>, width: number, height: number }>} */
async function pixelsOf(part, argument) {
  const values = SOURCES.map((name) => part[name]).filter((value) => value !== undefined && value !== null);
  if (values.length !== 1) throw inputError(argument, `an image as one of ${SOURCES.join(", ")}`, values.length);
  let image = values[0].url ?? values[0];
  if (typeof image === "string") image = fileOf(image, argument);
  const { data, width, height } = image;
  if (data) {
    if (width > 0 && height > 0 && data.length === 4 * width * height) return image;
    throw inputError(argument, "4 numbers for each pixel of width x height", data.length);
  }
  if (!globalThis.createImageBitmap) {
    const expected = "pixels as { width, height, data } in RGBA, because this runtime decodes no image files";
    throw inputError(argument, expected, part.type);
  }
  const options = /** @type {const} */ ({ colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const bitmap = await createImageBitmap(image, options).catch(() => {
    throw inputError(argument, "an image that this browser can decode", image.type ?? typeof image);
  });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

/** Return the file in a data address. @param {string} address @param {string} argument */
function fileOf(address, argument) {
  const [, type, data] = /^data:([^,]*);base64,(.*)$/s.exec(address) ?? [];
  try {
    return new Blob([Uint8Array.from(atob(data), (character) => character.charCodeAt(0))], { type });
  } catch {
    const expected = "an address that begins with data:image/ and contains base64";
    throw inputError(argument, expected, address, "Load the image first.");
  }
}
