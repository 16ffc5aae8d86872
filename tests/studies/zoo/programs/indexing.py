"""Gathering, scattering, sorting and choosing."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import randn
from torch.export import Dim

from ..building import Case, case, program

INDICES = torch.tensor([1, 3, 4])


@program
def wherecumtopk() -> Case:
    def forward(x):
        sums = torch.cumsum(x, 1)
        largest, places = torch.topk(x, 3, dim=1)
        chosen = torch.where(x > 0.3, sums.clamp(-1.5, 2), -x)
        return chosen, largest, places, torch.cumsum((x > 0).to(torch.int64), 1), (chosen > 0).sum(dim=1)

    return case(forward, [(randn(3, k),) for k in (41, 37, 4, 5, 19)], {1: Dim("n", min=4, max=41)})


@program
def gatherscatter() -> Case:
    def forward(x, i):
        gathered = torch.gather(x, 1, i)
        scattered = torch.zeros_like(x).scatter(1, i, gathered * 2)
        added = x.scatter_add(1, i, torch.ones_like(gathered))
        return gathered, scattered, added, x[:, i[0]], torch.index_select(x, 1, i[1])

    steps = [(randn(3, k), torch.stack([torch.randperm(k)[:2] for _ in range(3)])) for k in (17, 13, 3, 5)]
    return case(forward, steps, {1: Dim("n", min=2, max=17)}, None)


@program
def indexput() -> Case:
    """Rows written by index, by slice and by mask, in clones of one input."""

    def forward(x, i, v):
        y = x.clone()
        y[i] = v
        z = x.clone()
        z.index_add_(0, i, v)
        w = x.clone()
        w[:, 1] = 5.0
        w[2:4] = x[0:2]
        return y, z, w, x.masked_fill(x > 0, -7)

    steps = [(randn(k, 4), INDICES, randn(3, 4)) for k in (11, 9, 5, 6)]
    return case(forward, steps, {0: Dim("n", min=5, max=11)}, None, None)


@program
def indexput_acc() -> Case:
    """Indices that repeat, and two lists of them."""

    def forward(x, i, v):
        return x.index_put((i,), v, accumulate=True), torch.zeros(7, 4).index_put((i, i % 4), v[:, 0])

    return case(forward, [(randn(9, 4), torch.tensor([1, k, 1]), randn(3, 4)) for k in (5, 3, 1, 0)])


@program
def argsorts() -> Case:
    def forward(x):
        largest, at = x.max(dim=1)
        ordered, order = torch.sort(x, dim=1, descending=True)
        extremes = x.argmax(1), x.argmin(1, keepdim=True), largest, at, ordered, order
        return *extremes, x.argmax(), torch.argsort(x, dim=0), x.amax((0, 1)), x.min(dim=0)[1]

    return case(forward, [(randn(4, k),) for k in (33, 31, 5, 8)], {1: Dim("n", min=5, max=33)})


@program
def k_masked_scatter() -> Case:
    values = torch.arange(60.0).reshape(3, 5, 4)
    return case(lambda x: torch.masked_scatter(x, x > 0, values), [(randn(3, 5, 4),) for _ in range(4)])


@program
def k_bincount() -> Case:
    return case(lambda x: torch.bincount(x, minlength=6), [(torch.randint(0, 6, (20,)),) for _ in range(4)])


@program
def k_nms_like() -> Case:
    """Boxes in the order of their scores, and distances between them."""

    def forward(boxes, scores):
        order = scores.argsort(descending=True)
        return boxes[order], torch.cdist(boxes, boxes), scores.sort()[0], torch.topk(scores, 3)[1]

    return case(forward, [(torch.rand(9, 4), torch.rand(9)) for _ in range(4)])


@program
def k_onehot() -> Case:
    def forward(x):
        return F.one_hot(x, 7).float(), (x[:, None] == torch.arange(7)).sum(0)

    return case(forward, [(torch.randint(0, 7, (9,)),) for _ in range(4)])


@program
def dynslice() -> Case:
    """Slices whose length is data."""

    def forward(x, i):
        n = i.item()
        torch._check(n >= 1)
        torch._check(n <= 8)
        return x[:, :n] * 2, x.narrow(1, n, 2)

    return case(forward, [(randn(3, 12), torch.tensor(k)) for k in (8, 5, 1, 2)])


@program
def nonzero() -> Case:
    """Results whose size is data."""
    return case(lambda x: (torch.nonzero(x > 0), x[x > 0]), [(randn(3, 4),) for _ in range(4)])
