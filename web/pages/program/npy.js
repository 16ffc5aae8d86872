/** NumPy's .npy files, version 1 to 3: little-endian, in C order. */

const CODES = {
  "<f4": Float32Array,
  "<f8": Float64Array,
  "<i2": Int16Array,
  "<i4": Int32Array,
  "<i8": BigInt64Array,
  "<u2": Uint16Array,
  "<u4": Uint32Array,
  "|i1": Int8Array,
  "|u1": Uint8Array,
  "|b1": Uint8Array,
};
const CODE_OF_DTYPE = {
  f16: "<f4",
  bf16: "<f4",
  f32: "<f4",
  f64: "<f8",
  i16: "<i2",
  i32: "<i4",
  i64: "<i8",
  u16: "<u2",
  u32: "<u4",
  i8: "|i1",
  u8: "|u1",
  bool: "|b1",
};
const HEAD = "\x93NUMPY";

/** Return {data, dims} of a file's ArrayBuffer. */
export function readNpy(buffer) {
  const view = new DataView(buffer);
  const latin = (from, to) => String.fromCharCode(...new Uint8Array(buffer, from, to - from));
  if (buffer.byteLength < 12 || latin(0, 6) !== HEAD) throw new Error("expected a .npy file");
  const start = view.getUint8(6) === 1 ? 10 : 12;
  const length = start === 10 ? view.getUint16(8, true) : view.getUint32(8, true);
  const head = latin(start, Math.min(start + length, buffer.byteLength));
  const code = /'descr':\s*'([^']+)'/.exec(head)?.[1];
  if (!CODES[code])
    throw new Error(`dtype ${code} is not supported; convert the array, for example with .astype("float32")`);
  if (/'fortran_order':\s*True/.test(head))
    throw new Error("expected C order, got Fortran order; save numpy.ascontiguousarray of the array");
  const dims = [...(/'shape':\s*\(([^)]*)\)/.exec(head)?.[1] ?? "").matchAll(/\d+/g)].map(Number);
  const count = dims.reduce((product, dim) => product * dim, 1);
  const bytes = count * CODES[code].BYTES_PER_ELEMENT;
  if (buffer.byteLength - start - length < bytes)
    throw new Error(`expected ${bytes} bytes for ${dims.join(" × ")}, got ${buffer.byteLength - start - length}`);
  return { data: new CODES[code](buffer.slice(start + length, start + length + bytes)), dims };
}

/** Return the bytes of a file with `data` (a typed array, or numbers) of a dtype of the program. */
export function writeNpy({ data, dims, dtype }) {
  const code = CODE_OF_DTYPE[dtype];
  const shape = dims.map((dim) => `${dim},`).join(" ");
  const head = `{'descr': '${code}', 'fortran_order': False, 'shape': (${shape}), }`;
  const text = `${head.padEnd(Math.ceil((head.length + 11) / 64) * 64 - 11)}\n`;
  const values = CODES[code].from(data, code === "<i8" ? BigInt : Number);
  const bytes = new Uint8Array(10 + text.length + values.byteLength);
  [...HEAD].forEach((letter, at) => (bytes[at] = letter.charCodeAt(0)));
  bytes[6] = 1;
  new DataView(bytes.buffer).setUint16(8, text.length, true);
  bytes.set(new TextEncoder().encode(text), 10);
  bytes.set(new Uint8Array(values.buffer), 10 + text.length);
  return bytes;
}
