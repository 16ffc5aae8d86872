"""What the exporter loses at the border of a delegate: that nothing could show, and that what errors advise helps."""

from __future__ import annotations

import copy
import re

import pytest
import torch

import webpte
from tests.support.harness.cases import assert_close
from tests.support.harness.gate import slow_but, slow_rows_but
from webpte.export import lower

X = torch.linspace(-1, 1, 12).reshape(3, 4)
CALLS = 4


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("n", torch.zeros(3, 4))

    def forward(self, x):
        return self.function(self, x)


def twice(m, x):
    y = x * 2
    return y.clone(), y.clone(), y + 1


def twice_apart(m, x):
    y = x * 2
    return y.clone(), y + 1, y.clone()


def written(m, x):
    m.n.add_(x)
    return m.n.clone()


def constant(m, x):
    return m.n + x


def old(m, x):
    before = m.n.clone()
    m.n.add_(x)
    return before


def twice_and_written(m, x):
    m.n.add_(x)
    y = x * 2
    return y.clone(), y.clone(), m.n + 1


def three_constant(m, x):
    total = m.n + x
    return total, x * 2, total + 1


def outside(m, x):
    """A kernel of the CPU reads what a delegate writes."""
    y = torch.sort(m.n, 0)[0]
    m.n.add_(x)
    return y + x


ALIKE = [(twice, twice_apart), (written, constant, old), (twice_and_written, three_constant)]
REFUSED = [(twice, 1), (written, 1), (twice_and_written, 2), (outside, 1)]


def exported(function, path, **options):
    lower(Of(function), (X,), path=path, strict=False, **options)
    return path.read_bytes()


@pytest.mark.parametrize("functions", slow_but(ALIKE[:1], ALIKE))
def test_different_modules_leave_the_same_bytes(functions, tmp_path):
    """So no reader of the file can distinguishes them. If this fails, the exporter has learned to, and so may we."""
    files = {exported(function, tmp_path / f"{function.__name__}.pte") for function in functions}
    assert len(files) == 1


def advised(path):
    """Return what the error says to do, as arguments of `lower`."""
    with pytest.raises(webpte.UnsupportedError) as caught, webpte.load(path) as program:
        program.method()
    text = str(caught.value)
    names: dict = {}
    if blocked := re.search(r"operator_blocklist=(\[.*?\])\), after `(.*?)`", text):
        exec(blocked[2], names)
        return {"operator_blocklist": eval(blocked[1], names)}
    (options,) = re.findall(r"VulkanPartitioner\((\{.*?\})\)", text)
    return {"options": eval(options)}


@pytest.mark.parametrize(("function", "refusals"), slow_rows_but([(written, 1), (outside, 1)], REFUSED))
def test_lost_output_error_advice_equals_eager(function, refusals, tmp_path):
    options: dict = {}
    for number in range(refusals):
        exported(function, tmp_path / f"{number}.pte", **options)
        options |= advised(tmp_path / f"{number}.pte")
    exported(function, tmp_path / "m.pte", **options)
    module = copy.deepcopy(Of(function))
    with webpte.load(tmp_path / "m.pte") as program:
        method = program.method()
        for call in range(CALLS):
            expected = module(X + call)
            got = method.run([(X + call).numpy()])
            for one, other in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
                assert_close(one, other.numpy(), 1e-5, 1e-5, f"{function.__name__}, call {call}")
