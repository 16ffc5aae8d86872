"""Elementwise arithmetic, its special values, and reductions."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import randn
from torch.export import Dim

from ..building import Case, case, program

NAN, INF = float("nan"), float("inf")


@program
def bcast5d() -> Case:
    """Broadcasts over five dimensions, two of them dynamic."""

    def forward(x, y):
        moved = x.transpose(1, 3).contiguous().flatten(2)
        return x * y[None] + x.sum(-1, keepdim=True), (x > y[None]).any(dim=2), moved

    steps = [(randn(n, 3, 1, m, 7), randn(3, 5, m, 1)) for n, m in ((5, 11), (4, 9), (1, 2), (3, 1), (2, 7))]
    b, t = Dim("b", max=5), Dim("t", max=11)
    return case(forward, steps, {0: b, 3: t}, {2: t})


@program
def intmath() -> Case:
    """Integer division in its forms, bits and shifts."""

    def forward(x, y):
        divided = torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x // y, x / y
        remainders = torch.remainder(x, y), torch.fmod(x, y)
        bits = x & y, x | y, x ^ y, ~x, x << 2, x >> 1
        return *divided, *remainders, *bits, x**2, torch.minimum(x, y), x.abs(), -x

    x, y = torch.tensor([-7, 7, -1, 0, 13, -13]), torch.tensor([3, -3, 5, 4, -4, 4])
    return case(forward, [(x, y), (y, torch.tensor([2, 3, -2, 7, 1, -1])), (x * 3, y), (-y, x + 20)])


@program
def fltmath() -> Case:
    """Division in its forms, powers, roundings and signs."""

    def forward(x, y):
        divided = torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc")
        remainders = torch.remainder(x, y), torch.fmod(x, y)
        pairs = torch.pow(x.abs(), y), torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y)
        roundings = torch.round(x), torch.frac(x), torch.sign(x), torch.round(x * 2.5)
        return *divided, *remainders, *pairs, *roundings, torch.lerp(x, y, 0.3)

    x = torch.tensor([-7.5, 7.5, -0.5, 0.5, 1.5, -2.5, 0.0, 1e-3])
    y = torch.tensor([3, -3, 5, 4.0, -4, 4, -2, 0.7])
    return case(forward, [(x, y), (y, x + 0.25), (x * 2, y), (x + 1, y * 2)])


@program(tolerance=1e-5)
def unaries() -> Case:
    functions = (
        torch.erf, torch.exp, torch.expm1, torch.log1p, torch.sin, torch.cos, torch.tan, torch.atan, torch.asinh,
        torch.sinh, torch.cosh, F.softplus, F.elu, F.celu, F.selu, F.mish, F.hardswish, F.hardsigmoid, F.gelu,
        lambda t: F.gelu(t, approximate="tanh"), F.silu, F.logsigmoid, F.softsign, F.tanhshrink, F.relu6,
        torch.sigmoid, torch.reciprocal, torch.square, torch.ceil, torch.floor, torch.trunc,
    )  # fmt: skip
    first = torch.tensor([20.0, 3.3, 1, 0.2, 0.1, 0.5, 2.2, 9.7]) - 0.3
    ranges = ((-0.99, 8), (-0.5, 0.5), (0.1, 3))
    return case(lambda x: [f(x) for f in functions], [(first,), *((torch.linspace(a, b, 8),) for a, b in ranges)])


@program(tolerance=1e-5)
def unaries_extreme() -> Case:
    """Where exponentials overflow.

    Not infinities, for which eager's own kernels of gelu and silu give NaN: `python -m tests.studies special` has
    those.
    """
    functions = (
        torch.tanh, torch.sigmoid, F.gelu, F.silu, F.softplus, F.logsigmoid, F.mish,
        lambda t: F.gelu(t, approximate="tanh"), torch.erf, lambda t: torch.log_softmax(t, 0),
        lambda t: torch.softmax(t, 0), lambda t: torch.logsumexp(t, 0),
    )  # fmt: skip
    values = (
        [-1e4, -100.0, -50, 0, 50, 88, 100, 1e4],
        [1e30, -1e30, 1e-30, -1e-30, 1e38, -1e38, 89.0, 104.0],
        [-1e38, -1e38, -104, -103, -88, -87, -17, -16],
        [87, 88, 88.5, 89, 0.0, -0.0, 16, 17],
    )
    return case(lambda x: [f(x) for f in functions], [(torch.tensor(v),) for v in values])


@program
def nans() -> Case:
    """Tests for, replacement of and reductions over values that are not finite."""

    def forward(x):
        tests = torch.isnan(x), torch.isinf(x), x == x, x > 1
        bounds = x.clamp(-1, 1), x.relu(), torch.maximum(x, torch.zeros_like(x)), x.max()
        replaced = torch.nan_to_num(x, 1.0, 2.0, 3.0), torch.where(torch.isnan(x), 0.0, x)
        return *tests, *bounds, *replaced, torch.softmax(x[:2], 0)

    values = ([1.0, 2, NAN, INF, -INF, 3], [-INF, -INF, 2.0, 1, 0, -0.0], [NAN] * 6, [NAN, 1, 2, 3, 4, 5])
    return case(forward, [(torch.tensor(v),) for v in values])


@program
def reduces() -> Case:
    def forward(x):
        spread = x.var(1), x.std(0, correction=0), torch.var_mean(x, dim=2)
        norms = x.norm(dim=1), x.norm(p=1, dim=-1), x.prod(1), torch.cumprod(x, 2), torch.logsumexp(x, -1)
        tests = (x > 0).all(1), (x > 1).any()
        return *spread, *norms, *tests, x.amin((0, 2)), x.mean((1, 2), keepdim=True), x.sum((0, 1))

    return case(forward, [(randn(3, k, 4),) for k in (29, 27, 2, 3, 11)], {1: Dim("n", min=2, max=29)})


@program(tolerance=1e-4)
def bigrows() -> Case:
    """Rows of 70,001."""

    def forward(x):
        return torch.softmax(x, -1), x.sum(-1), x.cumsum(-1), x.argmax(-1), F.layer_norm(x, (70001,))

    return case(forward, [(randn(2, 70001),) for _ in range(4)])


@program(tolerance=1e-4)
def manyrows() -> Case:
    """150,001 rows: more workgroups than one dimension of a dispatch has."""

    def forward(x):
        return torch.softmax(x, -1), x.sum(-1), x.sum(0), x.t().contiguous(), x.mean(0)

    return case(forward, [(randn(k, 3),) for k in (150001, 140001, 2, 65537)], {0: Dim("n", max=150001)})


@program
def logsoft_ce() -> Case:
    """Losses."""

    def forward(x, y):
        return (
            F.cross_entropy(x, y),
            F.log_softmax(x, 1),
            F.nll_loss(F.log_softmax(x, 1), y, reduction="none"),
            F.mse_loss(x, x * 2),
            F.smooth_l1_loss(x, x * 3),
            F.binary_cross_entropy_with_logits(x, torch.sigmoid(x)),
            F.kl_div(F.log_softmax(x, 1), torch.softmax(x * 2, 1), reduction="batchmean"),
        )

    n = Dim("n", max=11)
    return case(forward, [(randn(k, 7), torch.randint(0, 7, (k,))) for k in (11, 9, 2, 3)], {0: n}, {0: n})


@program(tolerance=1e-5)
def k_logcumsum() -> Case:
    def forward(x):
        return torch.logcumsumexp(x, 1), torch.cummax(x, 1)[0], x.cumsum(1, dtype=torch.float64)

    return case(forward, [(randn(3, 5, 4),) for _ in range(4)])


@program(tolerance=1e-5)
def k_fft() -> Case:
    return case(lambda x: torch.fft.rfft(x).abs(), [(randn(3, 8),) for _ in range(4)])


@program(tolerance=1e-4)
def k_linalg() -> Case:
    def forward(x):
        return torch.linalg.inv(x @ x.transpose(1, 2) + torch.eye(4)), torch.linalg.norm(x)

    return case(forward, [(randn(2, 4, 4),) for _ in range(4)])
