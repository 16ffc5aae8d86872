"""Builders of programs with state: counters, means, rings, recurrences, dtypes. Caches: models_state_caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..export.state_lowering import StateModel

CALLS = 20


class Stateful(nn.Module):
    """`step(self, *inputs)` with these buffers."""

    def __init__(self, step: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.step = step
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs):
        return self.step(self, *inputs)


def model(step: Callable[..., Any], inputs: Callable[[int], tuple[Any, ...]], buffers: dict[str, Any], **more: Any):
    """`inputs` gives those of a call by its number."""
    calls = [("forward", inputs(number)) for number in range(CALLS)]
    return StateModel(Stateful(step, **buffers).eval(), calls, **more)


def floats(*dims):
    return lambda number: (torch.randn(dims),)


# -- counters ----------------------------------------------------------------------------------------------------------


def counter(dtype: str = "int64", start: int = 0, inside: bool = True) -> StateModel:
    def step(m, x):
        m.n += 1
        return x + m.n

    buffers = {"n": torch.full((1,), start, dtype=getattr(torch, dtype))}
    return model(step, floats(3, 4), buffers, inside=inside, initial=("n",) if start else ())


def counter_alone(start: int = 0) -> StateModel:
    """Nothing but 64-bit integers, beyond 32 bits where it starts there."""

    def step(m, x):
        m.n.add_(x)
        return m.n.clone(), m.n.cumsum(0)

    def inputs(number):
        return (torch.tensor([number, 1 - number, 7]),)

    return model(step, inputs, {"n": torch.full((3,), start)}, initial=("n",) if start else (), inside=False)


def many_counters(inside: bool = True) -> StateModel:
    def step(m, x):
        total = x
        for number in range(8):
            state = getattr(m, f"n{number}")
            state.add_(x * number)
            total = total + state
        return total

    return model(step, floats(5), {f"n{number}": torch.zeros(5) for number in range(8)}, inside=inside)


# -- means and extremes ------------------------------------------------------------------------------------------------


def accumulated(inside: bool = True) -> StateModel:
    def step(m, x):
        m.n.add_(x)
        return m.n + 1

    return model(step, floats(3, 4), {"n": torch.zeros(3, 4)}, inside=inside)


def running_mean(inside: bool = True) -> StateModel:
    def step(m, x):
        m.count += 1
        m.mean += (x - m.mean) / m.count
        return x - m.mean

    return model(step, floats(4), {"count": torch.zeros(1), "mean": torch.zeros(4)}, inside=inside)


def ema(inside: bool = True, start: float = 0.0, dynamic: bool = False) -> StateModel:
    def step(m, x):
        m.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - m.mean

    def inputs(number):
        return (torch.randn(1 + (number + 4) % 7 if dynamic else 6, 4),)

    shapes = {"forward": (({0: torch.export.Dim("b", max=7)},),)} if dynamic else {}
    buffers = {"mean": torch.full((4,), start)}
    return model(step, inputs, buffers, inside=inside, dynamic_shapes=shapes, initial=("mean",) if start else ())


def batch_statistics(inside: bool = True) -> StateModel:
    """What a BatchNorm keeps, by hand."""

    def step(m, x):
        mean, spread = x.mean(0), (x * x).mean(0)
        m.mean.copy_(0.9 * m.mean + 0.1 * mean)
        m.spread.copy_(0.9 * m.spread + 0.1 * spread)
        return (x - m.mean) * torch.rsqrt(m.spread + 1e-3)

    return model(step, floats(6, 4), {"mean": torch.zeros(4), "spread": torch.zeros(4)}, inside=inside)


def largest_so_far(inside: bool = True) -> StateModel:
    def step(m, x):
        m.most.copy_(torch.maximum(m.most, x))
        return m.most * 2

    return model(step, floats(7), {"most": torch.zeros(7)}, inside=inside)


# -- windows and rings -------------------------------------------------------------------------------------------------


def window(inside: bool = True) -> StateModel:
    def step(m, x):
        m.rows.copy_(torch.cat([m.rows[1:], x]))
        return m.rows.sum(0), m.rows * 2

    return model(step, floats(1, 4), {"rows": torch.zeros(5, 4)}, inside=inside)


def ring(inside: bool = True) -> StateModel:
    """The place to write is state too, counted modulo the ring's length."""

    def step(m, x):
        m.rows[m.at] = x
        m.at.copy_((m.at + 1) % 5)
        return m.rows.sum(0), m.rows * 1

    return model(
        step, floats(1, 4), {"rows": torch.zeros(5, 4), "at": torch.zeros(1, dtype=torch.int64)}, inside=inside
    )


