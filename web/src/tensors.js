/**
 * Where callers' numbers meet the device: what is accepted, narrowed, widened and given back.
 * @typedef {Float32Array | Float64Array | Int32Array | Int16Array | Int8Array | Uint8Array | Uint16Array | Uint32Array
 *   | Uint8ClampedArray | BigInt64Array} TypedArray
 * @typedef {{ data: TypedArray | number[] | boolean[], dims: number[] }} TensorInput
 * @typedef {{ data: Float32Array | Float64Array | Int32Array | Int16Array | Int8Array | Uint8Array | Uint16Array
 *   | Uint32Array, dims: number[], dtype: string }} Tensor  whole numbers of 64 bits are given as those of 32 that
 *   the device computed with, halves as f32
 * @typedef {{
 *   kind: string, dtype: string, host: string, dims: number[], dynamic: boolean, constant: any, value?: any
 * }} ValueSpec
 */
import { WebpteError } from "./errors.js";
import { bfloat, fromHalfBits, half, toHalfBits } from "./halves.js";

/** @type {Record<string, any>} typed arrays by the dtype that the device has */
const ON_DEVICE = {
  f32: Float32Array,
  f16w: Float32Array,
  i32: Int32Array,
  bool: Uint32Array,
  f16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
};
/** @type {Record<string, any>} and by the one that callers have */
const ON_HOST = {
  f32: Float32Array,
  f16: Float32Array,
  bf16: Float32Array,
  f64: Float64Array,
  i64: Int32Array,
  i32: Int32Array,
  i16: Int16Array,
  i8: Int8Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  bool: Uint8Array,
};
/** @type {Record<string, (x: number) => number>} */
const ROUNDED = { f16: half, bf16: bfloat };

/** @param {number[]} dims */
export const numel = (dims) => dims.reduce((product, size) => product * size, 1);

/** @param {number} bytes */
export const padded = (bytes) => Math.ceil(bytes / 4) * 4;

/**
 * @param {string} dtype
 * @param {number[]} dims
 */
export const storedBytes = (dtype, dims) => numel(dims) * ON_DEVICE[dtype].BYTES_PER_ELEMENT;

/**
 * What a caller gives as the dtype that the program declares, checked.
 * @param {TensorInput} given
 * @param {ValueSpec} spec
 * @param {string} where
 * @returns {Tensor}
 */
export function fromCaller(given, spec, where) {
  const data = given?.data;
  if (!data || !Array.isArray(given.dims)) {
    throw new WebpteError("input", `${where} must be {data, dims}: numbers, and the sizes of their dims.`);
  }
  checkDims(given.dims, spec, where);
  if (data.length !== numel(given.dims)) {
    const needed = numel(given.dims);
    throw new WebpteError("input", `${where} has ${data.length} numbers; its dims ${show(given.dims)} need ${needed}.`);
  }
  return { data: converted(data, spec.host, where), dims: [...given.dims], dtype: spec.host };
}

/**
 * @param {any} data
 * @param {string} dtype
 * @param {string} where
 */
function converted(data, dtype, where) {
  const Wanted = ON_HOST[dtype];
  if (ROUNDED[dtype]) return Float32Array.from(data, ROUNDED[dtype]);
  if (data instanceof Wanted) return data;
  const numbers = data instanceof BigInt64Array ? Array.from(data, Number) : data;
  const found = Wanted.from(numbers);
  if (dtype === "bool" || Wanted === Float32Array || Wanted === Float64Array) return found;
  const wrong = found.findIndex((/** @type {number} */ x, /** @type {number} */ i) => x !== Number(numbers[i]));
  if (wrong === -1) return found;
  if (dtype === "i64" && Number.isInteger(numbers[wrong])) return Float64Array.from(numbers); // if it stays on the host
  throw new WebpteError("input", `${where} holds ${numbers[wrong]}, which is no ${dtype}.`);
}

/**
 * @param {number[]} dims
 * @param {ValueSpec} spec
 * @param {string} where
 */
function checkDims(dims, spec, where) {
  const bound = spec.dims;
  const fits =
    dims.length === bound.length &&
    dims.every((size, i) => (spec.dynamic ? size >= Math.min(1, bound[i]) && size <= bound[i] : size === bound[i]));
  if (fits && dims.every(Number.isInteger)) return;
  const wanted = spec.dynamic ? `at most ${show(bound)}, and at least 1 each` : `exactly ${show(bound)}`;
  throw new WebpteError("input", `${where} has dims ${show(dims)}; the program takes ${wanted}.`);
}

/** @param {number[]} dims */
export const show = (dims) => `[${dims.join(", ")}]`;

/**
 * The bytes that the device is given, a multiple of 4.
 * @param {Tensor} tensor
 * @param {string} dtype on the device
 * @param {string} where
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function toDevice(tensor, dtype, where) {
  const Wanted = ON_DEVICE[dtype];
  let data = /** @type {any} */ (tensor.data);
  if (tensor.dtype === "i64" && data instanceof Float64Array) {
    const large = data.find((x) => x !== (x | 0));
    throw new WebpteError("input", `${where} holds ${large}; the device computes with 32-bit integers.`);
  }
  const beyond = (/** @type {number} */ x) => Number.isFinite(x) && !Number.isFinite(Math.fround(x));
  if (tensor.dtype === "f64" && data.some(beyond)) {
    throw new WebpteError("input", `${where} holds numbers beyond the 32-bit floats that the device computes with.`);
  }
  if (dtype === "f16") data = Uint16Array.from(data, toHalfBits);
  else if (dtype === "bool") data = Uint32Array.from(data, Number);
  else if (!(data instanceof Wanted)) data = Wanted.from(data);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (bytes.length % 4 === 0) return bytes;
  const whole = new Uint8Array(padded(bytes.length));
  whole.set(bytes);
  return whole;
}

/**
 * What the device has made, for callers.
 * @param {ArrayBuffer} buffer nobody else's
 * @param {number[]} dims
 * @param {ValueSpec} spec
 * @returns {Tensor}
 */
export function fromDevice(buffer, dims, spec) {
  const found = new ON_DEVICE[spec.dtype](buffer, 0, numel(dims));
  const Wanted = ON_HOST[spec.host];
  const round = ROUNDED[spec.host];
  if (spec.dtype === "f16") return { data: Wanted.from(found, fromHalfBits), dims: [...dims], dtype: spec.host };
  if (round) return { data: Wanted.from(found, round), dims: [...dims], dtype: spec.host };
  return { data: found instanceof Wanted ? found : Wanted.from(found), dims: [...dims], dtype: spec.host };
}
