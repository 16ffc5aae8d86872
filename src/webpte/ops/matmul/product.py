"""Which kernel multiplies two matrices, and how.

CPU-like devices run register tiles, and where invocations can hand values to each other they read the left operand only
once between them. GPUs run kernels whose invocations read neighboring elements, or share what they read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...lowering.context import Context, Dims, Tensor
from ...lowering.variants import ANYWHERE, Requirements, Variant
from ...wgsl import Caps, Uniforms, f32, u32
from .epilogue import STORED, CompiledEpilogue

MAX_FEW_ROWS = 16  # up to which a row has the same bits in any batch on a GPU: docs/numbers.md
LANES = 8  # invocations that share a load, at most: more would unroll the kernel further
# Rows of a tile: one row more should cost little more, and every size is a kernel to compile.
TILE_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)


class Addend(NamedTuple):
    """The addend of a product: beta * tensor, read with these strides over (batch, row, column)."""

    tensor: Tensor
    strides: Dims
    beta: float = 1.0


class ProductShape(NamedTuple):
    """(B, M, K) x (B, K, N) -> (B, M, N)."""

    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def kind(self) -> str:
        """Return the class of the number of rows, for tuning: 1, few, or many."""
        return "row" if self.rows == 1 else "few" if self.rows <= MAX_FEW_ROWS else "many"


class WorkgroupTile(NamedTuple):
    """The results of a workgroup whose invocations share what they read. All tiles add up along K in one order.

    More results of an invocation need fewer reads of workgroup memory for each product, and more registers.
    """

    name: str  # of its variants
    size: int  # rows, and columns
    own: int  # rows, and columns, of an invocation
    quads: int  # vectors along K that workgroup memory holds for each row and column
    busy: int  # fewer of these tiles would leave cores of a large GPU without work

    @property
    def workgroup(self) -> int:
        return (self.size // self.own) ** 2

    def keeps_busy(self, shape: ProductShape) -> bool:
        """Return whether there are enough of these tiles for all cores of a GPU."""
        tiles = shape.batch * -(-shape.rows // self.size) * -(-shape.columns // self.size)
        return tiles >= self.busy


SMALL = WorkgroupTile("shared", size=32, own=4, quads=4, busy=0)
LARGE = WorkgroupTile("shared-64", size=64, own=4, quads=4, busy=64)
WIDE = WorkgroupTile("shared-wide", size=64, own=8, quads=2, busy=128)
WIDE_REGISTERS = 128  # of an invocation of WIDE: 64 sums, 32 values of the right operand, and addresses


class MatrixStrides(NamedTuple):
    """Where the rows of an operand's matrices lie. Batches come in runs of `heads`: see ProductLayout."""

    outer: int
    head: int
    row: int

    def fits(self, width: int) -> bool:
        return all(step % width == 0 for step in self)


class ProductLayout(NamedTuple):
    """Where the operands of a product lie, their columns always side by side."""

    a: MatrixStrides
    b: MatrixStrides
    y: MatrixStrides
    by_rows: bool = False  # `b` has rows of K, not of N
    heads: int = 1  # batches that follow one another by `head`; then `outer` leads to the next run


def contiguous(shape: ProductShape, by_rows: bool = False, shared: bool = False) -> ProductLayout:
    """Return the layout of matrices that follow each other. `shared`: `a` has one matrix for all batches."""
    _, rows, inner, columns = shape
    a = MatrixStrides(0 if shared else rows * inner, 0, inner)
    return ProductLayout(
        a,
        MatrixStrides(inner * columns, 0, inner if by_rows else columns),
        MatrixStrides(rows * columns, 0, columns),
        by_rows,
    )


class ProductParams(Uniforms):
    rows: u32
    inner: u32
    columns: u32
    row_tiles: u32
    column_groups: u32  # workgroups side by side
    tile_rows: u32
    tile_columns: u32
    depth: u32  # quads of K that a workgroup holds
    parts: u32  # steps of K that a subgroup holds
    heads: u32
    a_outer: u32
    a_head: u32
    a_row: u32
    b_outer: u32
    b_head: u32
    b_row: u32
    y_outer: u32
    y_head: u32
    y_row: u32
    c_batch: u32
    c_row: u32
    c_column: u32
    alpha: f32
    beta: f32


