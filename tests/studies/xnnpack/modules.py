"""Small modules whose exports for XNNPACK have most quantized nodes: residuals, gates, layers, images that grow."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from tests.studies.zoo.building import Case, case


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.depthwise = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise, self.head = nn.Conv2d(8, 8, 1), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        y = self.pointwise(F.hardtanh(self.depthwise(x), 0, 6))
        joined = F.max_pool2d(torch.cat([x + y, y], 1), 2)
        return self.head(joined.mean((2, 3)))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.up = nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True))))) - x


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 20), nn.Linear(20, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
        self.second = nn.Conv2d(6, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.pad(F.relu(self.first(x)), (1, 1, 1, 1)))


MODULES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (2, 3, 8, 8)),
    "gate": (Gate, (1, 4, 9, 9)),
    "layers": (Layers, (5, 12)),
    "growing": (Growing, (1, 4, 5, 6)),
}


def module_case(name: str) -> Case:
    """Return a module with three calls."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, dims = MODULES[name]
        return case(module(), [(torch.randn(dims),) for _ in range(3)])
