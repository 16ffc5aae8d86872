"""Builders of programs with caches, branches over state, and several methods with the same state."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..export.state_lowering import StateModel
from .state import CALLS, model

ROWS = 24


def places(number, rows=ROWS):
    return torch.tensor([number % rows])


# -- caches ------------------------------------------------------------------------------------------------------------


def by_index_put(inside: bool = True, reinplace: bool = False, dtype: str = "float32") -> StateModel:
    def step(m, x, at):
        m.cache[:, at] = x
        return m.cache.sum(1), m.cache * 2

    def inputs(number):
        return torch.randint(-9, 9, (1, 1, 4)).to(getattr(torch, dtype)), places(number)

    buffers = {"cache": torch.zeros(1, ROWS, 4, dtype=getattr(torch, dtype))}
    return model(step, inputs, buffers, inside=inside, reinplace=reinplace)


def by_index_copy(inside: bool = True) -> StateModel:
    def step(m, x, at):
        m.cache.index_copy_(2, at, x)
        return m.cache.sum(2), m.cache * 2

    def inputs(number):
        return torch.randn(1, 2, 1, 4), places(number)

    return model(step, inputs, {"cache": torch.zeros(1, 2, ROWS, 4)}, inside=inside)


def by_slice(inside: bool = True) -> StateModel:
    def step(m, x, at):
        first = at.item()
        torch._check(first >= 0)
        torch._check(first + 1 <= ROWS)
        m.cache.narrow(1, first, 1).copy_(x)
        return m.cache.sum(1)

    def inputs(number):
        return torch.randn(1, 1, 4), torch.tensor(number)

    return model(step, inputs, {"cache": torch.zeros(1, ROWS, 4)}, inside=inside)


def by_fixed_slice(inside: bool = True) -> StateModel:
    def step(m, x):
        m.cache[:, 2:5] = x
        m.cache[:, 7] = x[:, 0] * 2
        return m.cache.sum(1), m.cache * 2

    return model(step, lambda number: (torch.randn(1, 3, 4),), {"cache": torch.zeros(1, 9, 4)}, inside=inside)


def by_scatter(inside: bool = True) -> StateModel:
    def step(m, x, at):
        m.cache.scatter_(1, at, x)
        return m.cache * 2

    def inputs(number):
        return torch.randn(3, 2), torch.stack([torch.randperm(7)[:2] for _ in range(3)])

    return model(step, inputs, {"cache": torch.zeros(3, 7)}, inside=inside)


def by_mask(inside: bool = True) -> StateModel:
    def step(m, x):
        m.cache[x > 0.5] = 1.0
        return m.cache + x

    return model(step, lambda number: (torch.randn(3, 5),), {"cache": torch.zeros(3, 5)}, inside=inside)


def by_several_indices(inside: bool = True) -> StateModel:
    def step(m, x, row, column):
        m.cache[row, column] = x
        return m.cache * 2

    def inputs(number):
        return torch.randn(3), torch.randperm(5)[:3], torch.randint(0, 7, (3,))

    return model(step, inputs, {"cache": torch.zeros(5, 7)}, inside=inside)


def added_at_indices(inside: bool = True) -> StateModel:
    """A histogram: an index that occurs twice counts twice."""

    def step(m, at):
        m.counts.index_put_((at,), torch.ones(6), accumulate=True)
        return m.counts / m.counts.sum()

    return model(step, lambda number: (torch.randint(0, 5, (6,)),), {"counts": torch.zeros(5)}, inside=inside)


def of_any_length(inside: bool = True) -> StateModel:
    """Prefill and decode: up to seven rows at a time, from a position on."""

    def step(m, x, at):
        m.cache[:, at] = x
        return m.cache.sum(1), x * 2

    starts = [0]

    def inputs(number):
        count = 1 + (number * 3 + 5) % 7
        if starts[-1] + count > 60:
            starts.append(0)
        first = starts[-1]
        starts.append(first + count)
        return torch.randn(1, count, 4), torch.arange(count) + first

    length = torch.export.Dim("n", max=7)
    shapes = {"forward": (({1: length}, {0: length}),)}
    return model(step, inputs, {"cache": torch.zeros(1, 64, 4)}, dynamic_shapes=shapes, inside=inside)


def position_inside(inside: bool = True) -> StateModel:
    """A cache that stores its own position."""

    def step(m, x):
        m.cache.index_copy_(1, m.at, x)
        m.at += 1
        return m.cache.sum(1)

    buffers = {"cache": torch.zeros(1, ROWS, 4), "at": torch.zeros(1, dtype=torch.int64)}
    return model(step, lambda number: (torch.randn(1, 1, 4),), buffers, inside=inside)


def attention(inside: bool = True) -> StateModel:
    """One head over a cache of keys and values, masked after the position."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.register_buffer("keys", torch.zeros(1, ROWS, 8))
            self.register_buffer("values", torch.zeros(1, ROWS, 8))

        def forward(self, x, at):
            query, key, value = self.qkv(x).chunk(3, dim=-1)
            self.keys.index_copy_(1, at, key)
            self.values.index_copy_(1, at, value)
            weights = query @ self.keys.transpose(1, 2) / 8**0.5
            seen = torch.arange(ROWS)[None, None, :] <= at[None, :, None]
            return torch.softmax(weights.masked_fill(~seen, -1e9), dim=-1) @ self.values

    calls: list[tuple[str, Any]] = [("forward", (torch.randn(1, 1, 8), places(number))) for number in range(CALLS)]
    return StateModel(Attention().eval(), calls, inside=inside)


# -- branches ----------------------------------------------------------------------------------------------------------


def under_a_branch(inside: bool = True) -> StateModel:
    def step(m, x, flag):
        m.total.copy_(torch.cond(flag, lambda t, y: t + y, lambda t, y: t * 0.5, (m.total, x)))
        return m.total + x

    def inputs(number):
        return torch.randn(3, 4), torch.tensor(number % 3 != 1)

    return model(step, inputs, {"total": torch.zeros(3, 4)}, inside=inside)


def state_decides(inside: bool = True) -> StateModel:
    """The condition is computed from the state."""

    def step(m, x):
        m.total.copy_(torch.cond(m.total.sum() > 4, lambda t, y: t - y, lambda t, y: t + y, (m.total, x)))
        return m.total * 2

    return model(step, lambda number: (torch.rand(3, 4),), {"total": torch.zeros(3, 4)}, inside=inside)


# -- methods -----------------------------------------------------------------------------------------------------------


class Account(nn.Module):
    """One writes what the other reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.total.add_(x)
        self.count += 1
        return self.total * 2

    def look(self, x):
        return self.total + x, self.count + 0

    def clear(self, x):
        self.total.copy_(x * 1)
        return x + 1


def methods_that_share() -> StateModel:
    """Outside delegates: each of those would have a copy of its own."""
    names = ("forward", "forward", "look", "forward", "look", "clear", "look")
    calls: list[tuple[str, Any]] = [(names[number % 7], (torch.randn(4),)) for number in range(CALLS)]
    return StateModel(Account().eval(), calls, shared=True, inside=False)
