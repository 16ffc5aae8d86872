"""Ctrl-C ends a command within half a second, with exit code 130, whatever it is doing.

Python's own handler runs when the main thread comes back to Python, which takes as long as a driver needs to compile a
kernel or to close a busy device; and what it raises inside a native callback or a destructor is lost. So another thread
hears of the signal from the system's handler itself, gives the command time to end in order, and then ends it.
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

EXIT_CODE = 130  # what shells report of a program that Ctrl-C has ended
GRACE = 0.15  # seconds for a command to end by itself
PATIENCE = 2.0  # for one that means to go on: ending it by mistake would cost a conversation


class Watch:
    """Looks after interrupts, from its creation to the end of the process."""

    def __init__(self) -> None:
        self.interrupted = False  # and nobody has taken care of it yet
        self.grace = GRACE
        self._handled = threading.Event()
        self._wakeup: socket.socket | None = None
        self._deferred: bool | None = None  # whether one came, while they are put off
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return  # ignored, as in a background job
        self._heard, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self.arm()
        threading.Thread(target=self._listen, name="interrupts", daemon=True).start()

    def arm(self) -> None:
        """Hear of signals, also after an event loop has heard of them in between."""
        if self._wakeup is not None:
            self._handled.clear()
            signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGINT, self._raise)

    def _raise(self, *_: object) -> None:
        if self.interrupted:  # for the second time, by somebody who will not wait
            end()
        self.interrupted = True
        if self._deferred is None:
            raise KeyboardInterrupt
        self._deferred = True

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """An interrupt is raised at the end of this: for moments that must be whole."""
        if self._deferred is not None:  # inside another
            yield
            return
        self._deferred = False
        try:
            yield
        finally:
            came, self._deferred = self._deferred, None
        if came:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        while numbers := self._heard.recv(64):
            if signal.SIGINT in numbers:
                if not self._handled.wait(self.grace):
                    end(flush=False)  # the main thread may hold the stream, waiting for a reader
                self._handled.clear()

    def handled(self) -> None:
        """The command goes on."""
        if self.interrupted:
            self.interrupted = False
            self._handled.set()

    def close(self) -> None:
        """The command is done: from here on an interrupt ends the process, which is ending anyway, at once."""
        if signal.getsignal(signal.SIGINT) == self._raise:
            signal.signal(signal.SIGINT, lambda *_: end())


def end(flush: bool = True) -> NoReturn:
    """End the process as interrupted. Destructors might wait for the device, so none are run."""
    for stream in (sys.stdout, sys.stderr) if flush else ():
        with contextlib.suppress(Exception):
            stream.flush()
    for restore in _restoring:
        with contextlib.suppress(Exception):
            restore()
    if sys.stderr.isatty():  # a progress bar has hidden the cursor
        os.write(sys.stderr.fileno(), b"\x1b[?25h")
    os._exit(EXIT_CODE)


_watch: Watch | None = None
_restoring: list[Callable[[], None]] = []  # what the terminal needs when the process ends


@contextlib.contextmanager
def before_the_end(restore: Callable[[], None]) -> Iterator[None]:
    """Should the process be ended inside of this, `restore` is called first."""
    _restoring.append(restore)
    try:
        yield
    finally:
        _restoring.remove(restore)


def start() -> Watch:
    global _watch
    _watch = Watch()
    return _watch


def go_on_after() -> None:
    """To be called by a command that will handle interrupts and go on."""
    if _watch is not None:
        _watch.grace = PATIENCE


def handled() -> None:
    """To be called by such a command each time."""
    if _watch is not None:
        _watch.handled()


def watch_again() -> None:
    """To be called after an event loop was run, which hears of signals in our place."""
    if _watch is not None:
        _watch.arm()


def deferred() -> contextlib.AbstractContextManager[None]:
    """For moments that Ctrl-C must not tear: it is raised at their end."""
    return _watch.deferred() if _watch is not None else contextlib.nullcontext()


def leave() -> NoReturn:
    """End a command that was interrupted, without closing the device, which may be busy for long."""
    if _watch is not None:
        end()
    raise KeyboardInterrupt
