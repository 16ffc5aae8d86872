"""Elementwise ops against eager PyTorch: the references of all cases, and exported programs with many ops each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import webpte
from tests.cases.create import fill
from tests.cases.elementwise import binary, compare, logic, unary
from tests.cases.layout import copy
from tests.support.export.exporting import export
from tests.support.harness.cases import OneOp, assert_close, reference
from tests.support.models import elementwise as models

CASES = [c for module in (binary, compare, copy, fill, logic, unary) for c in module.CASES if c.op.startswith("aten")]


def run_torch(name: str, values: list):
    """Return the ATen op of an edge name, its arguments sorted into positional and keyword ones by the schema."""
    _, base, overload = name.split(".")
    kernel = getattr(getattr(torch.ops.aten, base), overload)
    wide = any(isinstance(v, int) and not -(2**31) <= v < 2**31 for v in values)  # such a program has int64 tensors
    pairs = list(zip(kernel._schema.arguments, (_to_torch(v, wide) for v in values), strict=True))
    named = {a.name: _option(a.name, v) for a, v in pairs if a.kwarg_only}
    return kernel(*(v for a, v in pairs if not a.kwarg_only), **named)


def _to_torch(value, wide: bool):
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    tensor = torch.from_numpy(np.asarray(value))
    return tensor.long() if wide and tensor.dtype is torch.int32 else tensor


def _option(name: str, value):
    codes = {0: torch.uint8, 1: torch.int8, 3: torch.int32, 5: torch.float16, 6: torch.float32, 11: torch.bool}
    return codes[value] if name == "dtype" and value is not None else value


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_equals_torch(case):
    one = OneOp(case)
    sizes = case.sizes[0]
    arrays = [t.array(sizes, one._random(sizes)) for t in case.tensors]
    values = one.substitute(arrays, sizes)
    want = run_torch(case.op, values).numpy()
    (got,) = reference(case, values)
    if "empty" in case.op:  # PyTorch's holds whatever was there before
        want = np.zeros_like(want)
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    assert narrow.get(got.dtype, got.dtype) == narrow.get(want.dtype, want.dtype)
    # PyTorch's own gelu is off by 1e-6.
    assert_close(np.asarray(got), want, max(case.atol, 2e-6 if "gelu" in case.op else 0), case.rtol, str(case))


PROGRAMS = (models.functions, models.arithmetic, models.logic, models.ranges, models.sized, models.static_fills)


@pytest.mark.gpu
@pytest.mark.parametrize("builder", PROGRAMS)
def test_program_equals_torch(builder):
    exported = export(builder)
    with webpte.load(exported.path, data=exported.data) as program:
        method = program.method()
        for step in exported.steps:
            got = method.run(list(step.inputs))
            for position, (array, want) in enumerate(zip(got, step.outputs, strict=True)):
                assert array.dtype == want.dtype, f"output {position}"
                assert_close(array, want, 1e-5, 1e-5, f"output {position} for {step.inputs[0].shape}")
