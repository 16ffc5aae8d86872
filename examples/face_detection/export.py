"""Export the three networks of MTCNN, a face detector, to pnet.pte, rnet.pte and onet.pte. Once, where torch is:

pip install 'webpte[export]'
pip install --no-deps --target models facenet-pytorch==2.6.0     # the weights (MIT)
python export.py models/facenet_pytorch/data
"""

import sys
from pathlib import Path

import torch
from torch import nn

from webpte.export import lower

LARGEST_SIDE, MOST_CROPS = 240, 32  # bounds: allocated once, anything smaller runs


class Network(nn.Module):
    """Layers in a row, then heads side by side, all under the names that the weights have."""

    def __init__(self, layers: dict[str, nn.Module], heads: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, layer in (layers | heads).items():
            self.add_module(name, layer)
        self.layers, self.heads = list(layers), list(heads)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for name in self.layers:
            x = self.get_submodule(name)(x)
        return tuple(self.get_submodule(name)(x) for name in self.heads)


class HalfUp(nn.Module):
    """Halve both sides, rounding up. Padding first keeps odd and even sizes in one program; `ceil_mode` does not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 0, 1), value=-1e30), 2)


class WidthFirst(nn.Module):
    """Feature maps as rows, in the order the dense layers were trained with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 2, 1).flatten(1)


def convolutions(channels: list[int], kernels: list[int], pools: list[nn.Module | None]) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {}
    for i, (kernel, pool) in enumerate(zip(kernels, pools, strict=True), 1):
        layers[f"conv{i}"] = nn.Conv2d(channels[i - 1], channels[i], kernel)
        layers[f"prelu{i}"] = nn.PReLU(channels[i])
        if pool is not None:
            layers[f"pool{i}"] = pool
    return layers


def pnet() -> Network:
    """Proposals: for each cell of an image of any size, a box and the logits of "no face" and "face"."""
    layers = convolutions([3, 10, 16, 32], [3, 3, 3], [HalfUp(), None, None])
    return Network(layers, {"conv4_2": nn.Conv2d(32, 4, 1), "conv4_1": nn.Conv2d(32, 2, 1)})


def rnet() -> Network:
    """The same for crops of 24 x 24."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = convolutions([3, 28, 48, 64], [3, 3, 2], [pool, pool, None])
    layers |= {"rows": WidthFirst(), "dense4": nn.Linear(576, 128), "prelu4": nn.PReLU(128)}
    return Network(layers, {"dense5_2": nn.Linear(128, 4), "dense5_1": nn.Linear(128, 2)})


def onet() -> Network:
    """The same for crops of 48 x 48, and where the eyes, the nose and the corners of the mouth are."""
    pool, last = nn.MaxPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(2, 2, ceil_mode=True)
    layers = convolutions([3, 32, 64, 64, 128], [3, 3, 3, 2], [pool, pool, last, None])
    layers |= {"rows": WidthFirst(), "dense5": nn.Linear(1152, 256), "prelu5": nn.PReLU(256)}
    heads = {"dense6_2": nn.Linear(256, 4), "dense6_1": nn.Linear(256, 2), "dense6_3": nn.Linear(256, 10)}
    return Network(layers, heads)


def export(weights: Path, output: Path) -> None:
    height, width = (torch.export.Dim(name, min=13, max=LARGEST_SIDE) for name in ("height", "width"))
    batch = torch.export.Dim("batch", max=MOST_CROPS)
    plans = {
        "pnet": (pnet(), (1, 3, 61, 83), {2: height, 3: width}),
        "rnet": (rnet(), (MOST_CROPS - 1, 3, 24, 24), {0: batch}),
        "onet": (onet(), (MOST_CROPS - 1, 3, 48, 48), {0: batch}),
    }
    for name, (network, shape, dynamic) in plans.items():
        network.load_state_dict(torch.load(weights / f"{name}.pt", weights_only=True))
        lower(network, (torch.rand(shape),), (dynamic,), path=output / f"{name}.pte")


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path())
