"""`webpte inspect` shows the same facts as text, as JSON and as a page."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.children import ROOT
from tests.support.harness.inspected import check_same
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, simple_pte
from webpte import container as c
from webpte.container import DType, VkInt, VkTensor

F32 = DType.FLOAT32


def test_inspect_language_model_outputs_agree(tmp_path, capsys):
    assert check_same(ROOT / "docs" / "demo" / "model.pte", tmp_path, capsys) == 1


@pytest.mark.parametrize("op", ["aten.add.Tensor", "aten.sort_of.default"])
@pytest.mark.parametrize("where", ["named", "external"])
def test_small_programs_that_run_or_do_not(op, where, tmp_path, capsys):
    values = [VkTensor(F32, (7,)), VkTensor(F32, (7,), constant_id=0), VkInt(1), VkTensor(F32, (7,))]
    weight = [np.ones(7, np.float32)]
    simple_pte(tmp_path / "p.pte", values, [(op, (0, 1, 2, 3))], [0], [3], weight, where=where)
    assert check_same(tmp_path / "p.pte", tmp_path, capsys) == 1


def test_inspect_unknown_delegate_outputs_agree(tmp_path, capsys):
    plain = c.TensorValue(F32, (3,), (0,), place=ALONE)
    foreign = [DelegateBlob(b"?" * 33, "CoreMLBackend")]
    methods = [Method(n, [plain, plain], [0], [1], [c.DelegateCall(0, (0, 1))], foreign) for n in ("forward", "other")]
    pte_file(tmp_path / "p.pte", methods)
    assert check_same(tmp_path / "p.pte", tmp_path, capsys) == 2
