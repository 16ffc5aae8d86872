"""Branches, loops, several methods, several symbols, random numbers, nothing at all."""

import torch
from torch import nn, randn
from torch.export import Dim

from ..building import Case, case, module, program


@program
def cond() -> Case:
    """A branch on data."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: self.l(a).relu() + 1, lambda a: a * a - 2, (x,))

    x = randn(3, 5).abs()
    return case(module(forward, l=nn.Linear(5, 5)), [(x,), (-x,), (x * 2,), (x - 10,)])


@program
def condshape() -> Case:
    """A branch on a size."""

    def forward(self, x):
        return torch.cond(x.shape[0] > 4, lambda a: self.l(a), lambda a: a - 2, (x,))

    steps = [(randn(k, 5),) for k in (11, 9, 2, 4, 5)]
    return case(module(forward, l=nn.Linear(5, 5)), steps, {0: Dim("n", min=2, max=11)})


@program
def whileloop() -> Case:
    from torch._higher_order_ops.while_loop import while_loop

    def forward(i, x):
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + i), (i, x))

    return case(forward, [(torch.tensor(k), randn(3, 4)) for k in (0, 3, 7, 5)])


@program
def mapop() -> Case:
    """torch's `map` over rows."""
    from functorch.experimental.control_flow import map as over_rows  # type: ignore[import-untyped]

    steps = [(randn(4, 5), randn(5)) for _ in range(4)]
    return case(lambda x, y: over_rows(lambda a, b: a * b + 1, x, y), steps)


@program
def multimethod() -> dict[str, Case]:
    """Two methods that share weights, and four constants."""

    def encode(self, x):
        return self.w(x) + self.b

    def decode(self, x, y):
        return self.encode.w(x).relu() * y, y

    first = module(encode, w=nn.Linear(9, 5), b=randn(5))
    constants = {"vocab": 17, "names": [1, 2, 3], "scale": 2.5, "flag": True}
    n = Dim("n", max=7)
    sizes = (7, 5, 1, 3)
    return {
        "encode": case(first, [(randn(k, 9),) for k in sizes], {0: n}, constants=constants),
        "decode": case(module(decode, encode=first), [(randn(k, 9), randn(5)) for k in sizes], {0: n}, None),
    }


@program
def ptd() -> Case:
    """Large constants in a file of their own."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 3))
    options = {"external_constants_max_data_bytes": 40000}
    return case(model, [(randn(4, 64),) for _ in range(4)], options=options)


@program
def webgpu_part() -> Case:
    """By ExecuTorch's partitioner for WebGPU."""
    model = nn.Sequential(nn.Linear(19, 33), nn.GELU(), nn.LayerNorm(33), nn.Linear(33, 7))
    return case(model, [(randn(k, 19),) for k in (13, 11, 1, 2)], {0: Dim("n", max=13)}, webgpu=True)


@program
def syms4() -> Case:
    """Four symbols."""

    def forward(self, x, y, z):
        q, k = self.l(x), self.l(y)
        a = torch.softmax(q @ k.transpose(1, 2), -1)
        joined = torch.cat([a @ y, x], 1), torch.cat([x, y], 1)[:, 1:]
        return *joined, a.mean(1), (z.unsqueeze(0) * x[:, :1, :, None]).sum(2)

    sizes = ((3, 11, 13, 5), (2, 9, 12, 4), (1, 2, 2, 2), (1, 11, 2, 3), (3, 2, 13, 2), (2, 5, 6, 4))
    b, s, t, h = Dim("b", max=3), Dim("s", min=2, max=11), Dim("t", min=2, max=13), Dim("h", min=2, max=5)
    steps = [(randn(i, j, 6), randn(i, k, 6), randn(6, m)) for i, j, k, m in sizes]
    return case(module(forward, l=nn.Linear(6, 4)), steps, {0: b, 1: s}, {0: b, 1: t}, {1: h})


@program
def symderived() -> Case:
    """A symbol and twice that plus one."""

    def forward(x, y):
        n = x.shape[0]
        created = torch.arange(n) * 2, torch.full((n, 3), 2.0), x.new_zeros(n + 1, 2) + 1
        return x.repeat_interleave(2, 0) + y[:-1], y.reshape(-1).view(n * 2 + 1, -1).sum(0), *created

    s = Dim("s", min=2, max=12)
    return case(forward, [(randn(k, 4), randn(2 * k + 1, 4)) for k in (12, 10, 2, 3, 7)], {0: s}, {0: 2 * s + 1})


@program
def k_dropout() -> Case:
    return case(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), [(randn(2, 4),) for _ in range(4)])


@program
def k_rand() -> Case:
    """Random numbers, times nothing."""
    return case(lambda x: x + torch.rand_like(x) * 0, [(randn(2, 4),) for _ in range(4)])


@program
def k_emptyin() -> Case:
    """Tensors without elements."""
    return case(lambda x: (x * 2, x.sum()), [(torch.zeros(0, 4),)])


@program
def sandwich() -> Case:
    """A delegate, a call on the CPU that depends on it, and a delegate that depends on that."""

    def forward(self, x):
        ordered, places = torch.sort(self.before(x), dim=-1)
        return self.after(ordered), places

    model = module(forward, before=nn.Linear(6, 9), after=nn.Linear(9, 4))
    return case(model, [(randn(k, 6),) for k in (13, 11, 1, 2)], {0: Dim("n", max=13)})


@program
def unused_input() -> Case:
    """An input that nothing reads, and one that only its size is taken of."""

    def forward(x, y, z):
        return x * 2 + z.shape[0]

    n = Dim("n", max=9)
    return case(forward, [(randn(k, 4), randn(3), randn(k)) for k in (9, 7, 1, 4)], {0: n}, None, {0: n})
