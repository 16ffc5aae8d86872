"""A real server in a process of its own, on a free port of the loopback, started and ended by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .children import ROOT, SRC

PATIENCE = 120.0  # seconds for a server to load its models


class Running:
    """`webpte serve` with arguments of the test's; `url` is where it listens."""

    def __init__(
        self,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        module: str = "webpte",
        patience: float = PATIENCE,
    ) -> None:
        """`module` may be one of the tests' that has the same command; `patience` are the seconds until it listens."""
        full = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT)))} | dict(environment or {})
        command = [sys.executable, "-m", module, "serve", *map(str, arguments), "--port", "0"]
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=full, process_group=0
        )  # a group of its own, as a shell starts it
        self.lines: list[str] = []  # of its log
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = ""
        if not self._listening.wait(patience) or not self.url:
            self.kill()
            raise AssertionError("the server did not start:\n" + "\n".join(self.lines))

    def _read(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("serving at "):
                self.url = line.removeprefix("serving at ").strip()
                self._listening.set()
        self._listening.set()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def api(self) -> str:
        return f"{self.url}/v1"

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def interrupt(self) -> None:
        """Send SIGINT to its process group, as a terminal does after Ctrl-C."""
        os.killpg(self.pid, signal.SIGINT)

    def wait(self, seconds: float = 120) -> int:
        """Return its exit code."""
        code = self._child.wait(seconds)
        self._close()
        return code

    def stop(self) -> int:
        if self._child.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(60)
        self._close()

    def _close(self) -> None:
        """Close the log, which a later test would otherwise find open when it is collected."""
        self._reader.join(60)
        if self._child.stderr is not None and not self._reader.is_alive():
            self._child.stderr.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: Any) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def until(true: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, f"no {what} within {seconds:g} seconds"
        time.sleep(0.05)


def event_in(line: str) -> dict[str, Any] | None:
    """Return the event in a line of a stream, or None if there is none, as in the last line."""
    results: dict[str, Any] | None = json.loads(line[6:]) if line.startswith("data: {") else None
    return results


def children_of(pid: int, helpers: bool = False) -> list[int]:
    """Processes that a process has started and not yet collected. Those that compile schemas only with `helpers`."""
    results = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[1]) == pid and (helpers or not is_schema_process(status.parent)):
            results.append(int(status.parent.name))
    return results


def is_schema_process(folder: Path) -> bool:
    try:
        return b"webpte.serve.schema_process" in (folder / "cmdline").read_bytes()
    except OSError:
        return False  # it has ended meanwhile


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
