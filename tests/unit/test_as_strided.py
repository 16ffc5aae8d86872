"""Reads of `as_strided_copy` outside its input are refused."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder


@pytest.mark.parametrize(
    ("size", "stride", "offset", "code", "expected"),
    [
        ([2, 3], [6, 2], 2, "out_of_bounds", ["element 12 of 12"]),
        ([2], [-1], 3, "invalid_stride", ["stride [-1]"]),
        ([2], [1], -1, "invalid_stride", ["offset -1"]),
        ([2, 3], [1], 0, "invalid_stride", ["size [2, 3]", "stride [1]"]),
    ],
)
def test_outside_the_tensor(size, stride, offset, code, expected):
    b = GraphBuilder()
    x, out = b.tensor(3, 4), b.tensor(*size)
    lists = [b.list(*map(b.number, numbers)) for numbers in (size, stride)]
    b.call("aten.as_strided_copy.default", (x, *lists, b.number(offset)), out)
    with raises(webpte.ShapeError, "aten.as_strided_copy.default", *expected, code=code):
        b.plan([x], [out])


def test_up_to_the_last_element():
    b = GraphBuilder()
    x, out = b.tensor(3, 4), b.tensor(2, 3)
    lists = [b.list(*map(b.number, numbers)) for numbers in ([2, 3], [6, 2])]
    b.call("aten.as_strided_copy.default", (x, *lists, b.number(1)), out)
    assert len(b.plan([x], [out]).flow.segments) == 1
