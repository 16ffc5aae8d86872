"""End a command within half a second after Ctrl-C, with exit code 130.

Python's own handler runs when the main thread returns to Python, which can take as long as a driver compiles a kernel
or closes a busy device; and an exception raised inside a native callback or a destructor is lost. So a second thread
receives the signal through the wake-up file descriptor, gives the command time to end by itself, and then ends the
process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

EXIT_CODE = 130  # as shells report for a program ended by SIGINT
GRACE_SECONDS = 0.15  # for a command to end by itself
RESUME_SECONDS = 2.0  # for a command that continues after Ctrl-C: ending it by mistake would lose a conversation


class InterruptWatch:
    """Handles SIGINT from its creation to the end of the process."""

    def __init__(self) -> None:
        self.interrupted = False  # and the command has not handled it yet
        self.grace = GRACE_SECONDS
        self._handled = threading.Event()
        self._wakeup: socket.socket | None = None
        self._deferred: bool | None = None  # inside `deferred`: whether an interrupt has arrived
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return  # ignored, as in a background job
        self._wakeup_reader, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self.arm()
        threading.Thread(target=self._listen, name="interrupts", daemon=True).start()

    def arm(self) -> None:
        """Install the handler, also after an event loop has replaced it."""
        if self._wakeup is not None:
            self._handled.clear()
            signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGINT, self._raise)

    def _raise(self, *_: object) -> None:
        if self.interrupted:  # the second Ctrl-C
            end()
        self.interrupted = True
        if self._deferred is None:
            raise KeyboardInterrupt
        self._deferred = True

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise an interrupt at the end of this context, for work that must not be torn."""
        if self._deferred is not None:  # inside another
            yield
            return
        self._deferred = False
        try:
            yield
        finally:
            arrived, self._deferred = self._deferred, None
        if arrived:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        while numbers := self._wakeup_reader.recv(64):
            if signal.SIGINT in numbers:
                if not self._handled.wait(self.grace):
                    end(flush=False)  # the main thread may hold the stream, waiting for a reader
                self._handled.clear()

    def handled(self) -> None:
        """Note that the command has handled the interrupt and continues."""
        if self.interrupted:
            self.interrupted = False
            self._handled.set()

    def close(self) -> None:
        """Let an interrupt end the process at once, because the command is done."""
        if signal.getsignal(signal.SIGINT) == self._raise:
            signal.signal(signal.SIGINT, lambda *_: end())


def end(flush: bool = True) -> NoReturn:
    """End the process as interrupted. Destructors are skipped, because they may wait for the device."""
    for stream in (sys.stdout, sys.stderr) if flush else ():
        with contextlib.suppress(Exception):
            stream.flush()
    for cleanup in _cleanups:
        with contextlib.suppress(Exception):
            cleanup()
    if sys.stderr.isatty():  # a progress bar hides the cursor
        os.write(sys.stderr.fileno(), b"\x1b[?25h")
    os._exit(EXIT_CODE)


_watch: InterruptWatch | None = None
_cleanups: list[Callable[[], None]] = []  # called before the process ends


@contextlib.contextmanager
def before_the_end(cleanup: Callable[[], None]) -> Iterator[None]:
    """Call `cleanup` if the process is ended inside this context."""
    _cleanups.append(cleanup)
    try:
        yield
    finally:
        _cleanups.remove(cleanup)


def start() -> InterruptWatch:
    """Start to handle interrupts of this process."""
    global _watch
    _watch = InterruptWatch()
    return _watch


def go_on_after() -> None:
    """Announce that the command handles interrupts and continues."""
    if _watch is not None:
        _watch.grace = RESUME_SECONDS


def handled() -> None:
    """Note that such a command has handled an interrupt."""
    if _watch is not None:
        _watch.handled()


def watch_again() -> None:
    """Install the handler again after an event loop has replaced it."""
    if _watch is not None:
        _watch.arm()


def deferred() -> contextlib.AbstractContextManager[None]:
    """Return a context at whose end Ctrl-C is raised, for work that must not be torn."""
    return _watch.deferred() if _watch is not None else contextlib.nullcontext()


def leave() -> NoReturn:
    """End an interrupted command without closing the device, which may be busy."""
    if _watch is not None:
        end()
    raise KeyboardInterrupt
