"""Ctrl-C at a chosen place: KeyboardInterrupt raised when webpte is about to execute a certain line, or bytecode.

The interpreter may run a signal's handler between any two bytecodes. Here every one of those moments can be had, one
after the other, with no luck needed. Lines are moments enough where nothing but calls can be interrupted in between.
"""

from __future__ import annotations

import linecache
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkSymInt, VkTensor

Array = np.ndarray[Any, Any]
SRC = str(Path(__file__).parents[3] / "src" / "webpte")
Place = tuple[str, int]  # a file and a line


class Interrupter:
    """Runs a function and interrupts it at the moment number `at`, or counts its moments if there is none."""

    def __init__(self, at: int = -1, bytecodes: bool = False, within: str = "") -> None:
        self._at = at
        self._event = "opcode" if bytecodes else "line"
        self._within = f"{SRC}/{within}"
        self.places: list[Place] = []  # the moments so far
        self._blocks: set[tuple[int, int]] = set()  # lines of `with` that were entered, and their frames

    def run(self, function: Callable[..., Any], *args: Any) -> bool:
        """True if the function was interrupted, False if it ended before."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            function(*args)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        assert len(self.places) <= self._at or self._at < 0, f"the interrupt at {self.places[-1]} got lost"
        return False

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._within):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        return self._moment

    def _moment(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == self._event and not self._leaves_a_block(frame):
            self.places.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.places) == self._at + 1:
                raise KeyboardInterrupt
        return self._moment

    def _leaves_a_block(self, frame: FrameType) -> bool:
        """Whether a `with` is at its end, where tracers see its line again: the interpreter runs no handler there."""
        place = (id(frame), frame.f_lineno)
        if self._event == "line" and linecache.getline(frame.f_code.co_filename, place[1]).lstrip().startswith("with "):
            self._blocks ^= {place}
            return place not in self._blocks
        return False


def first_moments(function: Callable[..., Any], within: str = "") -> list[int]:
    """For each line that the function executes, the number of the moment at which it comes to it first."""
    counted = Interrupter(within=within)
    counted.run(function)
    first: dict[Place, int] = {}
    for number, place in enumerate(counted.places):
        first.setdefault(place, number)
    return list(first.values())


@contextmanager
def bounded(seconds: float = 120) -> Iterator[None]:
    """Yield what hangs is a failure and not the end of the run. Main thread only."""

    def fail(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again and again: the first may fall into a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


ROWS, COLUMNS = 61, 59
WEIGHT = np.arange(1, 8, dtype=np.float32)


def write_subject(path: Path) -> None:
    """forward(x, n) = (x + n[0]) * weight + x, x f32[61, 59, 7] at most, and n[0] a live integer."""
    dims = (ROWS, COLUMNS, 7)
    values = [VkTensor(DType.FLOAT32, dims), VkTensor(DType.INT32, (1,)), VkSymInt(0), VkInt(0), VkInt(1)]
    values += [VkTensor(DType.FLOAT32, (7,), constant_id=0), *(VkTensor(DType.FLOAT32, dims) for _ in range(3))]
    x, data, number, zero, one, weight, moved, scaled, out = range(9)
    calls = [
        ("et_vk.select_as_symint.default", [data, zero, zero, number]),
        ("aten.add.Scalar", [x, number, one, moved]),
        ("aten.mul.Tensor", [moved, weight, scaled]),
        ("aten.add.Tensor", [scaled, x, one, out]),
    ]
    simple_pte(path, values, calls, [x, data], [out], [WEIGHT], dynamic=True)


def arguments(rows: int, columns: int, number: int) -> tuple[Array, Array]:
    x = np.arange(rows * columns * 7, dtype=np.float32).reshape(rows, columns, 7)
    return x, np.array([number], np.int32)


def expected(rows: int, columns: int, number: int) -> Array:
    x, _ = arguments(rows, columns, number)
    return np.asarray((x + number) * WEIGHT + x)
