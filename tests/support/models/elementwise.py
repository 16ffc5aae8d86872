"""Builders of programs with many elementwise ops each: every result is an output."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as fn

from ..export.lowering import Model, forward

LENGTHS = (29, 7, 2, 29)
BOUND = 29
ROWS = Dim("rows", max=BOUND)


def _edge(*names: str) -> tuple[str, ...]:
    return tuple(f"aten.{name}" for name in names)


def functions() -> Model:
    """Functions of one operand, x (S, 13); x is positive for roots and logarithms."""

    class Functions(nn.Module):
        def forward(self, x, positive):
            smooth = (torch.exp(x), torch.sin(x), torch.cos(x), torch.tanh(x), torch.sigmoid(x), fn.gelu(x))
            approximate = (
                fn.gelu(x, approximate="tanh"),
                fn.silu(x),
                fn.hardswish(x),
                torch.erf(x),
            )
            steps = (
                torch.abs(x),
                torch.round(x),
                -x,
                torch.relu(x),
                fn.leaky_relu(x, 0.2),
                fn.hardshrink(x, 0.7),
            )
            whole = (torch.ceil(x), torch.floor(x), torch.sign(x))
            bounds = (fn.hardtanh(x), fn.relu6(x), x.clamp(-1, 2), x.clamp(min=0.5), x.clamp(max=0.25))
            roots = (positive.sqrt(), positive.rsqrt(), positive.log(), positive.log10(), positive.reciprocal())
            powers = (positive**0.3, x**2, x**3, x**-2, x**0, positive**-0.5)
            return smooth + approximate + steps + whole + bounds + roots + powers

    def step(rows):
        return 3 * torch.randn(rows, 13), 0.1 + 5 * torch.rand(rows, 13)

    unary = ("exp", "sin", "cos", "tanh", "sigmoid", "gelu", "abs", "round", "neg", "relu", "leaky_relu")
    more = ("hardtanh", "clamp", "sqrt", "rsqrt", "log10")
    names = _edge(*(f"{n}.default" for n in unary + more), "pow.Tensor_Scalar")
    steps = [step(rows) for rows in LENGTHS]
    return forward(Functions(), step(5), [steps], dynamic_shapes=({0: ROWS}, {0: ROWS}), expect=names)


def arithmetic() -> Model:
    """Two operands with broadcasting: x (S, 13), y (S, 1), w (13,), numbers, and integers i (S, 13), j (13,)."""

    class Arithmetic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.rand(13) + 0.5)

        def forward(self, x, y, i, j):
            w = self.w
            sums = (x + y, x - w, torch.add(x, y, alpha=2), torch.sub(w, x, alpha=3), x + 1.5, 2 - x, x * y, x * 0.5)
            quotients = (x / w, x / 3, 1 / w, torch.div(x, w, rounding_mode="floor"), x // 0.7)
            rests = (torch.div(x, w, rounding_mode="trunc"), torch.remainder(x, w), x % 0.7)
            others = (torch.minimum(x, y), torch.maximum(x, y), w**x, torch.pow(2.0, x), x.square())
            whole = (i + j, i - 3, i * j, i // 5, torch.div(i, j, rounding_mode="floor"), torch.minimum(i, j))
            rest = (torch.div(i, j, rounding_mode="trunc"), i % 5, torch.remainder(i, j), i.clamp(-7, 9), i.abs())
            mixed = (i / 4, i / j, i * 0.5, x + i, x * j)
            return sums + quotients + rests + others + whole + rest + mixed

    j = torch.tensor([1, -2, 3, -4, 5, -7, 11, 2, -3, 9, -1, 6, 8])

    def step(rows):
        return torch.randn(rows, 13), torch.randn(rows, 1), torch.randint(-99, 99, (rows, 13)), j

    names = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode", "minimum.default")
    return forward(
        Arithmetic(),
        step(5),
        [[step(rows) for rows in LENGTHS]],
        dynamic_shapes=({0: ROWS}, {0: ROWS}, {0: ROWS}, None),
        expect=_edge(*names, "pow.Tensor_Tensor", "_to_copy.default"),
    )


def logic() -> Model:
    """Comparisons, logic, selection and casts: x (S, 13), y (1, 13), i (S, 1)."""

    class Logic(nn.Module):
        def forward(self, x, y, i):
            floats = (x == y, x != y, x < y, x <= y, x > y, x >= y)
            numbers = (x == 0.5, x != 0.5, x < 0.5, x <= 0.5, x > 0.5, x >= 0.5, i < 2, i == 1, i >= 0.5)
            a, b = x < y, x > 0
            joined = (a & b, a | b, a ^ b, ~a, torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(b))
            more = (torch.logical_xor(a, b), i & 3, i | 4, ~i)
            masked = torch.where(x < 0, torch.full_like(x, float("-inf")), x)
            chosen = (torch.where(a, x, y), torch.where(b, x, 0.0), masked == float("-inf"), torch.where(a, i, 7))
            casts = (x.int(), x.bool(), i.float(), i.bool(), a.float(), a.int(), (2.7 * x).long())
            return floats + numbers + joined + more + chosen + casts

    def step(rows):
        halves = torch.randint(-3, 4, (rows, 13)) / 2  # equal often enough
        return halves, torch.randint(-3, 4, (1, 13)) / 2, torch.randint(-3, 4, (rows, 1))

    tensors = [f"{n}.{kind}" for n in ("eq", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")]
    names = ("ne.Scalar", "bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_not.default", "logical_and.default")
    return forward(
        Logic(),
        step(5),
        [[step(rows) for rows in LENGTHS]],
        dynamic_shapes=({0: ROWS}, None, {0: ROWS}),
        expect=_edge(*tensors, *names, "logical_or.default", "logical_not.default", "where.self", "_to_copy.default"),
    )


def ranges() -> Model:
    """Ranges as long as x, x-shaped constants, and the length as a number."""

    class Ranges(nn.Module):
        def forward(self, x):
            rows = x.shape[0]
            whole = (torch.arange(rows), torch.arange(1, 2 * rows, 2), torch.arange(rows).float() / 2)
            like = (torch.full_like(x, 2.5), torch.zeros_like(x), torch.ones_like(x), torch.ones_like(x).bool())
            causal = torch.arange(rows)[:, None] >= torch.arange(rows)[None, :]
            return whole + like + (causal, x + torch.tensor(3.5), x.clone())

    steps = [(torch.randn(rows, 13),) for rows in LENGTHS]
    names = ("aten.arange.start_step", "aten.add.Tensor")
    return forward(Ranges(), (torch.randn(5, 13),), [steps], dynamic_shapes=({0: ROWS},), expect=names)


def sized() -> Model:
    """Constants of a live size, which the partitioner leaves outside the delegate."""

    class Sized(nn.Module):
        def forward(self, x):
            rows = x.shape[0]
            floats = (torch.full((rows, 3), 1.5), torch.zeros(rows), torch.ones(2, rows))
            return (*floats, torch.full((rows,), 7), torch.full((rows, 2), True), torch.relu(x))

    steps = [(torch.randn(rows, 13),) for rows in LENGTHS]
    names = ("aten::full", "aten.relu.default")
    return forward(Sized(), (torch.randn(5, 13),), [steps], dynamic_shapes=({0: ROWS},), expect=names)


def static_fills() -> Model:
    """Constants inside a delegate, which takes them only with fixed shapes."""

    class Fills(nn.Module):
        def forward(self, x):
            like = (torch.full_like(x, 2.5), torch.zeros_like(x), torch.ones_like(x))
            by_size = (torch.full((7, 13), -2.0), torch.zeros(13), torch.ones(7, 1), torch.scalar_tensor(1.5))
            return tuple(a + x for a in like + by_size)

    x = torch.randn(7, 13)
    return forward(Fills(), (x,), [[(x,)]], expect=("aten.full.default", "aten.full_like.default"))
