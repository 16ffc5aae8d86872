"""Which kernel runs a linear layer with 4-bit or 8-bit weights, and how.

CPU-like devices run register tiles, and where invocations can hand values to each other they read x only once between
them. GPUs run kernels whose invocations read neighboring words. Weights whose rows or groups do not begin at words
have a kernel of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ...lowering.context import Context, Tensor
from ...lowering.variants import ANYWHERE, Requirements, Variant
from ...wgsl import (
    AMD,
    APPLE,
    ARM,
    FEW_REGISTERS,
    INTEL,
    MANY_REGISTERS,
    MATRIX_SHAPES,
    Caps,
    Uniforms,
    f32,
    matrix_feature,
    u32,
)
from ..matmul.product import LARGE, MAX_FEW_ROWS, SMALL, ProductShape, WorkgroupTile, preferred_tiles, tile_variants
from ..norm.norm import normalize_rows
from ..weight_formats import scale_type
from .linear_q4_operands import LinearQ4Operands
from .quantize_rows import RmsNorm, halve_rows, quantize_rows, quantize_rows_by

MAX_BROADCAST_LANES = 8  # maximum invocations that share their loads
LARGE_COLUMNS = 4096  # from which on workgroups have eight columns of one row, which share the work of x and its norm
PACKED_STEP = 4  # words of 8 codes that a workgroup of linear_q4_packed.wgsl holds
MATRIX_DEPTH = 32  # numbers along K in workgroup memory: with 64 rows, columns and sums it has 16 KiB at most
HALVES_QUADS = 4  # vectors along K that are added up in f16: more would lose bits, fewer would add to f32 more often


class ColumnsParams(Uniforms):
    """The columns that a kernel computes."""

    rows: u32
    columns: u32  # of the part of the weight that is bound
    first: u32  # where that part begins
    out_columns: u32
    second: u32  # where the columns of the second and the third output begin
    third: u32
    scale_stride: u32


class LinearQ4Params(ColumnsParams):
    stride: u32  # workgroups side by side, or for lanes below each other
    groups: u32
    group_loads: u32  # loads of a group, and of a row of the weight
    row_loads: u32
    tile_rows: u32
    tile_columns: u32
    load_words: u32


class LinearQ4LanesParams(LinearQ4Params):
    norm_columns: f32  # K
    norm_eps: f32


class LinearQ4SharedParams(ColumnsParams):
    column_groups: u32
    row_words: u32
    step: u32


class LinearQ4AnyParams(ColumnsParams):
    inner: u32
    groups: u32
    group: u32
    row_codes: u32  # codes that a row of the weight has room for


class LinearQ4Config(NamedTuple):
    """A kernel and how it is laid over the result."""

    template: str
    flags: dict[str, object]
    params: Uniforms
    threads: int
    workgroup: int


def _columns(layer: LinearQ4Operands, first: int, count: int) -> dict[str, int]:
    """Return the parameters that every kernel has for the `count` columns from `first`."""
    weight = layer.weights[0]
    starts = [sum(out.dims[-1] for out in layer.outs[:n]) for n in (1, 2)]
    bound = {"rows": layer.rows, "columns": count, "first": first, "out_columns": weight.columns}
    return bound | {"second": starts[0], "third": starts[1], "scale_stride": weight.scale_stride}


def _coding(layer: LinearQ4Operands) -> dict[str, object]:
    """Return the flags of kernels that read x as it is and codes one by one."""
    return {"type": layer.x.wgsl, "loader": layer.weights[0].format.loader}


def _any(caps: Caps, layer: LinearQ4Operands, bound: dict[str, int]) -> LinearQ4Config:
    weight = layer.weights[0]
    row_codes = weight.codes.dims[1] * 8 // weight.format.bits
    params = LinearQ4AnyParams(inner=layer.inner, groups=layer.groups, group=weight.group, row_codes=row_codes, **bound)
    return LinearQ4Config("q4/linear_q4_any.wgsl", _coding(layer), params, layer.rows * bound["columns"], 32)


def _shared(caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, tile: WorkgroupTile) -> LinearQ4Config:
    """Return the configuration whose workgroups own a tile of the result and share what they read."""
    flags = {**_coding(layer), "size": tile.size, "own": tile.own, "quads": tile.quads}
    return _by_workgroups(layer, bound, "q4/linear_q4_shared.wgsl", tile, tile.quads, flags)


def _shared_halves(
    caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, tile: WorkgroupTile
) -> LinearQ4Config:
    """Return the same for operands in f16."""
    flags: dict[str, object] = {"size": tile.size, "own": tile.own, "quads": HALVES_QUADS}
    flags["loader"] = layer.weights[0].format.loader
    return _by_workgroups(layer, bound, "q4/linear_q4_halves.wgsl", tile, HALVES_QUADS, flags)


def _shared_matrix(
    caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, tile: WorkgroupTile, shape: tuple[int, int, int]
) -> LinearQ4Config:
    """Return the same for matrix units, whose instructions have a shape (M, N, K)."""
    flags: dict[str, object] = {"size": tile.size, "shape": shape, "depth": MATRIX_DEPTH}
    flags |= {"loader": layer.weights[0].format.loader, "tail": layer.inner % MATRIX_DEPTH != 0}
    workgroup = 2 * tile.size  # a subgroup of 32 for each part: see matrix.wgsl
    return _by_workgroups(layer, bound, "q4/linear_q4_matrix.wgsl", tile, MATRIX_DEPTH, flags, workgroup)


def _shared_codes(caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, tile: WorkgroupTile) -> LinearQ4Config:
    """Return the same for products of codes."""
    return _by_workgroups(layer, bound, "q4/linear_q4_packed.wgsl", tile, PACKED_STEP, {"size": tile.size})


def _by_workgroups(
    layer: LinearQ4Operands,
    bound: dict[str, int],
    template: str,
    tile: WorkgroupTile,
    step: int,
    flags: dict[str, object],
    workgroup: int = 0,
) -> LinearQ4Config:
    workgroup = workgroup or tile.workgroup
    across, down = -(-bound["columns"] * len(layer.weights) // tile.size), -(-layer.rows // tile.size)
    weight = layer.weights[0]
    row_words = layer.inner // weight.format.word_codes
    params = LinearQ4SharedParams(column_groups=across, row_words=row_words, step=step, **bound)
    group_words = weight.group // weight.format.word_codes if weight.group < layer.inner else 0
    flags = flags | {"group_words": group_words}
    return LinearQ4Config(template, flags, params, across * down * workgroup, workgroup)


def _lanes(
    caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, packed: bool = False, decode: str = "floats"
) -> LinearQ4Config:
    """Return the configuration whose workgroups own a few rows and columns, with invocations along K.

    Workgroups that share columns are neighbors: what one reads of the weight the next finds in a cache. `decode` is
    how codes become floats (weight_formats/int4.wgsl).
    """
    side = 4 if layer.rows == 1 or caps.registers > FEW_REGISTERS else 2  # rows and columns, at most
    tile = next(rows for rows in (1, 2, 4) if rows >= min(layer.rows, side))
    weight, workgroup = layer.weights[0], caps.workgroup(64)
    words = _load_words(layer, workgroup)  # the same for any number of rows: it is the order of their sums
    while layer.norm is not None and words > 1 and 48 + 16 * words > caps.registers:
        words //= 2  # about the registers of a kernel that normalizes
    many_registers = caps.registers >= MANY_REGISTERS
    large = many_registers and layer.columns * len(layer.weights) >= LARGE_COLUMNS
    words = min(words, 2) if large else words
    wide = layer.rows == 1 and many_registers and (large or words == 1)
    columns = (8 if wide else side) // len(layer.weights)
    down = -(-layer.rows // tile)
    params = _tiled_params(layer, bound, down, words, tile, columns)
    if layer.norm is not None:
        params = LinearQ4LanesParams(norm_columns=layer.inner, norm_eps=layer.norm.eps, **vars(params))
    flags = {
        **_coding(layer),
        "packed": packed,
        "decode": decode,
        "subgroups": caps.subgroup > 0,
        "aligned": columns > 1 and weight.has_aligned_scales(bound["first"], columns),
        "words": words,
        "group_loads": weight.group // (words * weight.format.word_codes) if weight.group < layer.inner else 0,
        "tile": tile,
        "columns": columns,
        "norm_type": "" if layer.norm is None else f"vec4<{layer.norm.weight.wgsl}>",
    }
    return LinearQ4Config(
        "q4/linear_q4_lanes.wgsl", flags, params, down * -(-bound["columns"] // columns) * workgroup, workgroup
    )


def _load_words(layer: LinearQ4Operands, workgroup: int) -> int:
    """Return the words that an invocation reads at once: a workgroup waits seldom and has few idle invocations."""

    def cost(words: int) -> int:
        steps = -(-layer.inner // (words * layer.weights[0].format.word_codes * workgroup))
        return steps * (words + 1)  # a step waits for memory once

    most = layer.weights[0].words_per_load(layer.inner)
    return min((words for words in (4, 2, 1) if words <= most), key=cost)


def _tiles(caps: Caps, layer: LinearQ4Operands, bound: dict[str, int], *, broadcast: bool) -> LinearQ4Config:
    """Return the configuration whose invocations own a few rows and columns. `broadcast`: subgroups share x."""
    weight = layer.weights[0]
    tile, columns, words = _broadcast_tile(layer.rows) if broadcast else _private_tile(layer.rows)
    words = min(words, weight.words_per_load(layer.inner))
    columns //= len(layer.weights)
    together = min(columns, 4)  # scales that are read at once
    workgroup = caps.workgroup(8)
    flags = {
        **_coding(layer),
        "tile": tile,
        "columns": columns,
        "words": words,
        "single": weight.group == words * weight.format.word_codes,
        "aligned": weight.has_aligned_scales(bound["first"], together),
        "lanes": min(caps.subgroup, MAX_BROADCAST_LANES, workgroup) if broadcast else 0,
    }
    across = -(-bound["columns"] // (columns * workgroup))
    params = _tiled_params(layer, bound, across, words, tile, columns)
    return LinearQ4Config("q4/linear_q4.wgsl", flags, params, across * -(-layer.rows // tile) * workgroup, workgroup)


class Tile(NamedTuple):
    """The results of an invocation. All tiles add up in one order: a row's result does not depend on its tile."""

    rows: int
    columns: int
    words: int  # of a load, at most


