"""The kernels that are translated: those of programs, or of all op cases and small models, by sets of features."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.compilers.programs import PROGRAMS, phases, program_path
from webpte.errors import Error
from webpte.wgsl import Caps, render, uses_subgroups

# What wgpu offers on a GPU of a desktop through Metal and Direct3D 12; browsers grant less by default.
DESKTOP: Mapping[str, int] = {
    "max-storage-buffers-per-shader-stage": 28,  # Metal has 31 buffers; three are the uniforms and the sizes
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-storage-size": 32 << 10,
}
F16, SUBGROUP = "shader-f16", "subgroup"
FEATURES: Mapping[str, Caps] = {
    "none": Caps(),
    "f16": Caps(limits=DESKTOP, features=frozenset({F16})),
    "subgroups": Caps(limits=DESKTOP, features=frozenset({SUBGROUP}), subgroup=32),
    "both": Caps(limits=DESKTOP, features=frozenset({F16, SUBGROUP}), subgroup=32),
}
SAMPLES = "tests/studies/xnnpack/samples"
GATE = (  # programs whose kernels are in the record; the gate exports no other for them
    *("llama256", "smollm2-135m", "cnn-f32"),
    *(f"{SAMPLES}/llama_8da4w.pte", f"{SAMPLES}/bert_dyn.pte", f"{SAMPLES}/mv2_int8.pte"),
)


@dataclass(frozen=True)
class Source:
    """The text of a kernel, and what selects it."""

    label: str
    text: str
    workgroup: int

    @property
    def f16(self) -> bool:
        return "enable f16" in self.text

    @property
    def subgroups(self) -> bool:
        return uses_subgroups(self.text)


Sources = dict[Source, list[str]]  # kernel -> the sets of features with which it was planned


def of_programs(names: Sequence[str], sets: Mapping[str, Caps] = FEATURES) -> Sources:
    """Return the kernels of programs: names of `bench.compilers`, or paths."""
    result: Sources = {}
    for name in names:
        path = program_path(name)
        for features, caps in sets.items():
            for kernel in phases(name, path, caps).uses:
                _add(result, Source(kernel.label, render(kernel), kernel.workgroup), features)
    return result


def of_cases(sets: Mapping[str, Caps] = FEATURES, *modules: str) -> Sources:
    """Return the kernels of the op cases in tests/cases, or of some of its modules."""
    from tests.support.harness.cases import all_cases, planned_kernels

    result: Sources = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in all_cases(*modules):
            for features, caps in sets.items():
                try:
                    kernels = planned_kernels(case, Path(folder), caps)
                except Error:  # a case of a kernel that these capabilities do not have
                    continue
                for kernel in kernels:
                    _add(result, Source(kernel.label, render(kernel), kernel.workgroup), features)
    return result


def everything() -> Sources:
    """Return the kernels of all op cases and of all programs of `bench.compilers`."""
    result = of_cases()
    for source, sets in of_programs(list(PROGRAMS)).items():
        for features in sets:
            _add(result, source, features)
    return result


def of_files(paths: Sequence[Path]) -> Sources:
    """Return kernels from files of WGSL. Their first line may be `// workgroup SIZE`."""
    return {Source(path.name, text, _size(text)): [] for path, text in _texts(paths)}


def _texts(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        yield path, path.read_text(encoding="utf-8")


def _size(text: str) -> int:
    prefix, _, size = text.partition("\n")[0].partition("// workgroup ")
    return int(size) if not prefix and size.isdigit() else 64


def _add(result: Sources, source: Source, features: str) -> None:
    sets = result.setdefault(source, [])
    if features not in sets:
        sets.append(features)
