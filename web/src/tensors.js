/**
 * Conversion between callers' arrays and the device.
 * @typedef {Float32Array | Float64Array | Int32Array | Int16Array | Int8Array | Uint8Array | Uint16Array | Uint32Array
 *   | Uint8ClampedArray | BigInt64Array} TypedArray
 * @typedef {{ data: TypedArray | number[] | boolean[], dims: number[] }} TensorInput
 * @typedef {{ data: Float32Array | Float64Array | Int32Array | Int16Array | Int8Array | Uint8Array | Uint16Array
 *   | Uint32Array, dims: number[], dtype: string }} Tensor  64-bit integers are returned as the 32-bit
 *   integers of the device, 16-bit floats as f32
 * @typedef {{
 *   kind: string, dtype: string, host_dtype: string, dims: number[], dynamic: boolean, constant: any, value?: any
 * }} ValueSpec
 */
import { inputError } from "./errors.js";
import { bfloat, fromHalfBits, half, toHalfBits } from "./halves.js";

/** @type {Record<string, any>} typed arrays by the dtype on the device */
const ON_DEVICE = {
  f32: Float32Array,
  f16w: Float32Array,
  i32: Int32Array,
  bool: Uint32Array,
  f16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
};
/** @type {Record<string, any>} and by the dtype of callers */
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
const ROUND = { f16: half, bf16: bfloat };

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
 * Check a caller's tensor and convert it to the program's dtype.
 * @param {TensorInput} input
 * @param {ValueSpec} spec
 * @param {string} argument
 * @returns {Tensor}
 */
export function fromCaller(input, spec, argument) {
  const data = input?.data;
  if (!data || !Array.isArray(input.dims)) throw inputError(argument, "{data, dims}", input);
  checkDims(input.dims, spec, argument);
  if (data.length !== numel(input.dims)) {
    throw inputError(argument, `${numel(input.dims)} numbers for dims ${show(input.dims)}`, data.length);
  }
  return { data: convert(data, spec.host_dtype, argument), dims: [...input.dims], dtype: spec.host_dtype };
}

/**
 * @param {any} data
 * @param {string} dtype
 * @param {string} argument
 */
function convert(data, dtype, argument) {
  const ArrayType = ON_HOST[dtype];
  if (ROUND[dtype]) return Float32Array.from(data, ROUND[dtype]);
  if (data instanceof ArrayType) return data;
  const numbers = data instanceof BigInt64Array ? Array.from(data, Number) : data;
  const array = ArrayType.from(numbers);
  if (dtype === "bool" || ArrayType === Float32Array || ArrayType === Float64Array) return array;
  const wrong = array.findIndex((/** @type {number} */ x, /** @type {number} */ i) => x !== Number(numbers[i]));
  if (wrong === -1) return array;
  if (dtype === "i64" && Number.isInteger(numbers[wrong])) return Float64Array.from(numbers); // if it stays on the host
  throw inputError(argument, `numbers of dtype ${dtype}`, numbers[wrong]);
}

/**
 * @param {number[]} dims
 * @param {ValueSpec} spec
 * @param {string} argument
 */
function checkDims(dims, spec, argument) {
  const bound = spec.dims;
  const fits =
    dims.length === bound.length &&
    dims.every((size, i) => (spec.dynamic ? size >= Math.min(1, bound[i]) && size <= bound[i] : size === bound[i]));
  if (fits && dims.every(Number.isInteger)) return;
  const expected = spec.dynamic ? `dims from 1 to ${show(bound)}` : `dims ${show(bound)}`;
  throw inputError(argument, expected, dims);
}

/** @param {number[]} dims */
export const show = (dims) => `[${dims.join(", ")}]`;

/**
 * Return the bytes of a tensor for the device, padded to a multiple of 4.
 * @param {Tensor} tensor
 * @param {string} dtype on the device
 * @param {string} argument
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function toDevice(tensor, dtype, argument) {
  const ArrayType = ON_DEVICE[dtype];
  let data = /** @type {any} */ (tensor.data);
  if (tensor.dtype === "i64" && data instanceof Float64Array) {
    const large = data.find((x) => x !== (x | 0));
    throw inputError(argument, "integers of 32 bits, as the device has", large);
  }
  const overflows = (/** @type {number} */ x) => Number.isFinite(x) && !Number.isFinite(Math.fround(x));
  if (tensor.dtype === "f64" && data.some(overflows)) {
    throw inputError(argument, "numbers in the range of f32, as the device has", data.find(overflows));
  }
  if (dtype === "f16") data = Uint16Array.from(data, toHalfBits);
  else if (dtype === "bool") data = Uint32Array.from(data, Number);
  else if (!(data instanceof ArrayType)) data = ArrayType.from(data);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (bytes.length % 4 === 0) return bytes;
  const paddedBytes = new Uint8Array(padded(bytes.length));
  paddedBytes.set(bytes);
  return paddedBytes;
}

/**
 * Convert results of the device for callers.
 * @param {ArrayBuffer} buffer which the result may keep
 * @param {number[]} dims
 * @param {ValueSpec} spec
 * @returns {Tensor}
 */
export function fromDevice(buffer, dims, spec) {
  const array = new ON_DEVICE[spec.dtype](buffer, 0, numel(dims));
  const ArrayType = ON_HOST[spec.host_dtype];
  const round = ROUND[spec.host_dtype];
  if (spec.dtype === "f16")
    return { data: ArrayType.from(array, fromHalfBits), dims: [...dims], dtype: spec.host_dtype };
  if (round) return { data: ArrayType.from(array, round), dims: [...dims], dtype: spec.host_dtype };
  return { data: array instanceof ArrayType ? array : ArrayType.from(array), dims: [...dims], dtype: spec.host_dtype };
}
