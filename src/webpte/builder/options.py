"""Check the options and the target of an export before any work: an export takes minutes."""

from __future__ import annotations

import glob
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import (
    AUTO,
    FROM_CHECKPOINT,
    INT8,
    UNQUANTIZED,
    Recipe,
    WeightFormat,
    check_bits_per_weight,
    check_embedding,
    check_lm_head,
    check_quantizer,
    embedding_kind,
    linear_recipe,
)
from ..checkpoints.weights import EMBEDDING, WeightSource
from ..errors import InputError
from ..text import size
from .context import ProgramSizes, check_sizes, choose_sizes
from .recipe import default_recipe, linear_shapes, with_per_layer_embedding

PathLike = str | os.PathLike[str]


class ExportWarning(UserWarning):
    """A program that loses more than its checkpoint requires, or that webpte cannot run."""


@dataclass(frozen=True)
class LLMOptions:
    """Options of `export_llm`. If anything is quantized, embedding and head default to 8 bits."""

    quantize: str | None = None  # of QUANTIZERS, AUTO or FROM_CHECKPOINT
    group_size: int = 32
    embedding: str | None = None
    lm_head: str | None = None
    bits_per_weight: float | None = None
    calibrate: bool | PathLike = True
    max_context: int | None = None  # None: see `choose_sizes`
    max_tokens: int | None = None

    def check(self) -> None:
        """Check what does not depend on the checkpoint."""
        if self.quantize not in (None, FROM_CHECKPOINT):
            check_quantizer(self.mode, self.group_size)
        check_bits_per_weight(self.quantize, self.bits_per_weight, bool(self.calibrate))
        check_lm_head(self.lm_head, self.quantize)
        self.embedding_kind()
        if not isinstance(self.calibrate, bool) and not Path(self.calibrate).is_file():
            raise InputError(
                argument="calibrate",
                expected="true, false or the path of a text file",
                got=f"{self.calibrate}, which does not exist",
                code="missing_file",
            )
        check_sizes(self.max_context, self.max_tokens)

    def sizes(self, source: Checkpoint, *, memory: int | None = None) -> ProgramSizes:
        """Return the sizes of the program of a checkpoint."""
        return choose_sizes(source, self.max_context, self.max_tokens, memory=memory)

    @property
    def mode(self) -> str:
        """Return the format of linear layers, before a budget raises some of them to 8 bits."""
        return "4w" if self.quantize == AUTO else str(self.quantize)

    def embedding_kind(self) -> WeightFormat:
        if self.embedding is None:
            return UNQUANTIZED if self.quantize is None else INT8
        return embedding_kind(self.embedding)

    def recipe(self, source: Checkpoint) -> Recipe:
        """Return the formats of the program of a checkpoint, before a budget raises layers to 8 bits."""
        if self.quantize == FROM_CHECKPOINT:
            return default_recipe(source)
        check_embedding(self.embedding_kind(), source.architecture.dim)
        if self.quantize is None:
            return Recipe({}, self.embedding_kind())
        recipe = linear_recipe(linear_shapes(source), self.mode, self.group_size, self.lm_head or "8")
        return replace(with_per_layer_embedding(recipe, source), embedding=self.embedding_kind())


def weight_bytes(source: Checkpoint, recipe: Recipe) -> int:
    """Return the bytes of weights and scales in the program of a language model with these formats."""
    return parameter_bytes(source.weights.sources, recipe)


def parameter_bytes(sources: Mapping[str, WeightSource], recipe: Recipe) -> int:
    """Return the bytes of parameters and scales in a program with these formats."""
    kinds = {f"{name}.weight": kind for name, kind in recipe.linears.items()} | {EMBEDDING: recipe.embedding}
    bits = 0.0
    for name, weight in sources.items():
        bits += math.prod(weight.shape) * kinds.get(name, UNQUANTIZED).bits_per_weight(weight.shape[-1])
    return int(bits / 8)


def check_target(path: Path) -> None:
    """Check that an export can write its files there."""
    if path.is_dir():
        raise InputError(
            argument=str(path), expected="the path of a .pte file", got="a folder", code="target_is_folder"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", code="missing_folder")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} is not writable", code="not_writable")
    for companion in path.parent.glob(f"{glob.escape(path.stem)}.*"):
        if companion.is_dir():
            raise InputError(
                f"{companion} is a folder, and the export writes a file of that name beside {path.name}",
                code="target_is_folder",
                hint="Move the folder.",
            )


def check_disk_space(path: Path, needed: int) -> None:
    """Check that the disk has space for a program with `needed` bytes of weights."""
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise InputError(
            argument=path.name,
            expected=f"{size(needed)} of free disk space for its weights",
            got=size(free),
            code="disk_space",
            hint="Free some space, write to another disk, or quantize to fewer bits.",
        )
