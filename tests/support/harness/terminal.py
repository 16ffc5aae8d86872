"""A program in a pseudo-terminal, driven as a person would: type, read the screen, press Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SRC = Path(__file__).parents[3] / "src"
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r")


def run_in_terminal(
    command: Sequence[str], columns: int, rows: int = 24, environment: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Return a program in a terminal of that size, to its end: the exit code, and every byte it wrote there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    full = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    full |= {"PYTHONPATH": str(SRC), "TERM": "xterm", **(environment or {})}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=full) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                result = os.read(master, 65536)
            except OSError:  # the other side is closed
                break
            if not result:
                break
            output += result
    os.close(master)
    return process.returncode, output


class Terminal:
    """Started on entry, ended on exit by its own process id."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, "-m", "webpte", *command]
        self.output = ""

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        environment = os.environ | {"PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "100"}
        self.process = subprocess.Popen(
            self._command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            # A shell starts background jobs with SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(slave)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._master)

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C to the foreground process."""
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, pattern: str, timeout: float = 60) -> str:
        """Return the output up to the end of the pattern, and consume it."""
        deadline = time.monotonic() + timeout
        while not (match := re.search(pattern, self.output)):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come within {timeout} s; the screen says:\n{self.output}"
            if select.select([self._master], [], [], min(left, 0.5))[0] and self._read():
                continue
            if self.process.poll() is not None:
                raise AssertionError(f"the program ended with {self.process.returncode}:\n{self.output}")
        seen, self.output = self.output[: match.end()], self.output[match.end() :]
        return seen

    def ended(self, timeout: float = 60) -> int:
        deadline = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                self._read()
        assert self.process.returncode is not None, f"still running:\n{self.output}"
        return self.process.returncode

    def _read(self) -> bool:
        try:
            self.output += _ESCAPES.sub("", os.read(self._master, 65536).decode("utf-8", "replace"))
            return True
        except OSError:  # the other side is closed: the program is ending
            time.sleep(0.05)
            return False
