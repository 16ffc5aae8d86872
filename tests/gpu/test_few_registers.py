"""Cases of the kernels whose tiles depend on the registers of a device, with the tiles for few of them."""

from __future__ import annotations

import dataclasses

import pytest

from tests.cases.attention import attention, slot_attention
from tests.cases.convolution import convolution
from tests.cases.q4 import linear_q4
from tests.support.harness.cases import Case, run_case
from tests.support.harness.gate import slow_but
from webpte.device import adapter_caps
from webpte.wgsl import FEW_REGISTERS

VARIANTS = (
    (slot_attention, "tile"),
    (slot_attention, "lanes split"),
    (attention, "tile"),
    (convolution, "lines"),
    (linear_q4, "lanes-bytes"),
)
BY_VARIANT: list[list[Case]] = [[c for c in module.CASES if c.variant == variant] for module, variant in VARIANTS]
FIRST = [cases[0] for cases in BY_VARIANT]
EVERY = [case for cases in BY_VARIANT for case in cases]


@pytest.mark.parametrize("some", slow_but(FIRST, EVERY), ids=str)
def test_cases_with_few_registers_pass(some, tmp_path, device, monkeypatch):
    caps = dataclasses.replace(adapter_caps(), registers=FEW_REGISTERS)
    monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: caps)
    assert run_case(some, tmp_path) >= 1
