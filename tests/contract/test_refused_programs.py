"""Programs and calls of the real exporter that webpte does not run: a typed error names what and what to do instead."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn, randn
from torch.export import Dim

import webpte
from tests.studies.zoo.building import Case, case
from tests.studies.zoo.modes import write
from tests.support.harness.errors import raises


def positives() -> Case:
    """Select by a boolean mask: how many values there are depends on them."""
    return case(lambda x: x[x > 0] * 2, [(randn(3, 5),)])


def rows() -> Case:
    """Up to 7 rows, and none: the exporter's lower bound of a dim is 0 if a module allows it."""
    return case(nn.ReLU(), [(randn(n, 5),) for n in (7, 3, 1)], {0: Dim("n", min=0, max=7)})


def test_boolean_mask_outside_delegates_is_refused_with_two_remedies(tmp_path):
    write(positives, "portable", False, tmp_path)
    words = ("boolean masks", "torch.where", "integer indices")
    with webpte.load(tmp_path / "program.pte") as program, raises(webpte.UnsupportedError, *words):
        program.method()(np.ones((3, 5), np.float32))


@pytest.mark.parametrize("mode", ["portable", "vulkan"])
def test_call_with_zero_rows_is_refused_and_method_still_works(mode, tmp_path):
    write(rows, mode, True, tmp_path)
    x = randn(2, 5).numpy()
    with webpte.load(tmp_path / "program.pte") as program:
        method = program.method()
        with raises(webpte.InputError, "input 0 of forward", "got shape [0, 5]", "at least size 1"):
            method(np.empty((0, 5), np.float32))
        np.testing.assert_array_equal(method(x), np.maximum(x, 0))
