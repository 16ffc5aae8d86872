"""The parent's side: a child that exports and runs programs, and survives neither of them going wrong."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from .program import Program
from .running import CRASHED, NOT_EXPORTED, Outcome

ROOT = Path(__file__).parents[2]
REQUESTS = 60  # a child serves before another takes its place: exporters keep what they made
PATIENCE = 240.0  # seconds for an export, and for a run


class Worker:
    """Asks a child process, and starts another when it died."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._served = 0

    def seed(self, seed: int) -> Outcome:
        return self._ask({"seed": seed})

    def program(self, program: Program) -> Outcome:
        """A program that is not kept."""
        with tempfile.TemporaryDirectory(prefix="webpte-random-") as folder:
            return self._ask({"program": program.to_json(), "folder": str(Path(folder) / "made")})

    def _ask(self, request: dict[str, Any]) -> Outcome:
        if self._child is None or self._served >= REQUESTS:
            self.close()
            self.start()
        child = self._child
        assert child is not None and child.stdin is not None
        self._served += 1
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            return self._died(NOT_EXPORTED)
        if self._answer() is None:
            return self._died(NOT_EXPORTED)
        result = self._answer()
        if result is None:
            return self._died(CRASHED)
        result.pop("seconds")
        return Outcome(**result)

    def _answer(self) -> dict[str, Any] | None:
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def _died(self, kind: str) -> Outcome:
        assert self._child is not None
        try:
            code = self._child.wait(timeout=5)  # its pipe may close before it has ended
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        return Outcome(kind, f"the process ended with {code}" if code is not None else f"no answer in {PATIENCE:.0f} s")

    def start(self) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.random_modules.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self._served = 0
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._child.stdout, self._lines), daemon=True).start()
        return self._child

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


def _read(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")
