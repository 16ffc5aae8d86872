"""Decode the blocks of GGUF tensors, in NumPy and all blocks of a tensor at once.

A block is a row of bytes; its fields are columns. Formats are those of ggml: <https://github.com/ggml-org/ggml>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
GROUP = 32  # weights that share a step and an offset, in the formats that `decode_affine` takes


class Affine(NamedTuple):
    """Weights as `steps * codes + offsets`; codes are not negative."""

    codes: Array  # (blocks, groups, GROUP) u8
    steps: Array  # (blocks, groups) f32
    offsets: Array  # (blocks, groups) f32

    def values(self) -> Array:
        """Return the weights, (blocks, groups * GROUP) f32."""
        result: Array = self.steps[..., None] * self.codes + self.offsets[..., None]
        return result.reshape(len(result), -1)


class TensorType(NamedTuple):
    """How a type of tensor is stored."""

    name: str
    weights: int  # of a block
    bytes: int
    decode: Callable[[Array], Array] | None = None  # (blocks, bytes) u8 -> (blocks, weights) f32
    affine: Callable[[Array], Affine] | None = None  # the same without a rounding, if its groups have 32 weights
    bits: int = 32  # of a code
    # The codes and scales of a format in ops/weight_formats, (blocks, bytes) each.
    codes: Callable[[Array], tuple[Array, Array]] | None = None


def _halves(data: Array) -> Array:
    """Return columns of bytes as f16 numbers, in f32."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _nibbles(data: Array) -> Array:
    """Return the lower halves of all bytes of the last axis, then the upper halves."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def _bit(data: Array, number: Any) -> Array:
    result: Array = data >> np.asarray(number, np.uint8) & 1
    return result


# ---------------------------------------------------------------- floats


def _f32(data: Array) -> Array:
    return data.view("<f4")


def _f64(data: Array) -> Array:
    return data.view("<f8").astype(np.float32)


def _f16(data: Array) -> Array:
    return data.view("<f2").astype(np.float32)


def bf16(data: Array) -> Array:
    """Return bf16 numbers, as bytes or u16, in f32: they are its upper half."""
    words = data.view("<u2").astype(np.uint32)
    words <<= np.uint32(16)
    return words.view(np.float32)


# ---------------------------------------------------------------- 32 weights with an f16 step


def _q4_0(data: Array) -> Affine:
    steps = _halves(data[:, :2])
    return Affine(_nibbles(data[:, None, 2:]), steps, steps * np.float32(-8))


def _q4_1(data: Array) -> Affine:
    numbers = _halves(data[:, :4])
    return Affine(_nibbles(data[:, None, 4:]), numbers[:, :1], numbers[:, 1:])


def _fifth_bits(data: Array) -> Array:
    """Return the fifth bit of 32 codes, shifted to its place: (blocks, 4) -> (blocks, 1, 32)."""
    return np.unpackbits(data, axis=-1, bitorder="little")[:, None] << 4


def _q5_0(data: Array) -> Affine:
    steps = _halves(data[:, :2])
    codes = _nibbles(data[:, None, 6:]) | _fifth_bits(data[:, 2:6])
    return Affine(codes, steps, steps * np.float32(-16))


def _q5_1(data: Array) -> Affine:
    numbers = _halves(data[:, :4])
    codes = _nibbles(data[:, None, 8:]) | _fifth_bits(data[:, 4:8])
    return Affine(codes, numbers[:, :1], numbers[:, 1:])


def _q8_0(data: Array) -> Array:
    return _halves(data[:, :2]) * np.ascontiguousarray(data[:, 2:]).view(np.int8)


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def mxfp4_values(codes: Array, scales: Array) -> Array:
    """Return the numbers (N, K) of MXFP4, from codes (N, K / 2), two to a byte, and scales (N, K / 32)."""
    numbers = _E2M1[np.stack([codes & 15, codes >> 4], axis=-1)].reshape(len(codes), -1, GROUP)
    steps = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)  # inf for 255, which means NaN
    result: Array = numbers * steps[..., None]
    return result.reshape(len(codes), -1)


def _mxfp4(data: Array) -> tuple[Array, Array]:
    codes = _nibbles(data[:, 1:])
    return codes[:, 0::2] | codes[:, 1::2] << 4, data[:, :1]


# ---------------------------------------------------------------- 256 weights in groups


def _k_numbers(data: Array) -> tuple[Array, Array]:
    """Return the steps and offsets of 8 groups, (blocks, 8) each: 6 bits each in 12 bytes, times an f16 number."""
    factors = _halves(data[:, :4])
    low, high, mixed = data[:, 4:8], data[:, 8:12], data[:, 12:16]
    steps = np.concatenate([low & 63, mixed & 15 | low >> 6 << 4], axis=1)
    offsets = np.concatenate([high & 63, mixed >> 4 | high >> 6 << 4], axis=1)
    return factors[:, :1] * steps, -(factors[:, 1:] * offsets)


def _k_nibbles(data: Array) -> Array:
    """Return the codes of 8 groups, (blocks, 128) -> (blocks, 8, 32): two groups share 32 bytes."""
    pairs = data.reshape(-1, 4, 1, 32)
    return np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(data: Array) -> Affine:
    return Affine(_k_nibbles(data[:, 16:]), *_k_numbers(data))


def _q5_k(data: Array) -> Affine:
    fifth = _bit(data[:, None, 16:48], np.arange(8)[:, None])  # (blocks, 8, 32)
    return Affine(_k_nibbles(data[:, 48:]) | fifth << 4, *_k_numbers(data))


def _q6_k(data: Array) -> Array:
    pairs = data[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([pairs & 15, pairs >> 4], axis=2).reshape(-1, 8, 32)
    high = data[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (low | (high.reshape(-1, 8, 32) & 3) << 4).view(np.int8) - np.int8(32)
    steps = _halves(data[:, 208:]) * np.ascontiguousarray(data[:, 192:208]).view(np.int8)  # (blocks, 16)
    result: Array = codes.reshape(-1, 16, 16) * steps[..., None]
    return result.reshape(-1, 256)


def _values(affine: Callable[[Array], Affine]) -> Callable[[Array], Array]:
    return lambda data: affine(data).values()


def _groups(name: str, weights: int, size: int, affine: Callable[[Array], Affine], bits: int) -> TensorType:
    return TensorType(name, weights, size, _values(affine), affine, bits)


# By the number of the type in the file.
TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4, _f32),
    1: TensorType("F16", 1, 2, _f16),
    2: _groups("Q4_0", 32, 18, _q4_0, 4),
    3: _groups("Q4_1", 32, 20, _q4_1, 4),
    6: _groups("Q5_0", 32, 22, _q5_0, 5),
    7: _groups("Q5_1", 32, 24, _q5_1, 5),
    8: TensorType("Q8_0", 32, 34, _q8_0, bits=8),
    12: _groups("Q4_K", 256, 144, _q4_k, 4),
    13: _groups("Q5_K", 256, 176, _q5_k, 5),
    14: TensorType("Q6_K", 256, 210, _q6_k, bits=6),
    28: TensorType("F64", 1, 8, _f64),
    30: TensorType("BF16", 1, 2, bf16),
}
# Types that the package gguf decodes, if it is installed, or that no model has.
_OTHERS = {
    9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip
TYPES |= {number: TensorType(*sizes, bits=sizes[2] * 8 // sizes[1]) for number, sizes in _OTHERS.items()}
MXFP4 = 39
TYPES[MXFP4] = TYPES[MXFP4]._replace(codes=_mxfp4, decode=lambda data: mxfp4_values(*_mxfp4(data)))
