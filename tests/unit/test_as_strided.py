"""What `as_strided_copy` may not read."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.graphs import GraphBuilder


@pytest.mark.parametrize(
    ("size", "stride", "offset", "message"),
    [
        ([2, 3], [6, 2], 2, r"reads element 12 of 12"),
        ([2], [-1], 3, r"stride \[-1\]"),
        ([2], [1], -1, r"offset -1"),
        ([2, 3], [1], 0, r"size \[2, 3\], stride \[1\]"),
    ],
)
def test_outside_the_tensor(size, stride, offset, message):
    b = GraphBuilder()
    x, out = b.tensor(3, 4), b.tensor(*size)
    lists = [b.list(*map(b.number, numbers)) for numbers in (size, stride)]
    b.call("aten.as_strided_copy.default", (x, *lists, b.number(offset)), out)
    with pytest.raises(webpte.ShapeError, match=message):
        b.plan([x], [out])


def test_up_to_the_last_element():
    b = GraphBuilder()
    x, out = b.tensor(3, 4), b.tensor(2, 3)
    lists = [b.list(*map(b.number, numbers)) for numbers in ([2, 3], [6, 2])]
    b.call("aten.as_strided_copy.default", (x, *lists, b.number(1)), out)
    assert len(b.plan([x], [out]).flow.segments) == 1
