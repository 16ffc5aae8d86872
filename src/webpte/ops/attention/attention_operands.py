"""The operands, parameters and visible keys that all attention kernels share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...errors import GraphError, ShapeError
from ...graph import DType
from ...graph.names import INT8_SCALE_BYTES
from ...lowering.context import Tensor, load_type
from ...wgsl import Live, LiveInt, Uniforms, f32, u32

FIRST = LiveInt(0, -1)
MAX_WIDTH = 256  # of a head's values: the invocations of a row hold them all


def row_width(keys: Tensor) -> int:
    """Return the elements per head of keys or values. Rows that are stored as int8 end with their scale."""
    return keys.dims[3] - INT8_SCALE_BYTES if keys.dtype is DType.INT8 else keys.dims[3]


def cache_type(cache: Tensor, lanes: int) -> str:
    """Return the load type of keys and values."""
    return f"i8x{lanes}" if cache.dtype is DType.INT8 else load_type(cache, lanes)


class AttentionParams(Uniforms):
    """The parameters that all attention kernels share."""

    start: Live
    keys: u32  # the first token of the query sees start + keys keys
    heads: u32
    key_heads: u32
    group: u32  # query heads that share a key head
    batch_rows: u32  # strides of keys and values in rows of one head's elements: to the next batch,
    head_rows: u32  # the next head,
    key_rows: u32  # and the next key
    key_steps: u32  # loads per row
    value_steps: u32
    scale: f32


@dataclass(frozen=True)
class CachedAttention:
    """The first arguments of an attention that caches its keys and values, in the schema's order."""

    query: Tensor
    key: Tensor
    value: Tensor
    key_cache: Tensor
    value_cache: Tensor

    @property
    def caches(self) -> tuple[Tensor, Tensor]:
        return self.key_cache, self.value_cache


@dataclass(frozen=True)
class VisibleKeys:
    """Token t of the query sees the first `start + keys` keys, with `causal` t more."""

    keys: int
    start: LiveInt = FIRST
    causal: bool = False


@dataclass(frozen=True)
class AttentionOperands:
    """Queries, keys and values of (B, S, H, D), with `heads_first` (B, H, S, D). They may differ in H, values in D."""

    query: Tensor
    key: Tensor
    value: Tensor
    heads_first: bool = False

    def __post_init__(self) -> None:
        q, k, v = self.query, self.key, self.value
        if k.dims[:3] != v.dims[:3] or row_width(k) != q.dims[3] or not self._batches_fit:
            raise ShapeError(
                f"query {list(q.dims)}, key {list(k.dims)} and value {list(v.dims)} have incompatible shapes",
                code="operand_mismatch",
            )
        if self.key_heads == 0 or self.heads % self.key_heads:
            raise ShapeError(
                f"the number of query heads, {self.heads}, is not a multiple of the number of key "
                f"heads, {self.key_heads}",
                code="head_count",
            )
        if not 0 < row_width(v) <= self.max_width:
            raise ShapeError(
                argument="value",
                expected=f"heads of 1 to {self.max_width} elements",
                got=row_width(v),
                code="head_size",
            )
        if k.dtype is not v.dtype:
            raise GraphError(
                f"key and value: expected the same dtype, got {k.dtype.short} and {v.dtype.short}", code="dtype"
            )

    @property
    def max_width(self) -> int:
        """Return the largest number of elements of a head that the kernels take."""
        return MAX_WIDTH

    @property
    def _batches_fit(self) -> bool:
        return self.key.dims[0] in (1, self.query.dims[0])

    @property
    def batch(self) -> int:
        return self.query.dims[0]

    @property
    def token_batch(self) -> int:
        """Return the number of batches that the kernel for one token computes."""
        return self.batch

    @property
    def max_batch(self) -> int:
        """Return the largest possible batch."""
        return self.query.bound[0]

    @property
    def occupancy_batch(self) -> int:
        """Return the part of the batch that may decide how the work is divided."""
        return self.batch

    @property
    def seq(self) -> int:
        return self.query.dims[2 if self.heads_first else 1]

    @property
    def capacity(self) -> int:
        """Return the number of keys, masked or not."""
        return self.key.dims[2 if self.heads_first else 1]

    @property
    def max_keys(self) -> int:
        """Return the largest possible capacity."""
        return self.key.bound[2 if self.heads_first else 1]

    @property
    def heads(self) -> int:
        return self.query.dims[1 if self.heads_first else 2]

    @property
    def key_heads(self) -> int:
        return self.key.dims[1 if self.heads_first else 2]

    @property
    def group(self) -> int:
        return self.heads // self.key_heads

    @property
    def lanes(self) -> int:
        """Return the elements per load."""
        return 4 if self.query.dims[3] % 4 == 0 and self.value.dims[3] % 4 == 0 else 1

    @property
    def key_steps(self) -> int:
        return self.query.dims[3] // self.lanes

    @property
    def value_steps(self) -> int:
        return row_width(self.value) // self.lanes

    @property
    def load_types(self) -> tuple[str, str]:
        """Return the load types of queries, and of keys and values; see loads.wgsl."""
        return load_type(self.query, self.lanes), cache_type(self.key, self.lanes)

    @property
    def score_flags(self) -> dict[str, object]:
        """Return the flags for what limits the scores besides causality."""
        return {}

    @property
    def _batch_rows(self) -> int:
        return 0 if self.key.dims[0] == 1 else self.key_heads * self.capacity

    def params(self, visible: VisibleKeys, scale: float | None) -> dict[str, Any]:
        """Return the fields of `AttentionParams`."""
        return {
            "start": visible.start,
            "keys": visible.keys,
            "heads": self.heads,
            "key_heads": self.key_heads,
            "group": self.group,
            "batch_rows": self._batch_rows,
            "head_rows": self.capacity if self.heads_first else 1,
            "key_rows": 1 if self.heads_first else self.key_heads,
            "key_steps": self.key_steps,
            "value_steps": self.value_steps,
            "scale": 1 / math.sqrt(self.query.dims[3]) if scale is None else scale,
        }
