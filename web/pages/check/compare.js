/** Compare the outputs of a program with the expected ones. */

const ARRAYS = {
  f32: Float32Array,
  bf16: Float32Array, // stored as f32
  f64: Float64Array,
  i8: Int8Array,
  u8: Uint8Array,
  bool: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
};

/** Return the number of the bits of an f16. */
function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** Return {data, dims, dtype} of an expected array in a file's bytes. */
export function golden({ dtype, dims, offset, bytes }, file) {
  const piece = file.slice(offset, offset + bytes).buffer; // a copy, for the alignment of its elements
  const data = dtype === "f16" ? Float32Array.from(new Uint16Array(piece), half) : new ARRAYS[dtype](piece);
  return { data, dims, dtype };
}

/** Return {ok, error, why} of one output: the largest |difference|, and the first difference as text. */
export function compare(got, expected, atol, rtol) {
  if (got.dims.join() !== expected.dims.join())
    return { ok: false, error: Infinity, why: `expected shape ${expected.dims}, got ${got.dims}` };
  let error = 0;
  let first = -1;
  for (let at = 0; at < expected.data.length; at += 1) {
    const [one, other] = [Number(got.data[at]), Number(expected.data[at])];
    if (one === other || (Number.isNaN(one) && Number.isNaN(other))) continue;
    const difference = Math.abs(one - other);
    const wrong = !(difference <= atol + rtol * Math.abs(other)) || difference === Infinity;
    if (wrong && first < 0) first = at;
    error = Math.max(error, Number.isNaN(difference) ? Infinity : difference);
  }
  const why =
    first < 0 ? "" : `element ${first}: expected ${Number(expected.data[first])}, got ${Number(got.data[first])}`;
  return { ok: first < 0, error, why };
}

/** Return the labels of kernels that only failing programs use. results: [{ok, kernels: [{label, sha256}]}] */
export function suspects(results) {
  const passing = new Set(results.filter(({ ok }) => ok).flatMap(({ kernels }) => kernels.map(({ sha256 }) => sha256)));
  const labels = new Map();
  for (const { ok, kernels } of results)
    if (!ok) for (const { sha256, label } of kernels) if (!passing.has(sha256)) labels.set(sha256, label);
  return [...new Set(labels.values())];
}
