"""64-bit integers through the real exporter: what eager has, or a typed error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch.exir.dialects._ops import ops as exir_ops

import webpte
from tests.support.export.exporting import export
from tests.support.export.lowering import forward
from tests.support.harness.errors import raises
from webpte.export import lower

EDGE = exir_ops.edge.aten
VALUES = [
    [1, 2, 3, -4],
    [5, 100000, -70000, 2**30],
    [46341, -46341, 1, 7],
    [2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1],
    [2**31, -(2**31) - 1, 2**32, -(2**32)],
    [2**53 + 1, 2**63 - 1, -(2**63), 3],
]
BIG = 2**63 - 1


class Of(torch.nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


MODULES = {
    "products": lambda: Of(lambda m, x: x * 1000003),
    "running sums": lambda: Of(lambda m, x: (torch.cumsum(x, 0), x.sum())),
    "quotients": lambda: Of(lambda m, x: (x // 7, x % 13, x // -1)),
    "sums": lambda: Of(lambda m, x: (x + 3, 5 - x, x + x.flip(0), torch.sub(x, x.flip(0), alpha=3))),
    "squares": lambda: Of(lambda m, x: (x**2, x.abs(), -x)),
    "as floats": lambda: Of(lambda m, x: (x.float() * 2, x.double() / 3)),
    "filled with the largest": lambda: Of(lambda m, x: x.masked_fill(x > 3, BIG)),
    "compared with the largest": lambda: Of(lambda m, x: (torch.where(x < BIG, x, 0), x >= 2**31, x <= -(2**40))),
    "clamped": lambda: Of(lambda m, x: (x.clamp(max=2**40), x.clamp(min=-(2**31) - 1), x.clamp(-5, 5))),
    "a constant outside": lambda: Of(
        lambda m, x: torch.where(x > 0, m.c, x), c=torch.tensor([2**40, -(2**35), 7, 2**31])
    ),
    "a constant cut short": lambda: Of(
        lambda m, x: (torch.where(x > 0, m.c, x), (m.c > 2**33).to(torch.int64) + x),
        c=torch.tensor([2**40, -(2**35), 7, 2**31]),
    ),
    "sorted": lambda: Of(lambda m, x: tuple(torch.topk(x, 3))),
}
ALWAYS_RIGHT = {"running sums", "sorted"}  # no delegate computes with the integers
REFUSED_AT_LOAD = {"a constant cut short"}


def integers(name):
    """One module, run on every row of VALUES."""
    steps = [(torch.tensor(row),) for row in VALUES]
    return forward(MODULES[name](), steps[0], [steps])


@pytest.mark.parametrize("name", MODULES)
def test_what_eager_has_or_a_typed_error(name):
    exported = export(integers, name=name)
    with webpte.load(exported.path) as program:
        if name in REFUSED_AT_LOAD:
            with raises(webpte.UnsupportedError, -34359738368, "operator_blocklist"):
                program.method()
            return
        method, right = program.method(), 0
        for step in exported.steps:
            try:
                got = method.run(step.inputs)
            except (webpte.InputError, webpte.RangeError) as error:
                assert name not in ALWAYS_RIGHT, error
                continue
            right += 1
            for mine, theirs in zip(got, step.outputs, strict=True):
                assert mine.dtype == theirs.dtype
                if mine.dtype.kind == "f":
                    np.testing.assert_allclose(mine, theirs, rtol=1e-6)
                else:
                    assert np.array_equal(mine, theirs), (step.inputs, mine, theirs)
        assert right >= (len(VALUES) if name in ALWAYS_RIGHT else 1)


def test_kept_out_of_delegates_it_is_computed_in_64_bits(tmp_path):
    module = Of(lambda m, x: x * 1000003 - 1)
    kept = [EDGE.mul.Tensor, EDGE.sub.Tensor]
    lower(module, (torch.tensor(VALUES[0]),), path=tmp_path / "m.pte", operator_blocklist=kept)
    with webpte.load(tmp_path / "m.pte") as program:
        for row in VALUES:
            assert np.array_equal(program.method()(np.array(row)), module(torch.tensor(row)).numpy())


@pytest.mark.parametrize(
    ("module", "value"),
    [(Of(lambda m, x: x + 2**40), 2**40), (Of(lambda m, x: x + m.c, c=torch.tensor([2**31])), 2**31)],
)
def test_a_constant_that_a_file_could_not_hold_is_not_exported(module, value, tmp_path):
    with raises(webpte.UnsupportedError, value, "operator_blocklist"):
        lower(module, (torch.tensor([1, 2]),), path=tmp_path / "m.pte")
    lower(module, (torch.tensor([1, 2]),), path=tmp_path / "m.pte", operator_blocklist=[EDGE.add.Tensor])
    with webpte.load(tmp_path / "m.pte") as program:
        assert np.array_equal(program.method()(np.array([1, 2])), module(torch.tensor([1, 2])).numpy())
