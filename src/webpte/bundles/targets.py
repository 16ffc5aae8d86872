"""The devices that a page may find, of which a bundle has plans for each kind."""

from __future__ import annotations

from ..wgsl import Caps

# A browser grants more than the standard's limits only to those who ask, and not everywhere: plans ask for no more.
# Subgroups have 32 invocations or more on the GPUs of nearly everyone, and 4 in software that does them at all.
TARGETS = (
    Caps(features=frozenset({"subgroup"}), subgroup=32, adapter="a GPU with subgroups"),
    Caps(adapter="any GPU"),
    Caps(kind="cpu", features=frozenset({"subgroup"}), subgroup=4, adapter="a software device with subgroups"),
    Caps(kind="cpu", adapter="any software device"),
)
HALVES = frozenset({"shader-f16"})
