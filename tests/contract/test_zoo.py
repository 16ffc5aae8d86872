"""Quick programs of the zoo, of every family: `python -m tests.studies zoo` runs all of them, in many minutes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.studies.zoo.building import Case, case
from tests.studies.zoo.index import MODES, in_mode, networks, programs
from tests.studies.zoo.modes import write
from tests.studies.zoo.outcome import Kind, judge, run
from tests.studies.zoo.pool import judge_apart
from tests.support.export.exporting import Exported
from tests.support.harness.gate import slow_but
from tests.support.harness.workers import Worker

QUICK = (
    "view_u8_flat", "view_f64", "view_i16", "view_opblock", "nans", "const_out", "outs_views_dyn", "scalars", "u8img",
    "indexput_acc", "k_emptyin", "norms", "intmath", "syms4", "multimethod", "ptd", "webgpu_part", "conv_transpose1d",
    "emb_pad", "st_add", "st_int", "st_ema", "st_slice", "st_idxput_dyn", "bilinear", "gptneox", "emb_8_0", "bf16in",
    "q8_et", "chlast", "pad_circ", "i64_cmp", "mapop",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_zoo_program_equals_eager(name):
    result = judge(programs()[name])
    assert result.kind is Kind.RIGHT, result


def classifier() -> Case:
    """A convolution and a linear layer, for batches of up to three images."""
    layers = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 7))
    steps = [(torch.randn(n, 3, 7, 5),) for n in (3, 2, 3, 1)]
    return case(nn.Sequential(*layers), steps, {0: Dim("n", max=3)})


@pytest.mark.parametrize("mode", slow_but(("portable",), MODES))
def test_zoo_mode_at_and_below_bound_equals_reference(mode, tmp_path):
    """`python -m tests.studies zoo --networks` does the same with real networks."""
    write(classifier, mode, True, tmp_path)
    program = in_mode(next(iter(networks().values())), mode, True)
    result = run(program, Exported(mode, tmp_path))
    assert result.kind is Kind.RIGHT and result.shapes == 3, result
    assert (result.delegates > 0) == (mode != "portable")
    assert program.tolerance_of(Exported(mode, tmp_path)) < 0.02


def test_zoo_crashing_program_is_an_outcome():
    worker = Worker("-c", "import sys; sys.stdin.readline(); sys.exit(7)", timeout=60)
    result = judge_apart(worker, programs()["emb_pad"])
    assert result.kind is Kind.CRASHED
    assert "7" in result.why
