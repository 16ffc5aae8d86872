"""A buffer that is read outside the delegate that writes it: the exporter makes two of it."""

from __future__ import annotations

import re

import numpy as np
import torch
from torch import nn

import webpte
from tests.support.harness.errors import raises
from webpte.export import lower


class Ring(nn.Module):
    """Rows are written at a position that a buffer counts. A kernel reads the position, a delegate counts it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(5, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.rows.index_put_((self.at % 5,), x)
        self.at.add_(1)
        return self.rows * 2, torch.tanh(x)


class Counter(nn.Module):
    """State in a delegate, beside a constant of other numbers that a kernel reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("table", torch.tensor([3.0, 1.0, 2.0]))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count, torch.cumsum(self.table, 0)


def run(path, module, calls: int = 7) -> None:
    with webpte.load(path) as program:
        method = program.method()
        for number in range(calls):
            x = torch.randn(1, 4 if isinstance(module, Ring) else 3, generator=torch.Generator().manual_seed(number))
            with torch.no_grad():
                expected = module(x)
            for got, want in zip(method(x.numpy()), expected, strict=True):
                np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_split_buffer_refused_and_remedy_works(tmp_path):
    x = (torch.randn(1, 4),)
    lower(Ring(), x, path=tmp_path / "torn.pte")
    with raises(webpte.UnsupportedError, "i32[1]", "remainder", "operator_blocklist") as refused:
        webpte.load(tmp_path / "torn.pte").method()
    (listed,) = re.findall(r"VulkanPartitioner\(operator_blocklist=(\[.*?\])\)", str(refused.value))
    from executorch.exir.dialects._ops import ops as exir_ops

    lower(Ring(), x, path=tmp_path / "whole.pte", operator_blocklist=eval(listed, {"exir_ops": exir_ops}))
    run(tmp_path / "whole.pte", Ring())


def test_split_buffer_equal_constant_is_not_confused(tmp_path):
    lower(Counter(), (torch.randn(1, 3),), path=tmp_path / "m.pte")
    run(tmp_path / "m.pte", Counter())
