"""What an export is asked for, checked before any work: exporting takes minutes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, UnsupportedError
from .checkpoint import HUGGING_FACE, Checkpoint, Place, by_layer, places

QUANTIZERS = ("4w", "8da4w")


@dataclass(frozen=True)
class Options:
    """Of `export_llama`."""

    quantize: str | None
    group_size: int
    embedding: str | None
    max_context: int
    max_tokens: int

    def check(self) -> None:
        """What can be told without the checkpoint."""
        if self.quantize is not None:
            check_quantizer(self.quantize, self.group_size)
        if self.embedding is not None:
            self.embedding_group()
        if not 1 < self.max_tokens <= self.max_context:
            raise InputError(
                f"max_tokens is {self.max_tokens}; it must be above 1 and at most max_context, {self.max_context}"
            )

    def embedding_group(self) -> int:
        bits, _, group = (self.embedding or "").partition(",")
        if bits.strip() != "4" or not group.strip().isdecimal() or int(group) < 2 or int(group) % 2:
            raise InputError(f'embedding is "4,GROUP" with an even group size, such as "4,32", not {self.embedding!r}')
        return int(group)

    def check_fit(self, source: Checkpoint) -> None:
        """Whether a model of these sizes can be exported like this."""
        sizes = source.arguments
        if self.quantize is not None:
            linears = {place.name: place.shape for place in places(HUGGING_FACE, sizes).values() if _is_linear(place)}
            check_groups(linears, self.group_size)
        if self.embedding is not None:
            self._check_embedding(sizes["dim"])
        if source.window is not None and source.window < self.max_context:
            raise UnsupportedError(
                f"sliding_window is {source.window}: a token does not see those further back, and that is not computed "
                f"here. Up to there all tokens are seen: export with max_context={source.window} or less.",
                ["sliding_window"],
            )

    def _check_embedding(self, width: int) -> None:
        group = self.embedding_group()
        if width % group or width == group:  # ExecuTorch cannot fuse an embedding with one group a row
            raise UnsupportedError(
                f"an embedding of width {width} cannot be quantised in groups of {group}: a group size that divides "
                "the width and is below it is wanted"
            )


def check_quantizer(mode: str, group_size: int) -> None:
    if mode not in QUANTIZERS:
        raise InputError(f"quantize is one of {', '.join(QUANTIZERS)}, not {mode!r}")
    by_row = mode == "8da4w" and group_size == 0  # one scale a row
    if isinstance(group_size, bool) or not isinstance(group_size, int) or (group_size < 2 and not by_row):
        raise InputError(f"group_size is {group_size!r}; a whole number above 1 is wanted, such as 32")


def check_groups(linears: Mapping[str, tuple[int, ...]], group_size: int) -> None:
    """Whether 4-bit weights of these shapes, (rows, columns) by name, can be exported: ExecuTorch asks for it."""
    odd = [f"{name} has {shape[1]} columns" for name, shape in linears.items() if group_size and shape[1] % group_size]
    odd += [f"{name} has {shape[0]} rows" for name, shape in linears.items() if shape[0] % 4]
    if odd:
        first = f"weights cannot be quantised: group_size, {group_size}, must divide their columns and 4 their rows:"
        raise UnsupportedError("\n".join([first, *by_layer(odd)]), odd)


def _is_linear(place: Place) -> bool:
    return len(place.shape) == 2 and place.name != "tok_embeddings.weight"


def check_target(path: Path) -> None:
    """Whether a file can be written there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the .pte file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: the folder {path.parent} is not writable")
