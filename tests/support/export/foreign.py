"""A program for another backend than Vulkan, which webpte shows and does not run."""

from __future__ import annotations

from pathlib import Path

from .exporting import cache_root, kept, key_of
from .sources import definitions_hash


def xnnpack_program() -> Path:
    """Return a file with linear layers in a delegate of XNNPACK, and a cumulative sum outside."""
    folder = cache_root() / key_of(definitions_hash((Path(__file__), "_write")), "xnnpack", {})
    return kept(folder, "xnnpack", {}, _write).path


def _write(folder: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).relu()).cumsum(0)

    traced = torch.export.export(Module().eval(), (torch.randn(3, 16),))
    lowered = to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()]).to_executorch()
    (folder / "program.pte").write_bytes(lowered.buffer)
