"""Builders of programs with quantized tables outside delegates: ExecuTorch's partitioner takes only some 4-bit ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Model, forward

BOUND = 11
ROWS = 37
OPS = [f"embedding_{kind}" for kind in ("byte", "4bit", "2bit")]
LEAST = {"embedding_byte": -128, "embedding_4bit": -8, "embedding_2bit": -2}


class Table(nn.Module):
    """A table as one of the ops takes it, with `groups` scales a row, or one that is not a list."""

    def __init__(self, op: str, rows: int, width: int, groups: int = 0, **more: Any) -> None:
        super().__init__()
        packed = {"embedding_byte": 1, "embedding_4bit": 2, "embedding_2bit": 4}[op]
        self.op, self.limits, self.dtype = op, (LEAST[op], -1 - LEAST[op]), more.get("dtype")
        low, high, kind = (-128, 128, torch.int8) if packed == 1 else (0, 256, torch.uint8)
        dims = (rows, groups) if groups else (rows,)
        self.register_buffer("weight", torch.randint(low, high, (rows, width // packed), dtype=kind))
        self.register_buffer("scales", (torch.rand(dims) * 0.1 + 0.01).to(more.get("scales", torch.float32)))
        zeros = torch.randint(-2, 2, dims).to(self.scales.dtype) if more.get("zeros") else None
        self.register_buffer("zeros", zeros)

    def forward(self, tokens):
        packet = getattr(torch.ops.quantized_decomposed, self.op)
        args = self.weight, self.scales, self.zeros, *self.limits, tokens
        return packet.default(*args) if self.dtype is None else packet.dtype(*args, dtype=self.dtype)


class Tables(nn.Module):
    def __init__(self, *tables: nn.Module) -> None:
        super().__init__()
        self.tables = nn.ModuleList(tables)

    def forward(self, tokens):
        return tuple(table(tokens) * 2 for table in self.tables)


def tables(lengths: tuple[int, ...] = (BOUND, 7, 1)) -> Model:
    """Every op: one or several scales per row, with and without zero points; the product after it is in a delegate."""
    import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401  registers the ops

    layers = [Table(op, ROWS, width, groups) for op in OPS for width, groups in ((32, 0), (40, 5), (12, 3))]
    layers += [Table(op, ROWS, 24, 2, zeros=True) for op in OPS]
    # The 4-bit one with a dtype is the one that goes into a delegate.
    layers += [Table(op, ROWS, 24, 2, dtype=torch.float32) for op in OPS]
    layers += [Table(op, ROWS, 24, 2, scales=torch.float16) for op in OPS]
    steps = [(torch.randint(0, ROWS, (1, n)),) for n in lengths]
    shapes = ({1: Dim("seq", max=BOUND)},)
    return forward(Tables(*layers), steps[1], [steps], dynamic_shapes=shapes)


def real_widths(group: int, rows: int = 49152, width: int = 576) -> Model:
    """The 8-bit embedding of a real model, as ExecuTorch's Llama exporter quantizes it; a group of 0 is a whole row."""
    from executorch.examples.models.llama.source_transformation.quantize import get_quant_embedding_transform

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tok_embeddings = nn.Embedding(rows, width)

        def forward(self, tokens):
            return self.tok_embeddings(tokens)

    module = get_quant_embedding_transform(f"8,{group}", False)(Model())
    steps = [(torch.cat([torch.tensor([[0, rows - 1]]), torch.randint(0, rows, (1, n))], 1),) for n in (29, 5, 0)]
    return forward(module, steps[0], [steps], dynamic_shapes=({1: Dim("seq", min=2, max=31)},))
