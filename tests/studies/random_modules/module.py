"""From a program to modules, inputs and goldens, by eager torch.

How far a result may be from eager's is measured and not guessed: the same module is run again with noise of a few units
in the last place on everything it is given and makes. What moves under such noise may move on a GPU too.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from .names import NAMES
from .program import Input, Method, Program, Sizes, source
from .threads import one_thread

NOISY_RUNS = 12  # enough to turn a comparison that rounding decides
UNITS = 4  # in the last place, on every value
FACTOR = 8  # between what noise does in these runs, and what is taken for wrong
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def build_eager(method: Method, noisy: bool = False) -> nn.Module:
    """The module without `torch.cond`, which compiles its branches at every call."""
    names = NAMES | {"branch": lambda flag, then, other, operands: (then if flag else other)(*operands)}
    exec(source(method, noisy=noisy).replace("torch.cond(", "branch("), names)
    return names["Module"]().eval()


def fill(given: Input, sizes: Sizes, key: str) -> torch.Tensor:
    """The values of an input, by the name of the call."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{key}.{given.name}".encode()))
    dims, dtype = given.at(sizes), getattr(torch, given.dtype)
    if given.fill == "normal":
        return torch.randn(dims, generator=generator).to(dtype)
    if given.fill == "bool":
        return torch.rand(dims, generator=generator) < 0.5
    low, high = map(int, given.fill.split(":"))
    return torch.randint(low, high, dims, generator=generator).to(dtype)


class Noise:
    """Multiplies by 1 plus a few units in the last place. f64 gets that of f32, which delegates narrow it to.

    Where a program is exported with `force_fp16`, everything is rounded to f16 too, and by the first run only rounded.
    """

    def __init__(self, seed: int, half: bool) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.half = half
        self.strength = 0.0 if half and seed == 0 else 1.0

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS:
            return value.clone() if isinstance(value, torch.Tensor) else value
        coarse = torch.bfloat16 if value.dtype == torch.bfloat16 else torch.float16
        narrow = value.dtype in (torch.float16, torch.bfloat16) or self.half
        unit = torch.finfo(coarse if narrow else torch.float32).eps * (1 if narrow else UNITS)
        random = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        shaken = value.double() * (1 + self.strength * unit * random)
        return (shaken.half() if self.half else shaken).to(value.dtype)


@dataclass
class Answer:
    """One call of a method: what it is given, what eager returns, and how far each number may be from that.

    An infinite tolerance marks a number that noise turns into another, such as a comparison of what is nearly equal.
    """

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    tolerances: list[np.ndarray]


def answers(program: Program, name: str) -> list[list[Answer]]:
    """Every sequence of a method. Its modules begin each with the state that the file will hold."""
    method = program.methods[name]
    plain = build_eager(method)
    noisy = build_eager(method, noisy=True)
    answers = []
    for sequence in program.sequences(name):
        exact = copy.deepcopy(plain)
        shaken = [copy.deepcopy(noisy) for _ in range(NOISY_RUNS)]
        for number, module in enumerate(shaken):
            object.__setattr__(module, "noise", Noise(number, program.lowering.force_fp16))
        with one_thread():
            answers.append(list(_sequence(program, method, sequence, exact, shaken)))
    return answers


def _sequence(
    program: Program, method: Method, calls: Any, exact: nn.Module, shaken: list[nn.Module]
) -> Iterator[Answer]:
    for number, sizes in calls:
        inputs = [fill(i, sizes, f"{program.seed}.{number}") for i in method.inputs]
        with torch.no_grad():
            wanted = [w.clone() for w in exact(*(x.clone() for x in inputs))]
            others = [[w.clone() for w in module(*(module.noise(x) for x in inputs))] for module in shaken]
        spread = [
            tolerance(w, [other[i] for other in others], program.lowering.force_fp16) for i, w in enumerate(wanted)
        ]
        yield Answer([to_numpy(x) for x in inputs], [to_numpy(w) for w in wanted], spread)


def tolerance(wanted: torch.Tensor, others: list[torch.Tensor], half: bool) -> np.ndarray:
    w = wanted.double().numpy()
    noisy = np.stack([o.double().numpy() for o in others])
    if wanted.dtype not in FLOATS:
        return np.where((noisy != w).any(axis=0), np.inf, 0.0)
    with np.errstate(invalid="ignore"):
        moved = np.abs(noisy - w).max(axis=0)
    same_kind = (np.isnan(noisy) == np.isnan(w)).all(axis=0) & (np.isinf(noisy) == np.isinf(w)).all(axis=0)
    moved = np.where(np.isfinite(w) & np.isfinite(moved), moved, np.where(same_kind, 0.0, np.inf))
    narrow = torch.float16 if half and wanted.dtype != torch.bfloat16 else wanted.dtype
    unit = max(torch.finfo(narrow).eps, torch.finfo(torch.float32).eps)
    size = np.where(np.isfinite(w), np.abs(w), 0.0)
    usual = np.median(np.where(np.isfinite(moved), moved, 0.0)) if w.size else 0.0
    typical = np.median(size) if w.size else 0.0
    return FACTOR * (moved + usual) + 4 * unit * (size + typical) + np.finfo(np.float32).tiny


def to_numpy(value: torch.Tensor) -> np.ndarray:
    if value.dtype == torch.bfloat16:  # NumPy has none: the bits
        value = value.view(torch.int16)
    return value.detach().numpy().copy()
