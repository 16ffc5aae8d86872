"""Static views outside delegates: the exporter removes them, and only its memory plan shows their base."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch.exir.dialects._ops import ops as exir_ops

import webpte
from tests.support.harness.cases import assert_close
from webpte.export import lower
from webpte.graph.names import VIEW

KEPT_OUT = [exir_ops.edge.aten.add.Tensor, exir_ops.edge.aten.view_copy.default]


class Of(torch.nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.function(self, x)


def grid(*dims, dtype=torch.float32):
    return torch.arange(1, 1 + int(np.prod(dims)), dtype=dtype).reshape(dims) / (3 if dtype.is_floating_point else 1)


CASES = {
    "between kernel calls": (
        Of(lambda m, x: (torch.sigmoid(x).reshape(6, 4) + x.reshape(6, 4)).reshape(2, 12) * 2),
        grid(3, 8),
    ),
    "of an input without a dtype on the GPU": (
        Of(lambda m, x: (x.view(4, 6) * 2).view(2, 12)),
        grid(24, dtype=torch.int16),
    ),
    "of bytes": (Of(lambda m, x: x.reshape(4, 6).to(torch.float32) / 255), grid(24, dtype=torch.uint8)),
    "of doubles": (
        Of(lambda m, x: x.reshape(3, 4) @ m.w, w=grid(4, 4, dtype=torch.float64)),
        grid(12, dtype=torch.float64),
    ),
    "of a constant": (Of(lambda m, x: (m.w.reshape(8, 3)[:3] + x, m.w.reshape(24)), w=grid(4, 6)), grid(3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_elided_view_equals_eager(name, tmp_path):
    module, x = CASES[name]
    lower(module, (x,), path=tmp_path / "m.pte", operator_blocklist=KEPT_OUT)
    with webpte.load(tmp_path / "m.pte") as program:
        results = program.method().run([x.numpy()])
        actual = [call.name for call in program.graph("forward").calls]
    expected = module(x)
    for got, want in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_close(got, want.numpy(), 1e-5, 1e-5, f"view {name}")
    if name != "of a constant":  # the exporter may fold that one
        assert VIEW in actual
