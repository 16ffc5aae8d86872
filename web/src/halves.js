/** 16-bit floats. Not every browser has Float16Array. */

/** Return the nearest integer; a half is rounded to even. @param {number} x */
export function roundEven(x) {
  const low = Math.floor(x);
  const above = x - low;
  return above < 0.5 || (above === 0.5 && low % 2 === 0) ? low : low + 1;
}

/** @param {number} size positive and finite */
function exponent(size) {
  const guess = Math.floor(Math.log2(size));
  return 2 ** guess > size ? guess - 1 : 2 ** (guess + 1) <= size ? guess + 1 : guess;
}

/** Return a number rounded to f16; numbers from 65520 become infinite. @param {number} x */
export function half(x) {
  const size = Math.abs(x);
  if (!(size > 0) || size === Infinity) return x;
  if (size >= 65520) return Math.sign(x) * Infinity;
  const step = 2 ** (Math.max(exponent(size), -14) - 10);
  return Math.sign(x) * roundEven(size / step) * step;
}

/** @param {number} x */
export function bfloat(x) {
  const bits = new Uint32Array(Float32Array.of(x).buffer);
  if (!Number.isNaN(x)) bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
  return new Float32Array(bits.buffer)[0];
}

/** @param {number} x */
export function toHalfBits(x) {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const size = Math.abs(half(x));
  if (Number.isNaN(x)) return 0x7e00;
  if (size === Infinity) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | (size * 2 ** 24);
  const power = exponent(size);
  return sign | ((power + 15) << 10) | ((size / 2 ** power - 1) * 1024);
}

/** @param {number} bits */
export function fromHalfBits(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const power = (bits >> 10) & 31;
  const rest = bits & 1023;
  if (power === 31) return rest ? NaN : sign * Infinity;
  return sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -24 * rest);
}
