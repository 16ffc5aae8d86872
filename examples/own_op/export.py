"""Export a small network with an op of our own, audio::snake, to snake.pte. Once, where torch is:

pip install 'webpte[export]'
python export.py
"""

from pathlib import Path

import torch
from torch import nn

from webpte.export import lower

library = torch.library.Library("audio", "DEF")
library.define("snake(Tensor x, Tensor alpha) -> Tensor")
library.define("snake.out(Tensor x, Tensor alpha, *, Tensor(a!) out) -> Tensor(a!)")  # what a program calls


@torch.library.impl(library, "snake", "CompositeExplicitAutograd")
def snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    return x + torch.sin(alpha * x) ** 2 / alpha


@torch.library.impl(library, "snake.out", "CompositeExplicitAutograd")
def snake_out(x: torch.Tensor, alpha: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(snake(x, alpha))


class Wave(nn.Module):
    """Fits signals that repeat: a periodic activation between two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(16, 32), nn.Linear(32, 4)
        self.alpha = nn.Parameter(torch.linspace(0.5, 4, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(torch.ops.audio.snake(self.before(x), self.alpha))


def export(output: Path) -> None:
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", max=64)
    lower(Wave(), (torch.randn(8, 16),), ({0: rows},), path=output)


if __name__ == "__main__":
    export(Path("snake.pte"))
