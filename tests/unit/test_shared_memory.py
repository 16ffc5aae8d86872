"""Kernels that share memory in a workgroup stay within what every device has."""

from __future__ import annotations

import re

import pytest

import webpte
from tests.cases.attention import attention
from tests.cases.norm import norm
from tests.cases.reduce import reduce, softmax
from tests.cases.sampling import sampling
from tests.support.harness.cases import OneOp, choosing
from webpte.wgsl import BROWSER_LIMITS, Caps, Kernel, render

SHARED = re.compile(
    r"var<workgroup> \w+: array<(?:array<)?((?:atomic<u32>)|f32|i32|u32|vec([234])<[fu]32>), (\d+)>(?:, (\d+)>)?;"
)
WORD = re.compile(r"var<workgroup> \w+: (?:atomic<u32>|u32);")
MODULES = (attention, norm, reduce, sampling, softmax)
CAPS = [Caps(features=frozenset({"shader-f16"}), kind=kind) for kind in ("cpu", "gpu")]


def shared_bytes(source: str) -> int:
    sizes = [
        {"2": 8, "3": 16, "4": 16}.get(width, 4) * int(count) * int(outer or 1)
        for _, width, count, outer in SHARED.findall(source)
    ]
    sizes += [4] * len(WORD.findall(source))
    assert len(sizes) == source.count("var<workgroup>"), "an array is declared in a way this test does not know"
    return sum(sizes)


def kernels(module, folder) -> dict[Kernel, str]:
    results: dict[Kernel, str] = {}
    for case in module.CASES:
        OneOp(case).write(folder / "case.pte")
        with choosing(case.variant), webpte.load(folder / "case.pte") as program:
            for caps in CAPS:
                results |= dict.fromkeys(program.plan("forward", caps).kernels, str(case))
    return results


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_shared_memory_fits_every_device(module, tmp_path):
    limit = BROWSER_LIMITS["max-compute-workgroup-storage-size"]
    sizes = {kernel: shared_bytes(render(kernel)) for kernel in kernels(module, tmp_path)}
    assert not [f"{kernel.label}: {size}" for kernel, size in sizes.items() if size > limit]
    assert max(sizes.values()) > 0


def test_sizes_are_counted():
    source = "var<workgroup> a: array<vec3<f32>, 3>;\nvar<workgroup> b: array<atomic<u32>, 5>;"
    source += "\nvar<workgroup> c: array<array<vec4<f32>, 3>, 2>;\nvar<workgroup> d: u32;"
    assert shared_bytes(source) == 68 + 96 + 4
