"""One file for each kind of image encoder. They are found by listing this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ..vision_tower import GgufTower, TowerKind


@cache
def towers() -> dict[str, TowerKind]:
    """Return the kinds of towers by the names of their files."""
    return {file.name: import_module(f"{__name__}.{file.name}").TOWER for file in iter_modules(__path__)}


def tower_kind(config: Mapping[str, Any]) -> TowerKind | None:
    """Return the kind of the tower of a model by its config.json; None for a model that is read without."""
    return next((kind for kind in towers().values() if config.get("model_type") in kind.model_types), None)


def gguf_tower(projector: object) -> GgufTower | None:
    """Return how a GGUF file with this clip.projector_type is read; None if it is not."""
    declared = (kind.gguf for kind in towers().values() if kind.gguf is not None)
    return next((tower for tower in declared if tower.projector == projector), None)
