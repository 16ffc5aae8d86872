"""Count the work of Python code. A limit on a count holds on every machine; a limit on seconds does not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Work:
    """Calls of functions, of Python and of C, and resumptions of generators."""

    calls: int = 0


@contextmanager
def counted_calls(limit: float = float("inf")) -> Iterator[Work]:
    """Count the calls that this thread makes in the block; the first one above `limit` fails, also in a loop."""
    work = Work()

    def count(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            work.calls += 1
            if work.calls > limit:
                sys.setprofile(before)
                raise AssertionError(f"more than {limit:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield work
    finally:
        sys.setprofile(before)
    assert work.calls <= limit, f"more than {limit:,} calls"


def executed_lines(function: Callable[[], object]) -> int:
    """Return how many lines of Python the function executes, loops without calls included."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    gc.disable()  # finalizers would count
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