@dataclass(frozen=True, slots=True)
class ProductConfig:
    """A kernel and how it is laid over the result."""

    template: str
    rows: int
    columns: int  # of an invocation, or of a workgroup that shares its work
    workgroup: int
    across: int  # columns of a workgroup
    flags: dict[str, object]
    parts: int = 1
    quads: int = 0  # of K that a workgroup holds, if it shares its work


def product(
    cx: Context,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    shape: ProductShape,
    layout: ProductLayout,
    *,
    addend: Addend | None = None,
    alpha: float = 1.0,
    epilogue: CompiledEpilogue = STORED,
) -> None:
    """Compute out = epilogue(alpha * a @ b + beta * addend)."""
    config = _choose(cx, shape, layout, a.wgsl).config(cx.caps, shape, layout)
    row_tiles, column_groups = -(-shape.rows // config.rows), -(-shape.columns // config.across)
    c_batch, c_row, c_column = addend.strides if addend else (0, 0, 0)
    params = ProductParams(
        rows=shape.rows,
        inner=shape.inner,
        columns=shape.columns,
        row_tiles=row_tiles,
        column_groups=column_groups,
        tile_rows=config.rows,
        tile_columns=config.columns,
        depth=config.quads,
        parts=config.parts,
        heads=layout.heads,
        **_steps(layout),
        c_batch=c_batch,
        c_row=c_row,
        c_column=c_column,
        alpha=alpha,
        beta=addend.beta if addend else 0.0,
    )
    cx.dispatch(
        config.template,
        reads={"a": a, "b": b, "c": addend.tensor if addend else None, **epilogue.arrays},
        writes={"y": out},
        params=epilogue.extend(params),
        threads=shape.batch * row_tiles * column_groups * config.workgroup,
        workgroup=config.workgroup,
        type=a.wgsl,
        out_type=out.wgsl,
        added=addend is not None,
        program=epilogue.program,
        **config.flags,
    )


def _steps(layout: ProductLayout) -> dict[str, int]:
    named = {"a": layout.a, "b": layout.b, "y": layout.y}
    return {f"{name}_{axis}": step for name, steps in named.items() for axis, step in steps._asdict().items()}


def _shared(caps: Caps, shape: ProductShape, layout: ProductLayout, *, tile: WorkgroupTile) -> ProductConfig:
    """Return the configuration whose workgroups share what they read."""
    flags: dict[str, object] = {"size": tile.size, "own": tile.own, "quads": tile.quads, "by_rows": layout.by_rows}
    return ProductConfig(
        template="matmul/matmul_shared.wgsl",
        rows=tile.size,
        columns=tile.size,
        workgroup=tile.workgroup,
        across=tile.size,
        flags=flags | {"a_width": _a_width(shape, layout)},
        quads=tile.quads,
    )


R = TypeVar("R")


def tile_variants(rule: Callable[[WorkgroupTile], R]) -> dict[WorkgroupTile, Variant[R]]:
    """Return a variant for each tile, with the rule that makes its configuration."""
    return {
        tile: Variant(tile.name, Requirements(workgroup=tile.workgroup), rule(tile), "steps")
        for tile in (SMALL, LARGE, WIDE)
    }


def preferred_tiles(caps: Caps, shape: ProductShape) -> list[WorkgroupTile]:
    """Return the tiles for many rows, the best first. Those that may be measured besides follow."""
    tiles = [SMALL, LARGE, WIDE] if caps.registers >= WIDE_REGISTERS else [SMALL, LARGE]
    best = max((tile for tile in tiles if tile.keeps_busy(shape)), key=tiles.index, default=SMALL)
    return [best, *(tile for tile in tiles if tile is not best)]


def _lanes(caps: Caps, shape: ProductShape, layout: ProductLayout) -> ProductConfig:
    rows, workgroup = next(r for r in (1, 2, 4) if r >= min(shape.rows, 4)), caps.workgroup(64)
    flags: dict[str, object] = {"rows": rows, "columns": 4, "a_width": _a_width(shape, layout)}
    return ProductConfig(
        template="matmul/matmul_lanes.wgsl", rows=rows, columns=4, workgroup=workgroup, across=4, flags=flags
    )


def _a_width(shape: ProductShape, layout: ProductLayout) -> int:
    """Return how many elements of a row of `a` can be read at once, and of `b` if that is by rows."""
    fits = shape.inner % 4 == 0 and layout.a.fits(4) and (not layout.by_rows or layout.b.fits(4))
    return 4 if fits else 1


def _tile(caps: Caps, shape: ProductShape, layout: ProductLayout, *, max_rows: int, broadcast: bool) -> ProductConfig:
    """Return the configuration whose invocations own up to `max_rows` rows. `broadcast`: subgroups share their loads.

    All tiles add up along K in one order: a row's result does not depend on the number of rows.
    """
    on_cpu = caps.kind == "cpu"
    workgroup = caps.workgroup(LANES if on_cpu else 64)
    columns, a_width = 4, _a_width(shape, layout)
    lanes = min(caps.subgroup, LANES, workgroup) if broadcast else 0
    if not broadcast and not layout.by_rows and on_cpu:
        columns, a_width = 16, 1  # a long way along each row of `b`, which are far from each other
    b_width = a_width
    if not layout.by_rows:
        b_width = 4 if shape.columns % 4 == 0 and layout.b.fits(4) else 1
    rows = tile_rows(shape.rows, max_rows if layout.by_rows else min(max_rows, 24))
    parts = max(1, lanes // rows)
    flags: dict[str, object] = {
        "rows": rows,
        "columns": columns,
        "lanes": lanes,
        "a_width": a_width,
        "b_width": b_width,
        "by_rows": layout.by_rows,
        "tail": not lanes or shape.inner // a_width % parts != 0,
    }
    return ProductConfig(
        template="matmul/matmul_tile.wgsl",
        rows=rows,
        columns=columns,
        workgroup=workgroup,
        across=columns * workgroup,
        flags=flags,
        parts=parts,
    )


def tile_rows(rows: int, max_rows: int) -> int:
    """Return the rows of a tile that divide `rows` evenly among the fewest tiles."""
    rows = max(1, rows)
    return next(size for size in TILE_ROWS if size >= -(-rows // -(-rows // max_rows)))


Rule = Callable[[Caps, ProductShape, ProductLayout], ProductConfig]
TILE: Variant[Rule] = Variant("tile", ANYWHERE, functools.partial(_tile, max_rows=8, broadcast=False), "tiles")
BROADCAST: Variant[Rule] = Variant(
    "broadcast", Requirements(subgroup=4), functools.partial(_tile, max_rows=32, broadcast=True), "tiles"
)
BY_LANES: Variant[Rule] = Variant("lanes", ANYWHERE, _lanes, "lanes")
BY_WORKGROUPS: dict[WorkgroupTile, Variant[Rule]] = tile_variants(lambda tile: functools.partial(_shared, tile=tile))


def _choose(cx: Context, shape: ProductShape, layout: ProductLayout, type: str) -> Variant[Rule]:
    by_rows = layout.by_rows
    key = (shape.kind, shape.columns, shape.inner, "rows" if by_rows else "columns", type)
    # One row has little to share, and long reads along rows of `b` are faster.
    cpu = (TILE, BROADCAST) if shape.kind == "row" and not by_rows else (BROADCAST, TILE)
    gpu: tuple[Variant[Rule], ...]
    if shape.kind == "many":
        gpu = (*(BY_WORKGROUPS[tile] for tile in preferred_tiles(cx.caps, shape)), TILE)
    else:
        gpu = (BY_LANES, TILE) if by_rows else (TILE, BY_WORKGROUPS[SMALL])
    return cx.variant("product", key, cpu=cpu, gpu=gpu)
