"""Run samples, and hold their results against those of the executorch wheel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.studies.xnnpack.facts import SAMPLES
from tests.support.harness.program_runs import FAILED, run_programs

FOLDER = SAMPLES[0].parent
LLMS = FOLDER.with_name("llms")  # exported by `export_llm` later than the samples
REFERENCES = {
    "linear_qd8_qc4w_odd": "quant",  # eager PyTorch: the wheel is wrong for rows of odd length
    "mixed_vulkan_xnnpack": "portable",  # the same program without delegates: the wheel has no Vulkan
}


@dataclass(frozen=True)
class Difference:
    """The largest difference over all outputs of all calls, also relative to the largest value of the output."""

    relative: float
    absolute: float
    elements: int
    differing: int  # by more than 1e-6 of the largest value

    def __str__(self) -> str:
        return f"{self.relative:.2g} relative, {self.absolute:.2g} absolute, {self.differing} of {self.elements} differ"


def compare(name: str, folder: Path = FOLDER) -> Difference:
    """Run all calls of a sample in order, with one state."""
    data = [path] if (path := folder / f"{name}.ptd").exists() else []
    with webpte.load(folder / f"{name}.pte", data=data) as program:
        method = program.method("forward")
        return difference(
            [
                pair
                for inputs, outputs in golden_calls(name, folder)
                for pair in zip(_listed(method(*inputs)), outputs, strict=True)
            ]
        )


def golden_calls(name: str, folder: Path = FOLDER) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Return inputs and expected outputs of the calls of a sample."""
    golden, kind = np.load(folder / f"{name}.npz"), REFERENCES.get(name, "out")
    return [
        (_numbered(golden, f"c{call}_in{{}}"), _numbered(golden, f"c{call}_{kind}{{}}"))
        for call in range(_count(golden, "c{}_in0"))
    ]


def _listed(outputs: Any) -> Sequence[np.ndarray]:
    return outputs if isinstance(outputs, tuple | list) else (outputs,)


def _count(golden: np.lib.npyio.NpzFile, pattern: str) -> int:
    return next(number for number in range(100) if pattern.format(number) not in golden)


def _numbered(golden: np.lib.npyio.NpzFile, pattern: str) -> list[np.ndarray]:
    return [golden[pattern.format(number)] for number in range(_count(golden, pattern))]


def difference(results: list[tuple[np.ndarray, np.ndarray]]) -> Difference:
    relative = absolute = 0.0
    elements = differing = 0
    for result, expected in results:
        assert result.shape == expected.shape, (result.shape, expected.shape)
        gap = np.abs(result.astype(np.float64) - expected.astype(np.float64))
        assert np.isfinite(gap).all()
        largest = max(float(np.abs(expected).max(initial=0)), 1e-9)
        relative = max(relative, float(gap.max(initial=0)) / largest)
        absolute = max(absolute, float(gap.max(initial=0)))
        elements += gap.size
        differing += int((gap > 1e-6 * max(1.0, largest)).sum())
    return Difference(relative, absolute, elements, differing)


def main(names: list[str]) -> int:
    """Compare each sample, or those of these names, and return 1 if one could not be run."""
    chosen = [path.stem for path in SAMPLES if not names or path.stem in names]
    counts = run_programs((name, partial(judge, name)) for name in chosen)
    return int(counts[FAILED] > 0)


def judge(name: str) -> tuple[str, str]:
    return "ran", str(compare(name))
