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
 * @property {(tile: Planes, fields: any) => number} columns of the grid that these are; 0 if positions have one axis
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
  columns: () => 0,
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

/** Return the nearest size of whole blocks, within numbers of pixels. @param {Size} size @param {number} unit pixels of
 * a block's side @param {number} min @param {number} max @param {number} [least] blocks of a side @returns {Size} */
function wholeBlocks(size, unit, min, max, least = 0) {
  const area = size[0] * size[1];
  const nearest = size.map((side) => Math.max(least, round(side / unit)) * unit);
  const pixels = nearest[0] * nearest[1];
  const shrink = Math.sqrt(area / max);
  const grow = Math.sqrt(min / area);
  const [height, width] =
    pixels > max
      ? size.map((side) => Math.max(unit, Math.floor(side / shrink / unit) * unit))
      : pixels < min
        ? size.map((side) => Math.ceil((side * grow) / unit) * unit)
        : nearest;
  return [height, width];
}

/** Return the numbers of patches, block after block. @param {number} rows of blocks @param {number} columns
 * @param {number} block patches of a side @param {(top: number, left: number) => void} each takes a patch's place */
function byBlocks(rows, columns, block, each) {
  for (let at = 0; at < rows * columns * block ** 2; at++) {
    const [number, inner] = [Math.trunc(at / block ** 2), at % block ** 2];
    each(
      Math.trunc(number / columns) * block + Math.trunc(inner / block),
      (number % columns) * block + (inner % block),
    );
  }
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
    const area = unit ** 2;
    const size = wholeBlocks([height, width], unit, fields.min_blocks * area, max_blocks * area, 1);
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
    byBlocks(rows, columns, block, (top, left) => {
      for (const high of down[top]) for (const wide of across[left]) weights[weight++] = high * wide;
      for (let row = top * patch; row < (top + 1) * patch; row++) {
        for (let column = left * patch; column < (left + 1) * patch; column++) {
          for (let color = 0; color < 3; color++) {
            patchData[to++] = values[(color * tile.height + row) * width + column];
          }
        }
      }
    });
    return inRows([patchData, weights], rows * columns);
  },
  rows: ({ width, height }, { patch_side, block_side }) => (width * height) / (patch_side * block_side) ** 2,
  columns: () => 0,
};

/** @param {Float32Array[]} inputs @param {number} rows @returns {EncoderInput[]} */
const inRows = (inputs, rows) => inputs.map((data) => ({ data, dims: [rows, data.length / rows] }));

const MAX_RATIO = 200; // of the sides of an image
const ROPE_THETA = 10000; // of the rotation in the encoder

/** Return the weights (target, source) of a linear resize of a row that keeps the first and the last element.
 * @param {number} source @param {number} target */
function cornerWeights(source, target) {
  const { fround } = Math;
  const step = target > 1 ? (source - 1) / (target - 1) : 0;
  const place = (/** @type {number} */ at) => fround(at === target - 1 && at ? source - 1 : at * step);
  return Array.from({ length: target }, (_, at) =>
    Float32Array.from({ length: source }, (_, from) => Math.max(0, 1 - Math.abs(fround(place(at) - from)))),
  );
}

/** @type {Kind} */
const grid = {
  split(image, { patch_side, block_side, min_pixels, max_pixels, resample }) {
    const [height, width] = [image.height, image.width];
    const size = wholeBlocks([height, width], patch_side * block_side, min_pixels, max_pixels);
    if (Math.max(height, width) > MAX_RATIO * Math.min(height, width) || size[0] * size[1] > max_pixels) {
      const expected = `sides of a ratio up to ${MAX_RATIO} that ${max_pixels} pixels can approximate`;
      throw inputError("image", expected, [width, height]);
    }
    return { tiles: [resized(image, size, resample)], rows: 0, columns: 0 };
  },
  text: (_, { image_token }) => image_token,
  inputs(tile, fields) {
    const { patch_side: patch, block_side: block, position_side: positions, head_dim } = fields;
    const { fround } = Math;
    const { width, height } = tile;
    const [rows, columns] = [height / patch / block, width / patch / block];
    const count = rows * columns * block ** 2;
    const values = normalized(tile, fields);
    const [down, across] = [rows, columns].map((blocks) => cornerWeights(positions, blocks * block));
    const frequencies = Array.from({ length: head_dim / 4 }, (_, pair) =>
      fround(1 / ROPE_THETA ** (pair / (head_dim / 4))),
    );
    const lengths = [3 * patch ** 2, positions ** 2, head_dim, head_dim];
    const inputs = lengths.map((length) => new Float32Array(count * length));
    const [patchData, weights, cosines, sines] = inputs;
    let [to, weight, turn] = [0, 0, 0];
    byBlocks(rows, columns, block, (top, left) => {
      for (const high of down[top]) for (const wide of across[left]) weights[weight++] = high * wide;
      for (const place of [top, left, top, left]) {
        for (const frequency of frequencies) {
          cosines[turn] = Math.cos(fround(place * frequency));
          sines[turn++] = Math.sin(fround(place * frequency));
        }
      }
      for (let color = 0; color < 3; color++) {
        for (let row = top * patch; row < (top + 1) * patch; row++) {
          const from = (color * height + row) * width + left * patch;
          patchData.set(values.subarray(from, from + patch), to);
          to += patch;
        }
      }
    });
    return inRows(inputs, rows * columns);
  },
  rows: patches.rows,
  columns: ({ width }, { patch_side, block_side }) => width / (patch_side * block_side),
};

/** @type {Record<string, Kind>} */
export const KINDS = { square, tiles, patches, grid };
