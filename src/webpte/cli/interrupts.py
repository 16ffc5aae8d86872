"""End a command within half a second after Ctrl-C, with exit code 130, or after SIGTERM, with exit code 143.

Python's own handler runs when the main thread returns to Python, which can take as long as a driver compiles a kernel
or closes a busy device; and an exception raised inside a native callback or a destructor is lost. So a second thread
receives the signal through the wake-up file descriptor, gives the command time to end by itself, and then ends the
process. Partial files are removed in both cases.

Ctrl-C raises KeyboardInterrupt, which a command may handle and continue; SIGTERM raises SystemExit.
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
TERMINATED = 143  # and by SIGTERM
GRACE_SECONDS = 0.15  # for a command to end by itself
RESUME_SECONDS = 2.0  # for a command that continues after Ctrl-C: ending it by mistake would lose a conversation


class InterruptWatch:
    """Handles SIGINT and SIGTERM from `begin` to the end of the process."""

    def __init__(self) -> None:
        self.interrupted = False  # and the command has not handled it yet
        self.exit_code = EXIT_CODE
        self.grace = GRACE_SECONDS
        self._handled = threading.Event()
        self._wakeup: socket.socket | None = None
        self._deferred: bool | None = None  # inside `deferred`: whether an interrupt has arrived
        # A signal that the parent ignores, as a shell does for background jobs, stays ignored.
        handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        self._signals = [number for number, default in handlers.items() if signal.getsignal(number) is default]
        if not self._signals:
            return
        self._wakeup_reader, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)

    def begin(self) -> None:
        """Install the handler. A signal that arrives before it is ready is raised at the end."""
        if self._wakeup is not None:
            with self.deferred():
                self._print_lost, sys.unraisablehook = sys.unraisablehook, self._lost
                self.arm()
                threading.Thread(target=self._listen, name="interrupts", daemon=True).start()

    def arm(self) -> None:
        """Install the handler, also after an event loop has replaced it."""
        if self._wakeup is not None:
            self._handled.clear()
            signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
            for number in self._signals:
                signal.signal(number, self._raise)

    def _raise(self, number: int, frame: object) -> None:
        if self.interrupted:  # the second signal
            end()
        self.interrupted = True
        self.exit_code = TERMINATED if number == signal.SIGTERM else EXIT_CODE
        if self._deferred is None:
            raise self._exception()
        self._deferred = True

    def _lost(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Print no exception that Python cannot raise after an interrupt, such as the interrupt itself in the callback
        of a weak reference, which every import calls. `_listen` ends the process."""
        if not self.interrupted:
            self._print_lost(unraisable)

    def _exception(self) -> BaseException:
        return SystemExit(TERMINATED) if self.exit_code == TERMINATED else KeyboardInterrupt()

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
            raise self._exception()

    def _listen(self) -> None:
        while numbers := self._wakeup_reader.recv(64):
            if any(number in numbers for number in self._signals):
                if signal.SIGTERM in numbers:
                    self.exit_code = TERMINATED
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
        for number in self._signals:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: object) -> None:
        self.exit_code = TERMINATED if number == signal.SIGTERM else EXIT_CODE
        end()


def end(flush: bool = True) -> NoReturn:
    """End the process as interrupted. Destructors are skipped, because they may wait for the device."""
    for stream in (sys.stdout, sys.stderr) if flush else ():
        with contextlib.suppress(Exception):
            stream.flush()
    for cleanup in _cleanups:
        with contextlib.suppress(Exception):
            cleanup()
    if (partial := sys.modules.get("webpte.partial_files")) is not None:  # not imported before it is needed
        partial.remove_all()
    if sys.stderr.isatty():  # a progress bar hides the cursor
        os.write(sys.stderr.fileno(), b"\x1b[?25h")
    os._exit(EXIT_CODE if _watch is None else _watch.exit_code)


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


def start() -> None:
    """Start to handle interrupts of this process."""
    global _watch
    _watch = InterruptWatch()
    _watch.begin()


def arrived() -> bool:
    """Return whether an interrupt has arrived that the command has not handled."""
    return _watch is not None and _watch.interrupted


def close() -> None:
    """Let an interrupt end the process at once, because the command is done."""
    if _watch is not None:
        _watch.close()


def go_on_after() -> None:
    """Announce that the command handles Ctrl-C and continues."""
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
