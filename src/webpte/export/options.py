"""Check the options and the target of an export before any work: an export takes minutes."""

from __future__ import annotations

import glob
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError
from ..text import size
from .family import Checkpoint
from .quantising.recipe import (
    AUTO,
    INT8,
    UNQUANTIZED,
    Recipe,
    Shape,
    WeightFormat,
    check_budget,
    check_embedding,
    check_head,
    check_quantizer,
    embedding_kind,
    linear_recipe,
)
from .weights import EMBEDDING

PathLike = str | os.PathLike[str]


class ExportWarning(UserWarning):
    """A program that is less than what its checkpoint could have become."""


@dataclass(frozen=True)
class LLMOptions:
    """Of `export_llm`. Without being given, embedding and head have 8 bits where anything is quantised."""

    quantize: str | None = None
    group_size: int = 32
    embedding: str | None = None
    head: str | None = None
    budget: float | None = None
    calibrate: bool | PathLike = True
    max_context: int = 1024
    max_tokens: int = 256

    def check(self) -> None:
        """What can be told without the checkpoint."""
        if self.quantize is not None:
            check_quantizer(self.mode, self.group_size)
        check_budget(self.quantize, self.budget, bool(self.calibrate))
        check_head(self.head, self.quantize)
        self.embedding_kind()
        if not isinstance(self.calibrate, bool) and not Path(self.calibrate).is_file():
            raise InputError(f"calibrate is true, false or a file of text; there is no file {self.calibrate}")
        if not 1 < self.max_tokens <= self.max_context:
            raise InputError(
                f"max_tokens is {self.max_tokens}; it must be above 1 and at most max_context, {self.max_context}"
            )

    @property
    def mode(self) -> str:
        """Of linear layers, before a budget raises some of them."""
        return "4w" if self.quantize == AUTO else str(self.quantize)

    def embedding_kind(self) -> WeightFormat:
        if self.embedding is None:
            return UNQUANTIZED if self.quantize is None else INT8
        return embedding_kind(self.embedding)

    def recipe(self, linears: Mapping[str, Shape]) -> Recipe:
        """What becomes of a model with linear layers of these shapes."""
        if self.quantize is None:
            return Recipe({}, self.embedding_kind())
        recipe = linear_recipe(linears, self.mode, self.group_size, self.head or "8")
        return replace(recipe, embedding=self.embedding_kind())

    def check_fit(self, source: Checkpoint) -> None:
        """Whether a model of these sizes can be exported like this."""
        self._recipe_of(source)
        check_embedding(self.embedding_kind(), source.architecture.dim)

    def weight_bytes(self, source: Checkpoint) -> int:
        """What weights take in the program, and scales; a budget may ask for more."""
        recipe = self._recipe_of(source)
        kinds = {f"{name}.weight": kind for name, kind in recipe.linears.items()} | {EMBEDDING: recipe.embedding}
        bits = 0.0
        for name, place in source.weights.sources.items():
            bits += math.prod(place.shape) * kinds.get(name, UNQUANTIZED).bits_per_weight(place.shape[-1])
        return int(bits / 8)

    def _recipe_of(self, source: Checkpoint) -> Recipe:
        shapes = {name: place.shape for name, place in source.weights.sources.items() if name != EMBEDDING}
        return self.recipe({name.removesuffix(".weight"): shape for name, shape in shapes.items() if len(shape) == 2})


def check_target(path: Path) -> None:
    """Whether a file can be written there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the .pte file to write")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}", code="missing_folder")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: the folder {path.parent} is not writable")
    for companion in path.parent.glob(f"{glob.escape(path.stem)}.*"):
        if companion.is_dir():
            raise InputError(
                f"{companion} is a folder; files of that name are written beside {path.name}: move it away"
            )


def check_disk_space(path: Path, needed: int) -> None:
    """Whether the disk has room for a program with weights of so many bytes."""
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise InputError(
            f"the weights of {path.name} take {size(needed)}, and its disk has {size(free)} left: free some space, "
            "write to another disk, or quantise to fewer bits"
        )
