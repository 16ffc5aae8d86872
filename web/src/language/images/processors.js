// How images become inputs of an encoder, as the manifest declares it. The kinds are those of webpte/llm/image_processors.
import { inputError } from "../../errors.js";
import { cropped, resized } from "./resize.js";

/** @typedef {import("./resize.js").Planes} Planes */
/** @typedef {[height: number, width: number]} Size */
/** @typedef {{ tiles: Planes[], rows: number, columns: number }} Tiles in the order of reading, then the overview */
/** @typedef {{ data: Float32Array, dims: number[] }} EncoderInput */
/**
 * @typedef {object} Kind
 * @property {(image: Planes, fields: any) => Tiles} split
 * @property {(tiles: Tiles, fields: any) => string} text of an image in a prompt, with a token for each tile
 * @property {(tile: Planes, fields: any) => EncoderInput[]} inputs
 * @property {(tile: Planes, fields: any, maxRows: number) => number} rows of a tile in the decoder's input
 */

const MAX_SIDE_PIXELS = 4096;

/** Round as Python does: halves to even numbers. @param {number} x */
const round = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

/** Return a tile as floats. @param {Planes} tile @param {any} fields */
function normalized({ data }, { scale, mean, std }) {
  const { fround } = Math;
  const [red, green, blue] = mean.map((/** @type {number} */ each, /** @type {number} */ color) =>
    Float32Array.from({ length: 256 }, (_, grey) => fround(fround(grey * scale) - fround(each)) / fround(std[color])),
  );
  const area = data.length / 3;
  return Float32Array.from(data, (grey, at) => (at < area ? red : at < 2 * area ? green : blue)[grey]);
}

/** @param {Planes} tile @param {any} fields @returns {EncoderInput[]} */
const pixels = (tile, fields) => [{ data: normalized(tile, fields), dims: [1, 3, tile.height, tile.width] }];

/** @param {Planes} image @param {number} side @returns {Tiles} without the overview */
function tilesOf(image, side) {
  const [rows, columns] = [image.height / side, image.width / side];
  const tile = (/** @type {unknown} */ _, /** @type {number} */ at) =>
    cropped(image, Math.trunc(at / columns) * side, (at % columns) * side, side);
  return { tiles: Array.from({ length: rows * columns }, tile), rows, columns };
}

/** Return the text of each tile, by its row and column. @param {Tiles} tiles
 * @param {(row: number, column: number) => string} text */
const rowTexts = ({ rows, columns }, text) =>
  Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_, column) => text(row + 1, column + 1)).join(""),
  );

/** @type {Kind} */
const square = {
  split: (image, { side, resample }) => ({ tiles: [resized(image, [side, side], resample)], rows: 0, columns: 0 }),
  text: (_, { image_token, placeholder }) => `\n\n${placeholder}${image_token}<end_of_image>\n\n`,
  inputs: pixels,
  rows: (_tile, _fields, maxRows) => maxRows,
};

/** Return a size with a longer side of this length. The other is rounded by `round`, which knows which one it is.
 * @param {Size} size @param {number} longest @param {(side: number) => number} round @returns {Size} */
function scaled([height, width], longest, round) {
  const ratio = width / height;
  const other = width >= height ? round(Math.trunc(longest / ratio)) : round(Math.trunc(longest * ratio));
  return width >= height ? [Math.max(other, 1), longest] : [longest, Math.max(other, 1)];
}

/** @type {Kind} */
const tiles = {
  ...square,
  split(image, { side, longest_side: longest, split, resample }) {
    let size = scaled([image.height, image.width], longest, (other) => other + (other % 2));
    if (Math.max(...size) > MAX_SIDE_PIXELS) size = scaled(size, MAX_SIDE_PIXELS, (other) => other);
    const first = resized(image, size, resample);
    if (!split) return { tiles: [resized(first, [side, side], resample)], rows: 0, columns: 0 };
    const whole = (/** @type {number} */ length) => Math.max(side, Math.ceil(length / side) * side);
    size = scaled(size, whole(Math.max(...size)), whole);
    const enlarged = resized(first, size, resample);
    const overview = resized(enlarged, [side, side], resample);
    const all = size.every((each) => each === side) ? { tiles: [], rows: 0, columns: 0 } : tilesOf(enlarged, side);
    return { ...all, tiles: [...all.tiles, overview] };
  },
  text(tiles) {
    const name = (/** @type {number} */ row, /** @type {number} */ column) =>
      `<fake_token_around_image><row_${row}_col_${column}><image>`;
    const rows = rowTexts(tiles, name).map((row) => `${row}\n`);
    return `${rows.join("")}${rows.length ? "\n" : ""}<fake_token_around_image><global-img><image><fake_token_around_image>`;
  },
};

/** Return the nearest size of whole blocks, as many of them as an image may have. @param {Size} size @param {any} fields
 * @returns {Size} */
