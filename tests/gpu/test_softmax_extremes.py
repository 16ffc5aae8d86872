"""Softmax where eager PyTorch answers NaN, and beside it where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import OneOp, T, case, choosing, reference

LOWEST = float(np.finfo(np.float32).min)  # what masks use that know no infinity
NEGATIVE_NAN = np.array([0xFFC00001], np.uint32).view(np.float32)[0]


def rows_of(width: int, dtype: Any) -> np.ndarray:
    rows: np.ndarray = np.random.default_rng(5).normal(0, 3, (8, width)).astype(dtype)
    rows[0] = -np.inf  # NaN
    rows[1, 3] = np.nan  # NaN
    rows[2, 0] = np.inf  # NaN
    rows[3, -1] = NEGATIVE_NAN  # NaN
    rows[4, 1:] = -np.inf  # one element is left
    rows[5] = np.finfo(dtype).min  # all equal, whatever the mask wrote
    rows[6, ::2] = -np.inf
    return rows


@pytest.mark.parametrize("variant", ["alone", "by 8", "by 64"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("width", [128, 131])
@pytest.mark.parametrize("op", ["aten._softmax.default", "aten._log_softmax.default"])
def test_softmax_row_without_result_is_nan(tmp_path, op, width, dtype, variant):
    rows = rows_of(width, dtype)
    inputs = T(*rows.shape, make=lambda dims: rows, dtype="f16" if dtype is np.float16 else "f32")
    program = OneOp(case(op, inputs, -1, False))
    program.write(tmp_path / "p.pte")
    with choosing(variant), webpte.load(tmp_path / "p.pte") as loaded:
        got = loaded.method()(rows)
    (want,) = reference(program.case, [rows, -1, False])
    assert np.isnan(got[:4]).all() and not np.isnan(got[4:]).any()
    close = np.abs(got[4:].astype(np.float64) - want[4:]) <= 1e-5 + 4e-3 * np.abs(want[4:]) * (dtype is np.float16)
    assert (close | (got[4:] == want[4:])).all()


def test_rows_along_an_inner_dim_are_looked_at_one_by_one(tmp_path):
    inputs = np.zeros((2, 5, 3), np.float32)
    inputs[0, :, 1] = -np.inf
    inputs[1, :, 2] = [LOWEST, -np.inf, -np.inf, -np.inf, -np.inf]
    OneOp(case("aten._softmax.default", T(2, 5, 3, make=lambda dims: inputs), 1, False)).write(tmp_path / "p.pte")
    with webpte.load(tmp_path / "p.pte") as loaded:
        got = loaded.method()(inputs)
    assert np.isnan(got[0, :, 1]).all() and np.isnan(got).sum() == 5
    assert got[1, :, 2].tolist() == [1, 0, 0, 0, 0]
