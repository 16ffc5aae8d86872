"""What the cases of 4-bit layers do not tell: that each runs its own kernels, and small subgroups suffice."""

from __future__ import annotations

import dataclasses

import pytest

from tests.cases.q4.linear_q4 import CASES, FUSED, by
from tests.support.harness.cases import planned_kernels, run_case
from webpte.device import adapter_caps

VARIANTS = ("broadcast", "tile", "lanes", "shared", "packed")


def test_every_variant_has_kernels_of_its_own(tmp_path):
    found: dict[str, set[str]] = {variant: set() for variant in VARIANTS}
    for case in CASES:
        if case.variant and case.op == FUSED:
            found[case.variant].update(kernel.label for kernel in planned_kernels(case, tmp_path))
    for variant, kernels in found.items():
        others = set().union(*(found[v] for v in found if v != variant))
        assert kernels - others, f"{variant} runs what others run"


@pytest.mark.parametrize("case", by("broadcast")[::4], ids=str)
def test_subgroups_of_four_suffice(case, tmp_path, device, monkeypatch):
    caps = adapter_caps()
    if not caps.subgroup:
        pytest.skip("the adapter has no subgroups")
    monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: dataclasses.replace(caps, subgroup=4))
    assert run_case(case, tmp_path) >= 2


def test_without_subgroups_tiles_are_the_choice(tmp_path, device, monkeypatch):
    caps = dataclasses.replace(adapter_caps(), subgroup=0)
    monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: caps)
    with pytest.raises(AssertionError, match="no such variant"):
        run_case(by("broadcast")[0], tmp_path)
    assert run_case(by("tile")[0], tmp_path) >= 2
