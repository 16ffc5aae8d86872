"""A program in a pseudo-terminal whose screen is kept by pyte: what a person would see, after every key."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

SRC = Path(__file__).parents[3] / "src"
KEYS = {
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "enter": "\r", "alt-enter": "\x1b\r", "tab": "\t", "backspace": "\x7f", "delete": "\x1b[3~",
    **{f"ctrl-{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"},
}  # fmt: skip


class Screen:
    """Started on entry, ended on exit by its own process id."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, rows: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = [sys.executable, "-m", *command]
        self._environment = {"TERM": "xterm-256color", **(environment or {})}
        self._size = rows, columns
        self.pyte = pyte.HistoryScreen(columns, rows, history=2000, ratio=1)
        self.pyte.write_process_input = self._reply  # type: ignore[method-assign]  # where is the cursor? it asks
        self._stream = pyte.ByteStream(self.pyte)
        self.bytes = b""

    def __enter__(self) -> Screen:
        self._master, slave = pty.openpty()
        self._tell_size(*self._size)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            self._command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, "PYTHONPATH": f"{SRC}:{SRC.parent}", **self._environment},
            preexec_fn=self._own_terminal,
        )
        os.close(slave)
        return self

    @staticmethod
    def _own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C and a change of size reach it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._master)

    def _reply(self, data: str) -> None:
        os.write(self._master, data.encode())

    def _tell_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int, wrap: bool = False) -> None:
        """Change the size. With `wrap`, what is shown is wrapped to the new width, as most terminals do."""
        shown = self.lines[: self.pyte.cursor.y + 1]
        self._tell_size(rows, columns)
        self.pyte.resize(rows, columns)
        if wrap:
            self.pyte.reset()
            self._stream.feed("\r\n".join(shown).encode())

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def press(self, *names: str) -> None:
        for name in names:
            self.type(KEYS[name])

    def say(self, text: str) -> None:
        self.type(text)
        self.press("enter")

    def paste(self, text: str) -> None:
        self.type(f"\x1b[200~{text}\x1b[201~")

    @property
    def lines(self) -> list[str]:
        """Return what is on the screen, without the spaces at the ends."""
        return [line.rstrip() for line in self.pyte.display]

    @property
    def all_lines(self) -> list[str]:
        """With what has scrolled away."""
        above = ["".join(row[x].data for x in range(self.pyte.columns)).rstrip() for row in self.pyte.history.top]
        return above + self.lines

    @property
    def text(self) -> str:
        return "\n".join(self.all_lines)

    @property
    def prompt_line(self) -> str:
        """Return the line of the cursor."""
        return self.lines[self.pyte.cursor.y]

    def wait(self, seen: str | Callable[[Screen], bool], timeout: float = 120) -> None:
        """Until a text is anywhere on the screen, or a condition is true of it."""
        met = (lambda screen: seen in screen.text) if isinstance(seen, str) else seen
        deadline = time.monotonic() + timeout
        while not met(self):
            left = deadline - time.monotonic()
            assert left > 0, f"{seen!r} did not come within {timeout} s; the screen:\n" + self.text
            if not self._read(min(left, 0.2)) and self.process.poll() is not None and not met(self):
                raise AssertionError(f"the program ended with {self.process.returncode}:\n{self.text}")

    def ended(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        while self._read(0):
            pass
        assert self.process.returncode is not None, f"still running:\n{self.text}"
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            time.sleep(0.02)
            return False
        self.bytes += data
        self._stream.feed(data)
        return bool(data)
