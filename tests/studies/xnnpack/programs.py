"""`python -m tests.studies xnnpack.programs [NAME[-MODE] ...]`: export architectures for XNNPACK and compare them.

Each runs at two shapes or more. Results are compared with those of the executorch wheel; programs with Vulkan delegates
beside those of XNNPACK, which the wheel cannot run, with eager PyTorch. Programs in f16 may not be farther from results
in f32 than those of the wheel are: it rounds the sum of a layer to f16 after each product, so that rows of 2,048 are up
to 1,000 units of f16 away; webpte rounds the sum once.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.studies.xnnpack.running import Difference, difference
from tests.support.export import exporting
from tests.support.export.sources import definitions_hash
from tests.support.harness.program_runs import FAILED, run_programs

HERE = Path(__file__).parent
WRITE = (HERE / "exporting.py", "write")
ARCHITECTURES = {
    "mlp": "f32 f16 int8 dynamic 8da4w linear",
    "gated": "f32 f16 dynamic 8da4w mul",
    "arithmetic": "f32 f16 add",
    "speech": "f32 f16 int8 conv",
    "dscnn": "f32 int8 conv",
    "segmenter": "f32 int8 conv",
    "super_resolution": "f32 f16 conv",
    "autoencoder": "f32 int8 conv",
    "mixer": "f32 int8 linear",
    "decoder": "f32 dynamic 8da4w add",
    "bert_dyn": "f32 dynamic 8da4w linear",
    "llama": "f32 f16 dynamic 8da4w linear",
    "mobilenet_v3": "f32 int8",  # ExecuTorch's exporter for Vulkan refuses a list with a symbolic size
    "resnet_dyn": "f32 f16 int8 dynamic conv",
    "convnext": "f32 dynamic linear",
    "yolo_neck": "f32 int8 mul",
    "gru": "f32 dynamic linear",
    "lstm": "f32 f16 dynamic mul",
    "bert": "f32 f16 int8 dynamic 8da4w linear",
    "vit": "f32 f16 int8 8da4w linear",
    "whisper": "f32 f16 dynamic 8da4w linear",
    "mobilenet_v2": "f32 f16 int8 dynamic conv add",
    "resnet": "f32 int8 conv add",
}
MIXED = ("linear", "conv", "add", "mul")
# Relative to the largest value of an output. f16 is rounded after each layer.
BOUNDS = dict.fromkeys(("f32", "int8", "dynamic", "8da4w", *MIXED), 1e-5) | {"f16": 4e-3}


@dataclass(frozen=True)
class XnnProgram:
    """An architecture in a mode."""

    architecture: str
    mode: str

    def __str__(self) -> str:
        return f"{self.architecture}-{self.mode}"

    @property
    def key(self) -> str:
        sources = definitions_hash(WRITE, (HERE / "architectures.py", self.architecture))
        return exporting.key_of(sources, self.architecture, self._params)

    @property
    def _params(self) -> dict[str, Any]:
        return {"mode": self.mode, "for": "XNNPACK"}

    def export(self) -> exporting.Exported:
        """Return the files from the cache, or export them now."""

        def write(folder: Path) -> None:
            from tests.studies.xnnpack.exporting import write

            write(getattr(import_module("tests.studies.xnnpack.architectures"), self.architecture), self.mode, folder)

        return exporting.kept(exporting.cache_root() / self.key, str(self), self._params, write)


PROGRAMS = [XnnProgram(name, mode) for name, modes in ARCHITECTURES.items() for mode in modes.split()]


@dataclass(frozen=True)
class Outcome:
    """The result of webpte for the files of a program."""

    difference: Difference
    bound: float  # of the relative difference
    delegates: Counter[str]
    submits: int  # of a call, the most of any file
    on_cpu: int  # kernel calls

    @property
    def is_right(self) -> bool:
        return self.difference.relative <= self.bound

    @property
    def is_one_submit_of_both(self) -> bool:
        """Whether there are delegates of both kinds, in one submit unless the CPU computes something between."""
        return len(self.delegates) == 2 and (self.submits == 1 or self.on_cpu > 0)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.delegates.items()))
        return f"{self.difference}; {counted}; {self.submits} submits, {self.on_cpu} calls on the CPU"


def run(program: XnnProgram) -> Outcome:
    """Run all calls of all files of a program."""
    exported = program.export()
    results: list[np.ndarray] = []
    delegates: Counter[str] = Counter()
    submits = on_cpu = 0
    for number, steps in enumerate(exported.sequences):
        with webpte.load(exported.folder / f"program{number}.pte") as loaded:
            method = loaded.method("forward")
            for step in steps:
                results += map(np.asarray, method.run(step.inputs))
            delegates.update(delegate.backend for delegate in loaded.graph("forward").delegates)
            calls = sum(method.plan.cpu_calls.values())
            submits, on_cpu = max(submits, len(method.plan.flow.segments)), on_cpu + calls
    expected = [np.asarray(out) for steps in exported.sequences for step in steps for out in step.outputs]
    bound = BOUNDS[program.mode]
    if program.mode == "f16":
        by_wheel, expected = expected, _in_f32(program.architecture)
        bound = max(bound, difference(list(zip(by_wheel, expected, strict=True))).relative)
    gap = difference(list(zip(results, expected, strict=True)))
    return Outcome(gap, bound, delegates, submits, on_cpu)


def _in_f32(architecture: str) -> list[np.ndarray]:
    """Return the results of an architecture with weights and inputs of f16, computed by PyTorch in f32."""
    import torch

    from tests.studies.xnnpack.exporting import by_shape, in_mode

    results: list[np.ndarray] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for case in by_shape(getattr(import_module("tests.studies.xnnpack.architectures"), architecture)()):
            half = in_mode(case, "f16")
            module = half.module.float()
            for step in half.steps:
                outputs = module(*(x.float() if torch.is_floating_point(x) else x for x in step))
                results += (out.numpy().copy() for out in torch.utils._pytree.tree_leaves(outputs))
    return results


def judge(program: XnnProgram) -> tuple[str, str]:
    """Return the kind of a program's outcome, and its details."""
    outcome = run(program)
    if program.mode in MIXED and not outcome.is_one_submit_of_both:
        return "torn", str(outcome)
    return "right" if outcome.is_right else "wrong", str(outcome)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies xnnpack.programs")
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    chosen = [p for p in PROGRAMS if not names or not {str(p), p.architecture}.isdisjoint(names)]
    counts = run_programs((str(program), partial(judge, program)) for program in chosen)
    return int(any(counts[kind] for kind in ("wrong", "torn", FAILED)))


if __name__ == "__main__":
    sys.exit(main())