def rolled(inside: bool = True) -> StateModel:
    def step(m, x):
        m.rows.copy_(torch.roll(m.rows, 1, 0))
        m.rows[0] = x
        return m.rows.sum(0)

    return model(step, floats(4), {"rows": torch.zeros(5, 4)}, inside=inside)


def difference(inside: bool = True) -> StateModel:
    """What was there is read before it is written, and nothing is read after."""

    def step(m, x):
        change = x - m.last
        m.last.copy_(x * 1)
        return change

    return model(step, floats(3, 4), {"last": torch.zeros(3, 4)}, inside=inside)


def never_read(inside: bool = True) -> StateModel:
    def step(m, x):
        m.last.copy_(x * 3)
        return x * 2

    return model(step, floats(3, 4), {"last": torch.zeros(3, 4)}, inside=inside)


def returned(inside: bool = True) -> StateModel:
    def step(m, x):
        m.total.add_(x)
        return m.total

    return model(step, floats(3, 4), {"total": torch.zeros(3, 4)}, inside=inside)


def returned_twice(inside: bool = True) -> StateModel:
    def step(m, x):
        m.total.copy_(m.total * 0.5 + x)
        return m.total, m.total + x, m.total * 1

    return model(step, floats(3, 4), {"total": torch.zeros(3, 4)}, inside=inside)


def swapped(inside: bool = True) -> StateModel:
    """Two buffers, each of which becomes what the other was, in part."""

    def step(m, x):
        total = m.a * 0.7 + m.b * 0.3 + x
        m.a.copy_(m.b * 1)
        m.b.copy_(total)
        return total * 2

    return model(step, floats(3), {"a": torch.zeros(3), "b": torch.zeros(3)}, inside=inside)


# -- layers that remember ----------------------------------------------------------------------------------------------


def recurrent(inside: bool = True) -> StateModel:
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 6)
            self.register_buffer("h", torch.zeros(1, 6))

        def forward(self, x):
            h = self.cell(x, self.h)
            self.h.copy_(h)
            return h * 1

    return StateModel(Cell().eval(), [("forward", (torch.randn(1, 4),)) for _ in range(CALLS)], inside=inside)


def state_space(inside: bool = True) -> StateModel:
    weight = torch.randn(6, 6) * 0.2

    def step(m, x):
        m.h.copy_(m.h @ weight + x)
        return m.h.sum(-1)

    return model(step, floats(2, 6), {"h": torch.zeros(2, 6)}, inside=inside)


def streamed_convolution(inside: bool = True) -> StateModel:
    weight = torch.randn(3, 2, 4)

    def step(m, x):
        seen = torch.cat([m.tail, x], dim=-1)
        m.tail.copy_(seen[..., -3:])
        return nn.functional.conv1d(seen, weight)

    return model(step, floats(1, 2, 5), {"tail": torch.zeros(1, 2, 3)}, inside=inside)


def learned(inside: bool = True) -> StateModel:
    """A weight that starts somewhere and takes a step at every call."""

    def step(m, x, y):
        error = x @ m.w - y
        m.w.sub_(x.t() @ error * 0.01)
        return error

    def inputs(number):
        return torch.randn(5, 4), torch.randn(5, 2)

    return model(step, inputs, {"w": torch.randn(4, 2)}, inside=inside, initial=("w",))


# -- dtypes ------------------------------------------------------------------------------------------------------------


def flags(inside: bool = True) -> StateModel:
    def step(m, x):
        m.seen.copy_(torch.logical_or(m.seen, x > 1))
        return torch.where(m.seen, x, -x)

    return model(step, floats(3, 5), {"seen": torch.zeros(3, 5, dtype=torch.bool)}, inside=inside)


def halves(inside: bool = True) -> StateModel:
    def step(m, x):
        m.total.add_(x)
        return m.total * 2

    def inputs(number):
        return ((torch.randint(-8, 9, (3, 4)) / 8).half(),)

    return model(step, inputs, {"total": torch.zeros(3, 4, dtype=torch.float16)}, inside=inside)


def wide(dtype: str, inside: bool = True) -> StateModel:
    """Dtypes that no kernel of the device has, or only to move about."""
    kind = getattr(torch, dtype)

    def step(m, x):
        m.total.add_(x)
        return m.total * 1

    def inputs(number):
        return (torch.randint(0, 9, (3, 4)).to(kind),)

    return model(step, inputs, {"total": torch.zeros(3, 4, dtype=kind)}, inside=inside)


def history_of_bytes() -> StateModel:
    def step(m, x):
        m.rows.copy_(torch.cat([m.rows[1:], x]))
        return m.rows.to(torch.float32).mean(0)

    def inputs(number):
        return (torch.randint(0, 256, (1, 5), dtype=torch.uint8),)

    return model(step, inputs, {"rows": torch.zeros(4, 5, dtype=torch.uint8)})