def _broadcast_tile(rows: int) -> Tile:
    """Return a tile that shares x in a subgroup. It has all rows, so that each further row costs the same.

    Its unrolled code must fit the instruction cache of a core: the more rows, the fewer columns and words.
    """
    if rows <= 4:
        return Tile(_even(rows, 4), 4, 4)
    if rows <= MAX_FEW_ROWS:
        return Tile(rows, 8 if rows <= 12 else 4, 1)
    return Tile(_even(rows, 12), 8, 1)


def _private_tile(rows: int) -> Tile:
    """Return a tile whose invocations each read all of x. A larger one would exceed the registers of a core."""
    return Tile(1, 16, 1) if rows <= 1 else Tile(_even(rows, 4), 8, 1)


def _even(rows: int, max_rows: int) -> int:
    """Return the rows of a tile that divide all rows evenly among the fewest tiles."""
    rows = max(1, rows)
    return -(-rows // -(-rows // max_rows))


def _tiled_params(
    layer: LinearQ4Operands, bound: dict[str, int], stride: int, words: int, tile: int, columns: int
) -> LinearQ4Params:
    load, group = words * layer.weights[0].format.word_codes, layer.weights[0].group
    loads = {"groups": layer.inner // group, "group_loads": group // load, "row_loads": layer.inner // load}
    return LinearQ4Params(stride=stride, tile_rows=tile, tile_columns=columns, load_words=words, **loads, **bound)


def _has_codes(layer: LinearQ4Operands) -> bool:
    """Return whether x is rounded to int8 and the weight has codes alone: then their codes can be multiplied."""
    return layer.has_rounded_rows and layer.weights[0].format.packs and layer.offsets is None


def _has_whole_steps(layer: LinearQ4Operands) -> bool:
    """Return whether steps of linear_q4_packed.wgsl lie in one group each."""
    return _has_codes(layer) and layer.weights[0].group % (PACKED_STEP * layer.weights[0].format.word_codes) == 0


def _has_half_steps(layer: LinearQ4Operands) -> bool:
    """Return whether steps of linear_q4_halves.wgsl lie in one group each, and x is as it was passed."""
    return not layer.has_rounded_rows and _has_pairs(layer) and layer.weights[0].group % (4 * HALVES_QUADS) == 0


def _has_own_rows(layer: LinearQ4Operands) -> bool:
    """Return whether x is as it was passed."""
    return not layer.has_rounded_rows


def _decodes_by(way: str) -> Callable[[LinearQ4Operands], bool]:
    return lambda layer: way in layer.weights[0].format.decodes


_has_halves, _has_bytes, _has_pairs = map(_decodes_by, ("halves", "bytes", "pairs"))
Rule = Callable[[Caps, LinearQ4Operands, dict[str, int]], LinearQ4Config]
ANY: Variant[Rule] = Variant("any", ANYWHERE, _any)  # where rows or groups do not begin at words; never one of several
TILE: Variant[Rule] = Variant("tile", ANYWHERE, functools.partial(_tiles, broadcast=False), "tiles")
BROADCAST: Variant[Rule] = Variant(
    "broadcast", Requirements(subgroup=1), functools.partial(_tiles, broadcast=True), "tiles"
)
LANES: Variant[Rule] = Variant("lanes", ANYWHERE, _lanes, "lanes")
HALVES: Variant[Rule] = Variant(
    "lanes-halves", Requirements(work=_has_halves), functools.partial(_lanes, decode="halves"), "lanes of halves"
)
BYTES: Variant[Rule] = Variant(
    "lanes-bytes", Requirements(work=_has_bytes), functools.partial(_lanes, decode="bytes"), "lanes"
)
PACKED: Variant[Rule] = Variant(
    "packed", Requirements(work=_has_codes), functools.partial(_lanes, packed=True), "packed"
)
SHARED: dict[WorkgroupTile, Variant[Rule]] = tile_variants(lambda tile: functools.partial(_shared, tile=tile))
SHARED_HALVES: dict[WorkgroupTile, Variant[Rule]] = {
    tile: Variant(
        f"{tile.name}-f16",
        Requirements(workgroup=tile.workgroup, work=_has_half_steps, half_products=True),
        functools.partial(_shared_halves, tile=tile),
        "half steps",
    )
    for tile in SHARED
}
MATRICES: dict[tuple[WorkgroupTile, tuple[int, int, int]], Variant[Rule]] = {
    (tile, shape): Variant(
        f"matrix-{tile.size}-{shape[0]}x{shape[1]}x{shape[2]}",
        Requirements(
            subgroup=1,
            workgroup=2 * tile.size,
            work=_has_own_rows,
            half_products=True,
            feature=matrix_feature(*shape),
        ),
        functools.partial(_shared_matrix, tile=tile, shape=shape),
        f"matrix steps {shape}",
    )
    for tile in (SMALL, LARGE)
    for shape in MATRIX_SHAPES
}
PACKED_SHARED: Variant[Rule] = Variant(
    "packed-32",
    Requirements(0, SMALL.workgroup, _has_whole_steps),
    functools.partial(_shared_codes, tile=SMALL),
    "packed steps",
)
PACKED_LARGE: Variant[Rule] = Variant(
    "packed-64",
    Requirements(0, LARGE.workgroup, _has_whole_steps),
    functools.partial(_shared_codes, tile=LARGE),
    "packed steps",
)
BY_CODES = (PACKED, PACKED_SHARED, PACKED_LARGE)  # of x, which is packed for them


def project_q4(cx: Context, layer: LinearQ4Operands) -> None:
    """Run a layer: (..., K) x (N, K) -> (..., N). The caller has set the dims of the outputs."""
    layer.check()
    variant = _choose(cx, layer) if layer.weights[0].words_per_load(layer.inner) else ANY
    packed = variant in BY_CODES
    if layer.row_eps is not None:
        layer = replace(layer, x=quantize_rows(cx, layer.x, layer.row_eps, layer.norm, packed), norm=None)
    if variant in SHARED_HALVES.values() or variant in MATRICES.values():
        layer = replace(layer, x=halve_rows(cx, layer.x, layer.norm), norm=None)
    if layer.norm is not None and variant not in (LANES, HALVES, BYTES):
        layer = replace(layer, x=_normalized(cx, layer.x, layer.norm), norm=None)
    if layer.row_qparams is not None:
        layer = replace(layer, x=quantize_rows_by(cx, layer.x, layer.row_qparams, packed))
    codes = layer.weights[0].codes
    cut = [cx.parts(weight.codes, codes.dims[1], codes.dims[0]) for weight in layer.weights]
    for parts in zip(*cut, strict=True):
        first, count, _ = parts[0]
        config = variant.config(cx.caps, layer, _columns(layer, first, count))
        weights: dict[str, Tensor] = {}
        for number, (weight, (_, _, part)) in enumerate(zip(layer.weights, parts, strict=True)):
            weights |= {f"weight{number}": part, f"scales{number}": weight.scales}
        cx.dispatch(
            config.template,
            reads={
                "x": layer.x,
                **weights,
                "bias": layer.bias,
                "norm": layer.norm and layer.norm.weight,
                "offsets": layer.offsets,
                **layer.epilogue.arrays,
            },
            writes={f"y{number}": out for number, out in enumerate(layer.outs)},
            params=layer.epilogue.extend(config.params),
            threads=config.threads,
            workgroup=config.workgroup,
            scale_type=scale_type(layer.weights[0].scales),
            bias_type=layer.bias.wgsl if layer.bias is not None else "",
            out_type=layer.outs[0].wgsl,
            weights=len(layer.weights),
            outs=len(layer.outs),
            biased=layer.bias is not None,
            offset=layer.offsets is not None,
            bits=layer.weights[0].format.bits,
            program=layer.epilogue.program,
            **config.flags,
        )


def _choose(cx: Context, layer: LinearQ4Operands) -> Variant[Rule]:
    """Return the variant for the layer's shape. The number of rows counts as 1, few or many."""
    tiled = ProductShape(1, layer.rows, layer.inner, layer.columns * len(layer.weights))  # weights share a tile
    shape = (
        tiled.kind,
        layer.columns,
        layer.inner,
        layer.weights[0].group,
        len(layer.weights),
        layer.has_rounded_rows,
    )
    packed = (PACKED_LARGE, PACKED_SHARED) if LARGE.keeps_busy(tiled) else (PACKED_SHARED, PACKED_LARGE)
    tiles = preferred_tiles(cx.caps, tiled)
    halves, floats = ([variants[tile] for tile in tiles] for variants in (SHARED_HALVES, SHARED))
    shared = (*halves, *floats) if multiplies_pairs(cx.caps) else (*floats, *halves)
    sizes = (LARGE, SMALL) if LARGE.keeps_busy(tiled) else (SMALL, LARGE)
    matrices = [MATRICES[tile, shape] for shape in MATRIX_SHAPES for tile in sizes]
    shared = (*packed, *matrices, *shared)
    lanes = _lanes_variants(cx.caps)
    gpu: tuple[Variant[Rule], ...] = (*shared, PACKED, *lanes) if tiled.kind == "many" else (PACKED, *lanes)
    if cx.caps.registers <= FEW_REGISTERS:
        gpu = (PACKED, *(variant for variant in gpu if variant is not PACKED))  # the others would spill
    return cx.variant(f"linear_q{layer.weights[0].format.bits}", shape, cpu=(BROADCAST, TILE), gpu=gpu, work=layer)


def multiplies_pairs(caps: Caps) -> bool:
    """Return whether the GPU is known to multiply pairs of f16 in one instruction: AMD's newer ones do.

    Apple's compiler needs more instructions for f16 than for f32 (docs/compilers.md).
    """
    return caps.vendor == AMD and caps.subgroup == 32


def _lanes_variants(caps: Caps) -> tuple[Variant[Rule], ...]:
    """Return the variants that read a row of a weight together, the shortest on the device first (docs/compilers.md).

    Intel's and Arm's GPUs and AMD's older ones, whose subgroups have 64 invocations, convert bytes without shifting
    them. AMD's newer ones and Apple's multiply halves by floats.
    """
    if caps.vendor in (ARM, INTEL) or (caps.vendor == AMD and caps.subgroup == 64):
        return (BYTES, LANES, HALVES)
    return (HALVES, LANES, BYTES) if caps.vendor in (AMD, APPLE) else (LANES, HALVES, BYTES)


def _normalized(cx: Context, x: Tensor, norm: RmsNorm) -> Tensor:
    """Return the normalized rows, for kernels that do not normalize."""
    normalized = cx.scratch(x.dtype, x.dims)
    normalize_rows(cx, x, norm.weight, norm.eps, normalized)
    return normalized
