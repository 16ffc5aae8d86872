// The image processors of the player: `node images.mjs`, JSON in and JSON out.
import { readFileSync } from "node:fs";
import { KINDS } from "../../../web/src/language/images/processors.js";
import { planesOf } from "../../../web/src/language/images/resize.js";

const bytes = (text) => new Uint8ClampedArray(Buffer.from(text, "base64"));
const base64 = ({ buffer }) => Buffer.from(buffer).toString("base64");

/** Return what a processor makes of images in RGBA. */
function prepared({ processor, maxRows, images }) {
  const kind = KINDS[processor.kind];
  return images.map(({ data, width, height }) => {
    const split = kind.split(planesOf({ data: bytes(data), width, height }), processor);
    return {
      text: kind.text(split, processor),
      tiles: split.tiles.map((tile) => ({
        dims: [3, tile.height, tile.width],
        data: base64(tile.data),
        rows: kind.rows(tile, processor, maxRows),
        inputs: kind.inputs(tile, processor).map((input) => ({ data: base64(input.data), dims: input.dims })),
      })),
    };
  });
}

const { given } = JSON.parse(readFileSync(0, "utf-8"));
process.stdout.write(JSON.stringify(prepared(given)));
