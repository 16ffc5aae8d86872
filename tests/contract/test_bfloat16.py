"""bf16 inputs and outputs: f32 arrays for the caller, whose values are those of bf16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import webpte
from webpte.export import lower


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1, 3.3, -7.7]).bfloat16())

    def forward(self, x):
        return x * self.scale, (x + 1).float()


@pytest.mark.slow
def test_borders_round_as_torch_does(tmp_path):
    x = torch.linspace(-3, 3, 24).reshape(8, 3)
    lower(Scaled(), (x.bfloat16(),), path=tmp_path / "m.pte")
    with webpte.load(tmp_path / "m.pte") as program:
        actual = program.method()(x.numpy())
    for got, want in zip(actual, Scaled()(x.bfloat16()), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, want.float().numpy())
