"""Child processes that compute one item after the other, so that a crash or a hang is an outcome of its item."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .children import ROOT, SRC

Item = TypeVar("Item")
Result = TypeVar("Result")


class Worker:
    """A process `python -m module` that reads a JSON request per line and answers in JSON lines: see `serve`.

    It is started at the first request, and again after it ended or served `max_requests`. `quiet` hides its errors.
    """

    def __init__(self, *command: str, timeout: float, max_requests: int | None = None, quiet: bool = False) -> None:
        self.command, self.timeout, self.max_requests, self.quiet = command, timeout, max_requests, quiet
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._served = 0

    def start(self) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SRC, ROOT))), "OMP_NUM_THREADS": "1"}
        process = self._process = subprocess.Popen(
            [sys.executable, *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.quiet else None,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        lines = self._lines = queue.Queue()
        threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
        self._served = 0
        return process

    def send(self, request: Any) -> None:
        """Send a request. If the process has ended, the next `receive` returns None."""
        if self._process is None or self._served == self.max_requests:
            self.close()
            self.start()
        assert self._process is not None and self._process.stdin is not None
        self._served += 1
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._lines.put("")

    def receive(self) -> Any:
        """Return the next answer, or None if the process has ended or does not answer."""
        try:
            line = self._lines.get(timeout=self.timeout)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def reason(self) -> str:
        """Return why there was no answer, and end the process."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)  # its pipe may close before it has ended
        except subprocess.TimeoutExpired:
            return f"no answer in {self.timeout:.0f} s"
        finally:
            self.close()
        return f"the process ended with {code}"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _read(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def serve(answers: Callable[[Any], Iterator[Any]]) -> None:
    """Answer requests in the child. Output of the libraries goes to the standard error."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        for answer in answers(json.loads(line)):
            stream.write(json.dumps(answer) + "\n")


def compute_all(
    items: Sequence[Item],
    jobs: int,
    worker: Callable[[], Worker],
    compute: Callable[[Worker, Item], Result],
    report: Callable[[Item, Result, float], None],
) -> None:
    """Compute all items in `jobs` workers and call `report` in this thread with each result and its seconds.

    An interruption ends the workers and is raised.
    """
    waiting, done = queue.SimpleQueue[Item](), queue.SimpleQueue[tuple[Item, Result, float]]()
    for item in items:
        waiting.put(item)

    def run(own: Worker) -> None:
        while not waiting.empty():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            started = time.monotonic()
            done.put((item, compute(own, item), time.monotonic() - started))

    workers = [worker() for _ in range(min(jobs, len(items)))]
    try:
        for own in workers:
            threading.Thread(target=run, args=(own,), daemon=True).start()
        for _ in items:
            report(*done.get())
    finally:
        for own in workers:
            own.close()
