"""A vision program in a bundle: a picture in, and labels for what it says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..graph import DType, TensorSpec
from ..runtime import Program
from .planned import Shapes
from .site import Site

CHANNELS = 3
MOST_LABELS = 1 << 20  # bytes


class ImageOptions(NamedTuple):
    """How a picture becomes numbers, (red, green, blue) from 0 to 1 less the mean and divided by the deviation; and
    what its classes are called, a line each."""

    labels: Path | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    @property
    def given(self) -> list[str]:
        return [name for name, value in self._asdict().items() if value is not None]


def is_image(program: Program) -> bool:
    """Whether `forward` takes one picture: f32 (1, 3, height, width)."""
    if "forward" not in program.method_names:
        return False
    graph = program.graph("forward")
    specs = [graph.values[i] for i in graph.inputs]
    first = specs[0] if len(specs) == 1 else None
    return (
        isinstance(first, TensorSpec)
        and first.host_dtype is DType.FLOAT32
        and len(first.dims) == 4
        and first.dims[1] == CHANNELS
    )


def image_part(site: Site, program: Program, options: ImageOptions, shapes: Sequence[Shapes]) -> dict[str, Any]:
    """What the manifest says of it. A page makes pictures of the first shape."""
    height, width = shapes[0][0][2:]
    mean, std = _three("mean", options.mean or (0, 0, 0)), _three("std", options.std or (1, 1, 1))
    if not all(std):
        raise InputError(f"std is {list(std)}; nothing can be divided by 0")
    labels = None if options.labels is None else site.add(_labels(program, options.labels).encode(), "text")
    return {"height": height, "width": width, "mean": mean, "std": std, "labels": labels}


def _three(name: str, value: Sequence[float]) -> list[float]:
    if len(value) != CHANNELS:
        raise InputError(f"{name} is {list(value)}; a number for each of red, green and blue is needed")
    return [float(number) for number in value]


def _labels(program: Program, path: Path) -> str:
    """The text, if it has a line for each class."""
    try:
        if path.stat().st_size > MOST_LABELS:
            raise InputError(f"{path} has {path.stat().st_size} bytes; {MOST_LABELS} are the most for labels")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    lines = text.removesuffix("\n").split("\n")
    graph = program.graph("forward")
    output = graph.tensor(graph.outputs[0]).dims
    if len(lines) != output[-1]:
        raise InputError(f"{path} has {len(lines)} labels; output 0, {list(output)}, has {output[-1]} classes")
    return "\n".join(lines) + "\n"
