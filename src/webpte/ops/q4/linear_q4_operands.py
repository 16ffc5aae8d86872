"""The operands of a linear layer with 4-bit or 8-bit weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ShapeError
from ...graph import numel
from ...lowering.context import Tensor
from ..matmul.epilogue import STORED, CompiledEpilogue
from ..weight_formats import E8M0, CodeFormat, format_named, scale_type
from .quantize_rows import RmsNorm

OFFSET_SCALE_BYTES = 4  # of a column


class PackedWeight(NamedTuple):
    """A weight (N, K): the numbers of codes, times scales[k / group, n]."""

    codes: Tensor  # (N, at least K / 2) bytes, or K of 8 bits
    scales: Tensor  # (K / group, at least N), or (N,) for a single group
    group: int
    format: CodeFormat = format_named("int4")

    def check(self, inner: int) -> None:
        """Raise ShapeError if the weight does not fit K = `inner`."""
        columns, row_bytes = self.codes.dims if self.codes.rank == 2 else (0, 0)
        *groups, stride = self.scales.dims if self.scales.rank in (1, 2) else (0, 0)
        grouped = self.group > 0 and -(-inner // self.group) == numel(tuple(groups))
        row_codes = row_bytes * 8 // self.format.bits
        fits = row_codes == inner or (self.format.bits == 4 and row_codes > inner)  # rows of 4-bit codes may be padded
        if not grouped or not fits or stride < columns:
            raise ShapeError(
                f"codes {list(self.codes.dims)} and scales {list(self.scales.dims)} in groups of "
                f"{self.group} do not fit {inner} columns of the input",
                code="operand_mismatch",
            )

    @property
    def columns(self) -> int:
        return self.codes.dims[0]

    @property
    def scale_stride(self) -> int:
        return self.scales.dims[-1]

    def has_aligned_scales(self, first: int, count: int) -> bool:
        """Return whether the scales of `count` neighboring columns from `first` can be read at once."""
        return scale_type(self.scales) != E8M0 and self.scale_stride % count == 0 and first % count == 0

    def words_per_load(self, inner: int) -> int:
        """Return how many words of one group can be read at once; 0 if groups or rows do not start at words."""
        row_words, rest = divmod(self.codes.dims[1], 4)
        word_codes = self.format.word_codes
        if rest or self.group % word_codes or inner % self.group or row_words * word_codes != inner:
            return 0
        return next(words for words in (4, 2, 1) if self.group // word_codes % words == 0)


@dataclass(frozen=True, slots=True)
class LinearQ4Operands:
    """A linear layer, y = epilogue(x W^T + bias), whose columns are split among the outputs.

    With two weights it is epilogue(x A^T, x B^T). With a norm, the rows of x are normalized first, then rounded if they
    are rounded. With offsets, each group of a weight has a number that is added to its products of codes and scale.
    """

    x: Tensor  # (..., K)
    weights: tuple[PackedWeight, ...]
    outs: Sequence[Tensor]
    bias: Tensor | None = None
    row_qparams: tuple[Tensor, Tensor] | None = None  # scale and zero of each row of x, which is rounded to int8
    norm: RmsNorm | None = None
    offsets: Tensor | None = None  # bytes: see linear_q4_bindings.wgsl
    row_eps: float | None = None  # rows are rounded to int8 by their ranges, with scales of at least this
    epilogue: CompiledEpilogue = STORED  # of one output

    @property
    def inner(self) -> int:
        return self.x.dims[-1] if self.x.dims else 0

    @property
    def rows(self) -> int:
        return numel(self.x.dims[:-1])

    @property
    def columns(self) -> int:
        return self.weights[0].columns

    @property
    def has_rounded_rows(self) -> bool:
        return self.row_qparams is not None or self.row_eps is not None

    @property
    def groups(self) -> int:
        """Return the number of groups of a row of a weight."""
        return -(-self.inner // self.weights[0].group)

    def check(self) -> None:
        for weight in self.weights:
            weight.check(self.inner)
            if weight.columns != self.columns or weight.scale_stride != self.weights[0].scale_stride:
                raise ShapeError(
                    f"gate and up projection: expected equal numbers of columns, got {self.columns}, {weight.columns}",
                    code="operand_mismatch",
                )
        if self.bias is not None and self.bias.numel < self.columns:
            raise ShapeError(
                f"bias {list(self.bias.dims)} does not fit {self.columns} columns", code="operand_mismatch"
            )
        if self.norm is not None and self.norm.weight.dims != (self.inner,):
            raise ShapeError(
                f"norm {list(self.norm.weight.dims)} and the last dim of {list(self.x.dims)} differ",
                code="operand_mismatch",
            )
        size = len(self.weights) * self.columns * (self.groups + OFFSET_SCALE_BYTES)
        if self.offsets is not None and (self.offsets.numel != size or self.columns % 4):
            raise ShapeError(
                f"offsets {list(self.offsets.dims)} do not fit {self.groups} groups of {self.columns} columns",
                code="operand_mismatch",
            )
