"""What `os.fork()` leaves of GPU objects: handles of a driver whose threads are gone.

Releasing one may wait for ever. So in a child nothing that the parent made is ever released: whatever holds GPU
objects is kept for good there, and the parent, who still owns them, releases them. What the child opens itself begins
with an instance of its own: a driver starts its threads with the instance's first device.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable

try:
    from wgpu.backends.wgpu_native import _helpers
except ImportError:  # another backend, or a wgpu-py that keeps its instance elsewhere
    _helpers = None

_holders: weakref.WeakSet[object] = weakref.WeakSet()
Hook = Callable[[], None]


def keep_in_children(holder: object) -> None:
    """Never collect `holder`, and so the objects it holds, in a child of this process."""
    _holders.add(holder)


def in_children(function: Hook) -> Hook:
    """Call a function first thing in every child."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=function)
    return function


@in_children
def _leave_to_the_parent() -> None:
    if not _holders:
        return
    for holder in list(_holders):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    _holders.clear()
    if _helpers is not None:
        _helpers._the_instance = None
    _skip_the_drivers_farewell()


def _skip_the_drivers_farewell() -> None:
    """At exit Mesa joins its threads, which a child does not have. Leave with the same status before it does."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; handlers run in reverse order, and this one takes the status
        libc.on_exit(libc._exit, None)
