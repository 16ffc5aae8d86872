"""GPU objects across signals and `os.fork()`.

Ctrl-C and SIGTERM: Python runs a signal handler in the main thread between any two bytecodes. An exception that the
handler raises inside a callback of native code, or inside a destructor, is lost: wgpu-py would wait for a device that
is ready already, or report the interrupt as an error. `defer_interrupts` delays the signal until the call, which is
short, ends.

Forks: a child inherits the handles of a driver whose threads it does not have. Releasing one may block for ever. So a
child never releases the parent's objects: `keep_alive_in_child` keeps them until the child exits, and the parent
releases its own. A child that opens a device creates a new instance, because a driver starts its threads with the
instance's first device.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[int, FrameType | None], object]


class _DeferringHandler:
    """Replaces a signal handler while a function runs that must not be interrupted."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.pending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _inside(frame):
            self.pending = True
        else:  # another asynchronous exception kept the original handler from being restored
            signal.signal(number, self.handler)
            self.handler(number, frame)


def defer_interrupts(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that Ctrl-C and SIGTERM take effect when the function returns."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread():  # handlers never run here
            return function(*args, **kwargs)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # Others are ignored, or the system's own.
        deferring = {number: _DeferringHandler(handler) for number, handler in handlers.items() if callable(handler)}
        try:
            for number, deferred in deferring.items():
                signal.signal(number, deferred)
            return function(*args, **kwargs)
        finally:
            for number, deferred in deferring.items():
                signal.signal(number, deferred.handler)
            for number, deferred in deferring.items():
                if deferred.pending:
                    deferred.handler(number, sys._getframe(1))

    return call


_call = cast(FunctionType, defer_interrupts(bool)).__code__  # all decorated functions share it


def _inside(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not _call:
        frame = frame.f_back
    return frame is not None


try:
    from wgpu.backends.wgpu_native import _helpers
except ImportError:  # another backend, or a wgpu-py that keeps its instance elsewhere
    _helpers = None

_holders: weakref.WeakSet[object] = weakref.WeakSet()
Hook = Callable[[], None]


def keep_alive_in_child(holder: object) -> None:
    """Keep `holder` and the objects that it holds from being collected in a child of this process."""
    _holders.add(holder)


def after_fork_in_child(function: Hook) -> Hook:
    """Decorate a function to be called first in every child of this process."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=function)
    return function


@after_fork_in_child
def _keep_parent_objects_alive() -> None:
    if not _holders:
        return
    for holder in list(_holders):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    _holders.clear()
    if _helpers is not None:
        _helpers._the_instance = None
    _exit_before_driver_cleanup()


def _exit_before_driver_cleanup() -> None:
    """Exit with the same status before Mesa's exit handler joins threads that the child does not have."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; handlers run in reverse order, and this one takes the status
        libc.on_exit(libc._exit, None)
