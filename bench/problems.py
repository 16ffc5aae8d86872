"""What a row asks for, as plain arrays: inputs, weights, and what NumPy says comes out.

NumPy only: workers read problems in environments that have little else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """One row's work. `kind` says what the arrays mean; `sizes` are the numbers a builder needs beside them."""

    kind: str
    inputs: dict[str, Array]
    weights: dict[str, Array]
    expected: tuple[Array, ...]
    sizes: dict[str, float] = field(default_factory=dict)

    def size(self, name: str) -> int:
        return int(self.sizes[name])

    @cached_property
    def digest(self) -> str:
        """Of what a program is made of: its weights and sizes."""
        made_of = hashlib.sha256(json.dumps([self.kind, self.sizes]).encode())
        for name, array in sorted(self.weights.items()):
            made_of.update(name.encode())
            made_of.update(np.ascontiguousarray(array).data)
        return made_of.hexdigest()[:32]

    def error(self, outputs: list[Array]) -> float:
        """The largest difference from what is expected, relative to the largest expected value. NaN is infinite."""
        if len(outputs) != len(self.expected):
            return float("inf")
        worst = 0.0
        for got, want in zip(outputs, self.expected, strict=True):
            if got.size != want.size:
                return float("inf")
            difference = float(np.abs(got.reshape(want.shape).astype(np.float64) - want).max())
            scale = float(np.abs(want).max()) or 1.0
            worst = max(worst, difference / scale if np.isfinite(difference) else float("inf"))
        return worst

    def save(self, folder: Path, weights: Path) -> None:
        """Problems of one model share the folder of their weights: the first to be saved fills it."""
        write_arrays(folder / "inputs", self.inputs)
        write_arrays(folder / "expected", {str(i): array for i, array in enumerate(self.expected)})
        if not weights.exists():
            write_arrays(weights, self.weights)
        about = {"kind": self.kind, "sizes": self.sizes, "inputs": list(self.inputs), "weights": str(weights)}
        (folder / "about.json").write_text(json.dumps(about))

    @classmethod
    def read(cls, folder: Path) -> Problem:
        about = json.loads((folder / "about.json").read_text())
        inputs, expected = read_arrays(folder / "inputs"), read_arrays(folder / "expected")
        return cls(
            about["kind"],
            {name: np.array(inputs[name]) for name in about["inputs"]},
            read_arrays(Path(about["weights"])),
            tuple(np.array(expected[str(i)]) for i in range(len(expected))),
            about["sizes"],
        )


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """One `.npy` file each, so that readers can map those they want; all or none."""
    partial = folder.with_name(f".{folder.name}-{os.getpid()}")
    partial.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(partial / f"{name}.npy", array)
    partial.rename(folder)


def read_arrays(folder: Path) -> dict[str, Array]:
    return {file.name.removesuffix(".npy"): np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))}
