"""NaN in whatever a row of attention sees reaches its answer, with masks of any kind and without."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import OneOp, T, case, choosing

MASKS = {"none": None, "f32": T(1, 1, 5, 11), "f16": T(1, 1, 5, 11, dtype="f16")}


@pytest.mark.parametrize("variant", ["rows", "tile"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("where", ["q", "k", "v", "mask"])
def test_nan_is_not_taken_for_a_hidden_key(tmp_path, where, mask, variant):
    if where == "mask" and mask == "none":
        pytest.skip("there is no mask")
    tensors = {"q": T(1, 2, 5, 8), "k": T(1, 2, 11, 8), "v": T(1, 2, 11, 8), "mask": MASKS[mask]}
    program = OneOp(case("et_vk.sdpa.default", *tensors.values(), None))
    program.write(tmp_path / "p.pte")
    random = np.random.default_rng(3)
    inputs = {name: t.array({}, random) for name, t in tensors.items() if t is not None}
    inputs[where][..., 3, 2] = np.nan
    with choosing(variant), webpte.load(tmp_path / "p.pte") as loaded:
        got = loaded.method()(*inputs.values())
    rows, columns = np.arange(5)[:, None], np.arange(8)
    want = {"q": rows == 3, "k": rows >= 0, "v": columns == 2, "mask": rows == 3}[where]
    assert (np.isnan(got) == want).all()
