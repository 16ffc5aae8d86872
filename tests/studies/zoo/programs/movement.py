"""Data moved about, and what a program may return."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program


@program
def moves() -> Case:
    def forward(x):
        turned = torch.roll(x, (2, -1), (1, 2)), x.flip(1, 2), x.movedim(0, 2)
        repeated = x.tile(1, 2, 1), torch.repeat_interleave(x, 3, dim=0), x.expand(3, -1, -1)
        parts = torch.tril(x), torch.triu(x, 1), x.unfold(2, 3, 2), x[:, ::3, 1:], x[:, -2], x.narrow(1, 1, 2)
        shaped = torch.stack([x, x * 2], 2), x.squeeze(0).unsqueeze(-1), torch.swapaxes(x, 1, 2).reshape(-1)
        return *turned, *repeated, *parts, *shaped

    return case(forward, [(randn(1, k, 9),) for k in (21, 19, 5, 6)], {1: Dim("n", min=4, max=21)})


@program
def splits() -> Case:
    def forward(x):
        a, b, c = x.split([2, 3, 4], 2)
        u = x.unbind(0)
        p, q = x.chunk(2, 2)
        third = torch.tensor_split(x, 3, dim=2)[1]
        return a, b * 2, c, u[0], u[1] + 1, p, q, third, torch.meshgrid(x[0, 0], x[1, 1], indexing="xy")[0]

    return case(forward, [(randn(2, k, 9),) for k in (14, 13, 2, 5)], {1: Dim("n", min=2, max=14)})


@program
def rank7() -> Case:
    """Seven dimensions."""

    def forward(x):
        return x.permute(6, 0, 5, 1, 4, 2, 3) + 1, x.sum((1, 3, 5)), x.flip(6)

    return case(forward, [(randn(2, 1, 3, 2, 2, 3, 2),) for _ in range(4)])


@program
def k_u8perm() -> Case:
    """Bytes turned, padded and sliced."""

    def forward(x):
        return x.permute(2, 0, 1).contiguous(), F.pad(x, (1, 1)), x[:, 1:, ::2], x.flip(0)

    return case(forward, [(torch.randint(0, 255, (3, 5, 4), dtype=torch.uint8),) for _ in range(4)])


@program
def k_tri() -> Case:
    """Constants made on the way, one of them empty."""

    def forward(x):
        n = x.shape[0]
        created = torch.tril(torch.ones(n, n)), torch.eye(4), torch.linspace(0, 1, 5), torch.zeros(2, 0)
        return *created, torch.arange(n).unsqueeze(0) < 3

    return case(forward, [(randn(6),) for _ in range(4)])


# ---------------------------------------------------------------- views outside delegates


@program
def view_u8_flat() -> Case:
    """Flat bytes of a camera, as an image for a convolution."""

    def forward(self, x):
        return self.conv(x.view(1, 12, 10, 3).permute(0, 3, 1, 2).float() / 255)

    steps = [(torch.randint(0, 255, (360,), dtype=torch.uint8),) for _ in range(4)]
    return case(module(forward, conv=nn.Conv2d(3, 4, 3)), steps)


@program
def view_f64() -> Case:
    def forward(self, x):
        return self.linear(x.view(3, 4)).view(2, 6)

    steps = [(randn(12, dtype=torch.float64),) for _ in range(4)]
    return case(module(forward, linear=nn.Linear(4, 4).double()), steps)


@program
def view_i16() -> Case:
    steps = [(torch.randint(-50, 50, (24,), dtype=torch.int16),) for _ in range(4)]
    return case(lambda x: (x.view(4, 6) * 2).view(3, 8), steps)


class Post(nn.Module):
    def forward(self, x):
        y = (x.reshape(2, 3, 4, 2) * 2).reshape(6, 8)
        return torch.relu(y).view(-1, 4)


def around(post: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), post, nn.Linear(4, 3))


@program
def view_blocklist() -> Case:
    """Views in a module that is kept out of the delegate."""
    return case(around(Post()), [(randn(6, 8),) for _ in range(4)], keep_out={"nn_module_blocklist": ["Post"]})


@program
def view_opblock() -> Case:
    """Views among operators that are kept out of the delegate."""
    from executorch.exir.dialects._ops import ops

    aten = ops.edge.aten
    listed = [aten.view_copy.default, aten.mul.Tensor, aten.relu.default]
    return case(around(Post()), [(randn(6, 8),) for _ in range(4)], keep_out={"operator_blocklist": listed})


# ---------------------------------------------------------------- outputs


@program
def scalars() -> Case:
    """Sizes, numbers and tensors of no dimension."""

    def forward(x):
        sizes = x.shape[0], x.shape[0] * x.shape[1] + 1
        return x.sum(), x.mean(), *sizes, (x > 0).sum(), x.max(), torch.tensor(3.5), True, 2.5

    return case(forward, [(randn(k, 5),) for k in (13, 11, 1, 2)], {0: Dim("n", max=13)})


@program
def outs_are_views() -> Case:
    """Inputs and views of them, one of them twice."""

    def forward(x, y):
        return x, x.view(-1), y, x.t(), x[1:], x.unsqueeze(0), y + 0, x

    return case(forward, [(randn(6, 5), torch.arange(4) * k) for k in (4, 1, 3, 2)])


@program
def outs_views_dyn() -> Case:
    def forward(x):
        return x, x.reshape(-1), x.transpose(0, 1), x[1:], x * 2, x[-1], x[:, ::2]

    return case(forward, [(randn(k, 5),) for k in (13, 11, 3, 4)], {0: Dim("n", min=3, max=13)})


@program
def const_param_out() -> Case:
    """A buffer, a parameter and constants as they are."""

    def forward(self, x):
        return self.b, x + 1, self.p, self.p * 2, torch.arange(7), torch.ones(2, 3)

    return case(module(forward, b=randn(3, 4), p=nn.Parameter(randn(5))), [(randn(3),) for _ in range(4)])


@program
def const_out() -> Case:
    """A buffer and constants as they are."""

    def forward(self, x):
        return self.b, x + 1, self.p * 2, torch.arange(7), torch.ones(2, 3)

    return case(module(forward, b=randn(3, 4), p=nn.Parameter(randn(5))), [(randn(3),) for _ in range(4)])


@program
def dup_out() -> Case:
    """One result returned twice."""

    def forward(x):
        y = x * 2
        return y.clone(), y.clone(), y + 1

    return case(forward, [(randn(3, 4),) for _ in range(4)])


@program
def same_twice() -> Case:
    n = Dim("n", max=9)
    steps = [(randn(k, 5), randn(k, 5)) for k in (9, 7, 1, 4)]
    return case(lambda x, y: (x + 2 * y, x @ y.t()), steps, {0: n}, {0: n})


@program
def space_to_depth() -> Case:
    def forward(x):
        B, C, H, W = x.shape
        return x.view(B, C, H // 2, 2, W // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(B, C * 4, H // 2, W // 2)

    return case(forward, [(randn(n, 3, 6, 8),) for n in (5, 3, 1, 2)], {0: Dim("b", max=5)})
