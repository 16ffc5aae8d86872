"""An encoder in a bundle: tokens and a mask in, a vector out, at a few lengths that texts are padded to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..graph import DType, Graph, TensorSpec
from ..llm.metadata import beside
from ..runtime import Program
from ..wgsl import Caps
from .language import tokenizer_files
from .planned import Shapes
from .site import Site

SHORTEST = 16  # tokens
INTEGERS = (DType.INT32, DType.INT64)


class Encoder(NamedTuple):
    """What a program of this kind has."""

    inputs: int  # tokens, their mask, and maybe types
    longest: int
    pooled: bool  # a vector for the text, not for each token


def find_encoder(program: Program) -> Encoder | None:
    """What `forward` is, if it takes tokens (1, n) and as many of a mask, and gives vectors."""
    if "forward" not in program.method_names:
        return None
    graph = program.graph("forward")
    specs = [graph.values[i] for i in graph.inputs]
    rows = [spec for spec in specs if isinstance(spec, TensorSpec) and len(spec.dims) == 2]
    if len(rows) != len(specs) or len(rows) not in (2, 3) or len({spec.dims for spec in rows}) != 1:
        return None
    dims = _vector_dims(graph)
    if rows[0].host_dtype not in INTEGERS or dims is None:
        return None
    return Encoder(len(rows), rows[0].dims[1], len(dims) == 2)


def _vector_dims(graph: Graph) -> tuple[int, ...] | None:
    first = graph.values[graph.outputs[0]] if graph.outputs else None
    if not isinstance(first, TensorSpec) or first.host_dtype not in (DType.FLOAT32, DType.FLOAT16):
        return None
    return first.dims if len(first.dims) in (2, 3) else None


def encoder_shapes(program: Program, encoder: Encoder) -> list[Shapes]:
    """Lengths 16, 32, 64 and so on, and the longest; that one alone if the program takes no others."""
    lengths = [encoder.longest]
    if program.plan("forward", Caps()).dynamic_dims[program.graph("forward").inputs[0]][1]:
        lengths += [SHORTEST << n for n in range(encoder.longest.bit_length()) if SHORTEST << n < encoder.longest]
    return [[(1, length)] * encoder.inputs for length in sorted(lengths)]


def encoder_part(
    site: Site, program: Program, encoder: Encoder, tokenizer: Path, shapes: list[Shapes]
) -> dict[str, Any]:
    """What the manifest says of it. Inputs are in the order that encoders have them: tokens, mask, types."""
    config = beside(Path(program.file.path), "tokenizer_config.json")
    return {
        **tokenizer_files(site, tokenizer, config),
        "ids": 0,
        "mask": 1,
        "types": 2 if encoder.inputs == 3 else None,
        "lengths": sorted({dims[0][1] for dims in shapes}),
        "output": 0,
        "pooled": encoder.pooled,
    }
