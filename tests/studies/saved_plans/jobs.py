"""Which methods are saved, and the calls that they are saved and compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import webpte
from tests.studies.catalog.checks import read_manifest
from tests.studies.catalog.source import catalog
from tests.studies.zoo.index import programs
from tests.studies.zoo.outcome import Kind, recall
from tests.support.export.exporting import Exported, export
from tests.support.models.named import NAMED
from webpte.runtime import ArgumentInfo

Call = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Job:
    """One method of a program. Each sequence of calls begins with a fresh state."""

    name: str
    path: Path
    data: tuple[Path, ...]
    method: str
    sequences: tuple[tuple[Call, ...], ...]


def of_catalog(expected: Callable[[str], bool]) -> Iterator[Job]:
    """Yield every program of ExecuTorch's op catalog, with the inputs it has a result for."""
    for path, group in itertools.groupby(read_manifest(catalog()), key=lambda check: check.program):
        if not expected(path.stem):
            continue
        check = next(group)
        yield Job(path.stem, path, (), "forward", ((tuple(map(check.array, check.inputs)),),))


def of_programs(expected: Callable[[str], bool]) -> Iterator[Job]:
    """Yield the programs of our export tier: small models, language models, MiniLM, transformers."""
    for name in filter(expected, NAMED):
        yield from of_export(export(name))


def of_zoo(expected: Callable[[str], bool]) -> Iterator[Job]:
    """Yield the programs of the zoo, but for those that the exporter refuses."""
    for program in programs().values():
        known = recall(program)
        if (known is not None and known.kind is Kind.EXPORTER) or not expected(program.name):
            continue
        try:
            exported = program.export()
        except Exception:  # no one has asked before, and it refuses
            continue
        yield from of_export(exported)


def of_export(exported: Exported) -> Iterator[Job]:
    for method in dict.fromkeys(step.method for step in exported.steps):
        calls = [tuple(step.inputs for step in sequence if step.method == method) for sequence in exported.sequences]
        kept = tuple(sequence for sequence in calls if sequence)
        name = exported.name if method == "forward" else f"{exported.name}.{method}"
        yield Job(name, exported.path, tuple(exported.data), method, kept)


def of_file(path: Path) -> Job:
    """Any program: noise and zeros at the largest shapes, then at smaller ones, the state carried on."""
    rng = np.random.default_rng(5)

    def make_input(info: ArgumentInfo, part: int) -> np.ndarray:
        if info.bound is None or info.dynamic is None or info.dtype is None:
            return np.array(0)
        dims = [max(1, size // part) if may else size for size, may in zip(info.bound, info.dynamic, strict=True)]
        noise = rng.standard_normal(dims)
        return noise.astype(np.float32) if info.dtype in ("f32", "f16", "bf16") else np.zeros(dims, np.int64)

    with webpte.load(path) as program:
        inputs = program.method().inputs
    calls = tuple(tuple(make_input(info, part) for info in inputs) for part in (1, 2, 1 << 30, 1 << 30))
    return Job(path.stem, path, (), "forward", (calls,))


def smaller(calls: Sequence[Call], inputs: Sequence[ArgumentInfo]) -> Call | None:
    """The first call at another shape, if all are at one: with every dim that may vary cut by half, or by one."""
    if len({tuple(a.shape for a in call) for call in calls}) > 1:
        return None
    cut = []
    for array, info in zip(calls[0], inputs, strict=True):
        dynamic = info.dynamic or ()
        sizes = [size - size // 2 if may else size for size, may in zip(array.shape, dynamic, strict=False)]
        cut.append(array[tuple(slice(size) for size in sizes)] if sizes else array)
    return tuple(cut) if any(a.shape != b.shape for a, b in zip(cut, calls[0], strict=True)) else None
