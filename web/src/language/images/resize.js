// Resize images with the filters of Pillow, to the value: a pass along rows and one along columns, each of 8 bits with
// weights in fixed point.

/** @typedef {{ data: Uint8ClampedArray<ArrayBuffer>, width: number, height: number }} Planes red, green and blue, one after the other */

const WEIGHT_BITS = 22;

/** @param {number} x */
const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

/** @param {number} distance at least 0 */
function cubic(distance) {
  if (distance < 1) return (1.5 * distance - 2.5) * distance * distance + 1;
  return -0.5 * (((distance - 5) * distance + 8) * distance - 4);
}

/** By name: where the filter becomes 0, and the weight of a distance within that.
 * @type {Record<string, [number, (distance: number) => number]>} */
const FILTERS = {
  box: [0.5, (x) => Number(x > -0.5)],
  bilinear: [1, (x) => 1 - Math.abs(x)],
  hamming: [1, (x) => sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x))],
  bicubic: [2, (x) => cubic(Math.abs(x))],
  lanczos: [3, (x) => sinc(x) * sinc(x / 3)],
};

/** Return for each pixel of a resized line the first pixel that it is computed from, and the weights of these.
 * @param {number} source @param {number} target pixels of a line @param {string} filter */
function windows(source, target, filter) {
  const scale = source / target;
  if (filter === "nearest") {
    const pixel = (/** @type {number} */ at) => ({
      first: Math.floor((at + 0.5) * scale),
      weights: Int32Array.of(1 << WEIGHT_BITS),
    });
    return Array.from({ length: target }, (_, at) => pixel(at));
  }
  const [reach, weight] = FILTERS[filter];
  const stretch = Math.max(1, scale); // a filter covers more pixels where an image shrinks
  return Array.from({ length: target }, (_, at) => {
    const center = (at + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - reach * stretch + 0.5));
    const end = Math.min(source, Math.trunc(center + reach * stretch + 0.5));
    const exact = Array.from({ length: end - first }, (_, offset) => {
      const distance = (first + offset - center + 0.5) / stretch;
      return Math.abs(distance) <= reach ? weight(distance) : 0;
    });
    const sum = exact.reduce((total, each) => total + each, 0);
    const fixed = exact.map((each) => (each / sum) * 2 ** WEIGHT_BITS);
    return { first, weights: Int32Array.from(fixed, (each) => Math.trunc(each + (each < 0 ? -0.5 : 0.5))) };
  });
}

/** Resize one axis of numbers in the order (outer, source, inner).
 * @param {Uint8ClampedArray<ArrayBuffer>} data @param {[outer: number, source: number, inner: number]} dims @param {number} target
 * @param {string} filter */
function pass(data, [outer, source, inner], target, filter) {
  const result = new Uint8ClampedArray(outer * target * inner);
  const places = windows(source, target, filter);
  let to = 0;
  for (let plane = 0; plane < outer; plane++) {
    for (const { first, weights } of places) {
      const from = (plane * source + first) * inner;
      for (let at = 0; at < inner; at++) {
        let sum = 1 << (WEIGHT_BITS - 1);
        for (let tap = 0; tap < weights.length; tap++) sum += weights[tap] * data[from + tap * inner + at];
        result[to++] = sum >> WEIGHT_BITS;
      }
    }
  }
  return result;
}

/** @param {Planes} image @param {[height: number, width: number]} size @param {string} filter @returns {Planes} */
export function resized({ data, width, height }, [newHeight, newWidth], filter) {
  const rows = (/** @type {Uint8ClampedArray<ArrayBuffer>} */ source, /** @type {number} */ high) =>
    newWidth === width ? source : pass(source, [3 * high, width, 1], newWidth, filter);
  const columns = (/** @type {Uint8ClampedArray<ArrayBuffer>} */ source, /** @type {number} */ wide) =>
    newHeight === height ? source : pass(source, [3, height, wide], newHeight, filter);
  const isTall = height - newHeight > Math.max(0, 2 * (width - newWidth)); // columns first, as in Pillow 13
  const result = isTall ? rows(columns(data, width), newHeight) : columns(rows(data, height), newWidth);
  return { data: result, width: newWidth, height: newHeight };
}

/** Return a rectangle of an image. @param {Planes} image @param {number} top @param {number} left @param {number} side
 * @returns {Planes} */
export function cropped({ data, width, height }, top, left, side) {
  const square = new Uint8ClampedArray(3 * side * side);
  for (let row = 0; row < 3 * side; row++) {
    const from = (Math.trunc(row / side) * height + top + (row % side)) * width + left;
    square.set(data.subarray(from, from + side), row * side);
  }
  return { data: square, width: side, height: side };
}

/** Return the colors of pixels in RGBA. @param {{ data: ArrayLike<number>, width: number, height: number }} image
 * @returns {Planes} */
export function planesOf({ data, width, height }) {
  const area = width * height;
  const planes = new Uint8ClampedArray(3 * area);
  for (let at = 0; at < area; at++) {
    const alpha = data[4 * at + 3];
    for (let color = 0; color < 3; color++) {
      planes[color * area + at] = (data[4 * at + color] * alpha + 255 * (255 - alpha)) / 255; // rounded by the array
    }
  }
  return { data: planes, width, height };
}
