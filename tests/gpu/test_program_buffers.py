"""Buffers of the program itself, in forms that programs rarely have."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.writer import Method, pte_file, span_of
from webpte import container as c
from webpte.container import DType, JumpFalseCall, KernelCall

START = np.arange(4, dtype="f") - 1
X = np.array([1, -2, 3, -4], "f")


def tensor(*dims, at=None, **more):
    return c.TensorValue(DType.FLOAT32, dims, tuple(range(len(dims))), place=at, **more)


def relu(source, target):
    return KernelCall("aten::relu.out", (source, target, target))


def copy(source, target, false):
    return KernelCall("aten::copy_", (target, source, false, target))


@pytest.fixture
def method(request, tmp_path):
    values, instructions, inputs, outputs = request.param
    pte_file(tmp_path / "m.pte", [Method("forward", values, inputs, outputs, instructions)])
    with webpte.load(tmp_path / "m.pte") as program:
        yield program.method()


BUFFER = tensor(4, at=(2, 0), data=span_of(START))
OTHERS = [tensor(4, at=(1, 0)), tensor(4, at=(1, 64))]


@pytest.mark.parametrize("method", [([BUFFER, *OTHERS], [relu(1, 2)], [1], [2, 0])], indirect=True)
def test_buffer_returned_and_never_written(method):
    for _ in range(2):
        assert np.array_equal(method.run([X])[1], START)


@pytest.mark.parametrize(
    "method", [([BUFFER, *OTHERS, c.BoolValue(False)], [copy(0, 0, 3), relu(0, 2)], [1], [2, 0])], indirect=True
)
def test_buffer_copied_onto_itself(method):
    result, state = method.run([X])
    assert np.array_equal(state, START) and np.array_equal(result, np.maximum(START, 0))


VIEWED = [*OTHERS, tensor(2, 2, at=(1, 64)), tensor(2, 2, at=(1, 128)), tensor(2, 2, at=(1, 192)), c.BoolValue(False)]
BRANCH = [relu(0, 1), JumpFalseCall(5, 3), relu(2, 3), relu(2, 4)]


@pytest.mark.parametrize("method", [(VIEWED, BRANCH, [0, 5], [4])], indirect=True)
@pytest.mark.parametrize("taken", [True, False])
def test_buffer_view_read_in_and_after_branch(method, taken):
    assert np.array_equal(method.run([X, taken])[0], np.maximum(X, 0).reshape(2, 2))
