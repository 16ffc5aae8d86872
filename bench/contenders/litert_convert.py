"""A problem's model as a .tflite file, by LiteRT's torch converter: `python -m … PROBLEM_FOLDER TARGET`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import litert_torch
import numpy as np
import torch
from torch.nn import functional

from ..models import Cache
from ..problems import Problem
from ..torch_ops import Functional, TorchOps


class ConvertedOps(TorchOps):
    """Activations are (1, rows, columns), and what is added to them too: a missing dim is not broadcast right."""

    def constant(self, name: str) -> Any:
        if name not in ("places", "a", "b"):
            return super().constant(name)
        return self.tensor(name, lambda: self.weights[name][None])

    def embedding(self, ids: Any, name: str) -> Any:
        """Rows are looked up by the caller: a sum after the look-up comes out wrong on its GPU path."""
        return ids

    def attention(self, q: Any, k: Any, v: Any, mask: Any, batch: int, heads: int) -> Any:
        return super().attention(q, k, v, mask, batch, heads)[None]

    def cached_attention(self, q: Any, k: Any, v: Any, layer: int, cache: Cache) -> Any:
        return super().cached_attention(q, k, v, layer, cache)[None]

    def last(self, x: Any) -> Any:
        return x[:, -1:]

    def cut(self, x: torch.Tensor) -> torch.Tensor:
        """A long chain becomes one kernel with a texture for every operand, which may have 48; a product ends it."""
        return functional.linear(x, self.tensor("identity", lambda: np.eye(x.shape[-1], dtype=np.float32)))


def convert(folder: Path, target: Path) -> None:
    module = Functional(Problem.read(folder), ops=ConvertedOps).eval()
    partial = target.with_suffix(".part")
    litert_torch.convert(module, module.example()).export(str(partial))
    partial.replace(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