function wholeBlocks(size, { patch_side, block_side, min_blocks, max_blocks }) {
  const unit = patch_side * block_side;
  const area = size[0] * size[1];
  const nearest = size.map((side) => Math.max(unit, round(side / unit) * unit));
  const blocks = (nearest[0] * nearest[1]) / unit ** 2;
  if (blocks > max_blocks) {
    const shrink = Math.sqrt(area / (max_blocks * unit ** 2));
    const [height, width] = size.map((side) => Math.max(unit, Math.floor(side / shrink / unit) * unit));
    return [height, width];
  }
  if (blocks < min_blocks) {
    const grow = Math.sqrt((min_blocks * unit ** 2) / area);
    const [height, width] = size.map((side) => Math.ceil((side * grow) / unit) * unit);
    return [height, width];
  }
  return [nearest[0], nearest[1]];
}

/** Return the rows and columns of tiles whose proportions are nearest to those of the image. @param {Size} size
 * @param {any} fields @returns {Size} */
function tileGrid([height, width], { grids, tile_side }) {
  /** @type {Size} */
  let best = [1, 1];
  let nearest = Infinity;
  for (const [columns, rows] of grids) {
    const distance = Math.abs(width / height - columns / rows);
    const isLarger = width * height > 0.5 * tile_side ** 2 * columns * rows;
    if (distance < nearest || (distance === nearest && isLarger)) [best, nearest] = [[rows, columns], distance];
  }
  return best;
}

/** Return the weights (target, source) of a linear resize of a row, which averages where it shrinks.
 * @param {number} source @param {number} target */
function resizeWeights(source, target) {
  const scale = source / target;
  return Array.from({ length: target }, (_, at) => {
    const row = Array.from({ length: source }, (_, from) =>
      Math.max(0, 1 - Math.abs(from + 0.5 - scale * (at + 0.5)) / Math.max(scale, 1)),
    );
    const sum = row.reduce((total, each) => total + each, 0);
    return Float32Array.from(row, (each) => each / sum);
  });
}

/** @type {Kind} */
const patches = {
  split(image, fields) {
    const { patch_side, block_side, max_blocks, tile_side, split, overview, tolerance, resample } = fields;
    const unit = patch_side * block_side;
    const [height, width] = [image.height, image.width];
    const size = wholeBlocks([height, width], fields);
    if (size[0] * size[1] > max_blocks * unit ** 2) {
      const expected = `sides that ${max_blocks} blocks of ${unit} pixels can approximate`;
      throw inputError("image", expected, [width, height]);
    }
    const whole = (/** @type {boolean} */ taken) => (taken ? [resized(image, size, resample)] : []);
    const [high, wide] = [height, width].map((side) => Math.max(patch_side, round(side / unit) * unit));
    if (!split || high * wide <= max_blocks * unit ** 2 * tolerance) return { tiles: whole(true), rows: 0, columns: 0 };
    const [rows, columns] = tileGrid([height, width], fields);
    const all = tilesOf(resized(image, [rows * tile_side, columns * tile_side], resample), tile_side);
    return { ...all, tiles: [...all.tiles, ...whole(overview)] };
  },
  text(tiles, { overview }) {
    const name = (/** @type {number} */ row, /** @type {number} */ column) => `<|img_row_${row}_col_${column}|><image>`;
    const last = overview ? "<|img_thumbnail|><image>" : "";
    return `<|image_start|>${tiles.rows ? rowTexts(tiles, name).join("") + last : "<image>"}<|image_end|>`;
  },
  inputs(tile, fields) {
    const { patch_side: patch, block_side: block, position_side: positions } = fields;
    const unit = patch * block;
    const { width } = tile;
    const [rows, columns] = [tile.height / unit, width / unit];
    const values = normalized(tile, fields);
    const [down, across] = [rows, columns].map((count) => resizeWeights(positions, count * block));
    const patchData = new Float32Array(values.length);
    const weights = new Float32Array(rows * columns * (block * positions) ** 2);
    let [to, weight] = [0, 0];
    for (let at = 0; at < rows * columns * block ** 2; at++) {
      const [number, inner] = [Math.trunc(at / block ** 2), at % block ** 2];
      const top = Math.trunc(number / columns) * block + Math.trunc(inner / block);
      const left = (number % columns) * block + (inner % block);
      for (const high of down[top]) for (const wide of across[left]) weights[weight++] = high * wide;
      for (let row = top * patch; row < (top + 1) * patch; row++) {
        for (let column = left * patch; column < (left + 1) * patch; column++) {
          for (let color = 0; color < 3; color++) {
            patchData[to++] = values[(color * tile.height + row) * width + column];
          }
        }
      }
    }
    const input = (/** @type {Float32Array} */ data) => ({
      data,
      dims: [rows * columns, data.length / rows / columns],
    });
    return [input(patchData), input(weights)];
  },
  rows: ({ width, height }, { patch_side, block_side }) => (width * height) / (patch_side * block_side) ** 2,
};

/** @type {Record<string, Kind>} */
export const KINDS = { square, tiles, patches };
