"""Ctrl-C while native code is at work.

Python runs a signal's handler in the main thread between two bytecodes, wherever that is. What the handler raises in a
callback that native code has made, or in a destructor, goes nowhere: wgpu-py would wait for a device that has long been
there, or take the interrupt for an error. Around such calls, which are short, the signal is kept for their end.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[int, FrameType | None], object]


class _Kept:
    """Stands in for a handler as long as a function that may not be interrupted runs."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _inside(frame):
            self.came = True
        else:  # left behind, by another asynchronous exception, in the moment before the handler was put back
            signal.signal(signal.SIGINT, self.handler)
            self.handler(number, frame)


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """Let Ctrl-C wait for the end of a function."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():  # handlers never run here
            return function(*args, **kwargs)
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # ignored, or the system's own
            return function(*args, **kwargs)
        kept = _Kept(handler)
        try:
            signal.signal(signal.SIGINT, kept)
            return function(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, handler)
            if kept.came:
                handler(signal.SIGINT, sys._getframe(1))

    return call


_call = cast(FunctionType, uninterrupted(bool)).__code__  # one for all of them


def _inside(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _call:
        frame = frame.f_back
    return frame is not None
