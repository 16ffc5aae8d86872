/** What a program gave beside what it should have given. */

const ARRAYS = {
  f32: Float32Array,
  bf16: Float32Array, // kept in wider numbers
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

/** An f16 of its 16 bits. */
function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

/** {data, dims, dtype} of a golden array in a file's bytes. */
export function golden({ dtype, dims, offset, bytes }, file) {
  const piece = file.slice(offset, offset + bytes).buffer; // a copy, so that it begins where its elements may
  const data = dtype === "f16" ? Float32Array.from(new Uint16Array(piece), half) : new ARRAYS[dtype](piece);
  return { data, dims, dtype };
}

/** {ok, error, why} of one output: the largest |difference|, and what is wrong in words. */
export function compare(got, wanted, atol, rtol) {
  if (got.dims.join() !== wanted.dims.join())
    return { ok: false, error: Infinity, why: `the shape is ${got.dims}, not ${wanted.dims}` };
  let error = 0;
  let first = -1;
  for (let at = 0; at < wanted.data.length; at += 1) {
    const [one, other] = [Number(got.data[at]), Number(wanted.data[at])];
    if (one === other || (Number.isNaN(one) && Number.isNaN(other))) continue;
    const difference = Math.abs(one - other);
    const wrong = !(difference <= atol + rtol * Math.abs(other)) || difference === Infinity;
    if (wrong && first < 0) first = at;
    error = Math.max(error, Number.isNaN(difference) ? Infinity : difference);
  }
  const why = first < 0 ? "" : `element ${first} is ${Number(got.data[first])}, not ${Number(wanted.data[first])}`;
  return { ok: first < 0, error, why };
}

/** Labels of kernels that failing programs use and passing ones do not. results: [{ok, kernels: [{label, sha256}]}] */
export function suspects(results) {
  const fine = new Set(results.filter(({ ok }) => ok).flatMap(({ kernels }) => kernels.map(({ sha256 }) => sha256)));
  const found = new Map();
  for (const { ok, kernels } of results)
    if (!ok) for (const { sha256, label } of kernels) if (!fine.has(sha256)) found.set(sha256, label);
  return [...new Set(found.values())];
}
