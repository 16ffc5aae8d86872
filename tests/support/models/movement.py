"""Builders of programs that move, index and resample, many ops to a module.

In a static program the partitioner takes nearly all of them; in a dynamic one it leaves those that upstream cannot
resize outside the delegates, where they are kernel calls.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from ..export.lowering import Model, forward

nearest, bilinear = torch.ops.aten.upsample_nearest2d.vec, torch.ops.aten.upsample_bilinear2d.vec


class Movement(nn.Module):
    """x (S, 4, 6), counts (S, 5) int64, flags (S, 3) bool."""

    def forward(self, x, counts, flags):
        s = x.shape[0]
        y = x * 2.0
        n = counts + 1
        no = torch.logical_not(flags)
        first, second, third = y.split([1, 3, 2], dim=-1)
        views = (y.reshape(s, 24), y.reshape(-1, 3), y.unsqueeze(0).unsqueeze(-1) + 1.0, y[:, :1].squeeze(1) + 1.0)
        parts = (y[1:], y[-1], y[:, 1:4:2, -3:], y[:, -1], y[..., 5], n[:, 1:3], no[:, 0], first, second + 1.0, third)
        orders = (y.permute(2, 0, 1), y.transpose(0, 1), y.reshape(s, 24).t(), n.t(), no.t(), y.movedim(0, -1) + 1.0)
        joined = (
            torch.cat([y, x, y], dim=1),
            torch.cat([y, x[1:]], dim=0),
            torch.cat([n, counts], dim=-1),
            torch.stack([y, x], dim=2),
        )
        again = (
            y[:, :, None].expand(s, 4, 3, 6) + 1.0,
            n[:, None].expand(-1, 2, -1),
            y.repeat(2, 1, 3),
            y[0].repeat(2, 1, 2),
            n.repeat(1, 2),
        )
        copies = torch.ops.aten
        # No delegate takes these, and two of them return lists.
        cut = (
            *copies.split_copy.Tensor(y, 4, -1),
            *copies.unbind_copy.int(n, 1),
            copies.narrow_copy(y, 1, -3, 2),
        )
        turned = (y.flip(0), y.flip(1, 2), n.flip(-1))
        return views + parts + orders + joined + again + cut + turned


def _movement_inputs(s: int):
    return torch.randn(s, 4, 6), torch.randint(-50, 50, (s, 5)), torch.rand(s, 3) < 0.5


MOVES = ("permute_copy", "view_copy", "cat", "repeat", "flip", "expand_copy", "split_with_sizes_copy")


def movement() -> Model:
    return forward(
        Movement(),
        _movement_inputs(7),
        [[_movement_inputs(7)]],
        expect=(*(f"aten.{name}.default" for name in MOVES), "aten.slice_copy.Tensor", "aten.select_copy.int"),
    )


def movement_dynamic(bound: int = 11, lengths: tuple[int, ...] = (11, 7, 2, 11, 3)) -> Model:
    s = Dim("s", min=2, max=bound)
    steps = [_movement_inputs(n) for n in lengths]
    shapes = ({0: s}, {0: s}, {0: s})
    return forward(
        Movement(),
        _movement_inputs(5),
        [steps],
        dynamic_shapes=shapes,
        expect=("aten.view_copy.default", "aten.permute_copy.default", "aten.cat.default", "aten.slice_copy.Tensor"),
    )


class Indexing(nn.Module):
    """x (S, 5, 7), i (S,) int64 in [0, 2), j (3,) int64 in [0, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(13, 6)
        self.pick = nn.Buffer(torch.tensor([4, 0, 3, 3]))

    def forward(self, x, i, j):
        y = x * 2.0
        grid = i[:, None, None].expand(-1, 5, 2)
        chosen = (y[i], y[:, j], y[:, :, j], y[i, 0], y[:, self.pick], y[-i - 1], y[:, 0, 0][i] + 1.0)
        several = (
            y[i, 1 - i],
            y[i[:, None], j],
            y[:, j, j + 2],
            y[i[:3], :, j[:1]],
            y[j[:2, None] - 5, torch.tensor([[0], [1]]), j[:2]] if x.shape[0] >= 5 else y,
        )
        selected = (torch.index_select(y, 0, i), torch.index_select(y, -1, j), torch.index_select(i, 0, i))
        gathered = (
            torch.gather(y, 2, grid),
            torch.gather(y, 0, i[:, None, None].expand(-1, 3, 4)),
            torch.gather(i, 0, i),
            torch.gather(y, -2, j[None, :, None].expand(x.shape[0], -1, 7)),
        )
        embedded = (self.table(i), self.table(i[:, None] + j), self.table(i) + 1.0)
        return chosen + several + selected + gathered + embedded


def _indexing_inputs(s: int):
    return torch.randn(s, 5, 7), torch.randint(0, 2, (s,)), torch.randint(0, 5, (3,))


def indexing() -> Model:
    return forward(
        Indexing(),
        _indexing_inputs(7),
        [[_indexing_inputs(7), _indexing_inputs(7)]],
        expect=("aten.index.Tensor", "aten.gather.default", "aten.embedding.default"),
    )


def indexing_dynamic(bound: int = 11, lengths: tuple[int, ...] = (11, 7, 5, 11)) -> Model:
    s = Dim("s", min=5, max=bound)
    steps = [_indexing_inputs(n) for n in lengths]
    return forward(
        Indexing(),
        _indexing_inputs(9),
        [steps],
        dynamic_shapes=({0: s}, {0: s}, None),
        expect=("aten.gather.default", "aten.embedding.default"),
    )


class Images(nn.Module):
    """x (2, 8, H, 7), grid (2, 5, 3, 2)."""

    def forward(self, x, grid):
        y = x * 2.0
        resized = (
            nearest(y, [9, 13], None),
            nearest(y, None, [2.0, 3.0]),
            nearest(y, None, [1.7, 2.1]),
            bilinear(y, [9, 4], False, None),
            bilinear(y, [9, 13], True, None),
            bilinear(y, None, False, [1.5, 2.0]),
            bilinear(y, None, True, [1.3, 0.6]),
        )
        sampled = tuple(
            torch.ops.aten.grid_sampler_2d(y, grid, mode, padding, aligned)
            for mode, padding, aligned in [
                (0, 1, True),
                (0, 0, False),
                (1, 0, False),
                (1, 2, True),
                (2, 1, False),
                (0, 2, False),
            ]
        )
        shuffled = (nn.functional.pixel_shuffle(y, 2), nn.functional.pixel_shuffle(y[0], 2))
        padded = (
            nn.functional.pad(y, (1, 2)),
            nn.functional.pad(y, (1, 0, 2, 1), value=1.5),
            nn.functional.pad(y, (-1, 2, 1, -1), value=-2.0),
        )
        windows = (y.unfold(2, 3, 2), y.unfold(-1, 2, 1) + 1.0)
        return resized + sampled + shuffled + padded + windows


def _image_inputs(height: int):
    return torch.randn(2, 8, height, 7), torch.rand(2, 5, 3, 2) * 2.6 - 1.3


def images() -> Model:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  # defines et_vk.grid_priors

    class Priors(Images):
        def forward(self, x, grid):
            return (*super().forward(x, grid), torch.ops.et_vk.grid_priors(x, 8, 0.5))

    ops = ("grid_sampler_2d.default", "constant_pad_nd.default", "unfold_copy.default")
    resampling = ("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec", "et_vk.grid_priors.default")
    expect = (*(f"aten.{name}" for name in ops), *resampling)
    return forward(Priors(), _image_inputs(6), [[_image_inputs(6)]], expect=expect)


def images_dynamic(bound: int = 11, heights: tuple[int, ...] = (11, 6, 4, 11)) -> Model:
    steps = [_image_inputs(h) for h in heights]
    shapes = ({2: Dim("h", min=4, max=bound)}, None)
    return forward(Images(), _image_inputs(5), [steps], dynamic_shapes=shapes)
