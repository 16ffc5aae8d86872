"""Programs judged in child processes, so that one that takes its process with it is an outcome like another."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from .index import Program, networks, programs
from .outcome import Kind, Outcome, judge

ROOT = Path(__file__).parents[2]
PATIENCE = 1200  # seconds for one program: exporting some of them takes minutes on a loaded machine
COMMAND = ("-m", "tests.zoo.pool")
Report = Callable[[Program, Outcome, float], None]


def judge_all(expected: Sequence[Program], jobs: int, report: Report) -> None:
    """`report` is called by the caller's thread.  An interruption ends the children and is raised."""
    waiting: queue.SimpleQueue[Program] = queue.SimpleQueue()
    for one in expected:
        waiting.put(one)
    done: queue.SimpleQueue[tuple[Program, Outcome, float]] = queue.SimpleQueue()
    children = [Child() for _ in range(min(jobs, len(expected)))]
    threads = [threading.Thread(target=serve, args=(child, waiting, done), daemon=True) for child in children]
    try:
        for thread in threads:
            thread.start()
        for _ in expected:
            report(*done.get())
    finally:
        for child in children:
            child.end()


def serve(child: Child, waiting: queue.SimpleQueue[Program], done: queue.SimpleQueue) -> None:
    while True:
        try:
            one = waiting.get_nowait()
        except queue.Empty:
            return
        started = time.monotonic()
        done.put((one, child.judge(one), time.monotonic() - started))


class Child:
    """`python -m tests.zoo.pool`: a name per line in, an outcome per line out.  Started again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def judge(self, one: Program) -> Outcome:
        if self._process is None or self._process.poll() is not None:
            self._process = start()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{one.name}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            process.kill()
            return Outcome(one.name, Kind.CRASHED, f"no answer in {PATIENCE} s")
        if not (line := process.stdout.readline()):
            return Outcome(one.name, Kind.CRASHED, f"the process ended with {process.wait()}")
        data = json.loads(line)
        return Outcome(**data | {"kind": Kind(data["kind"])})

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()


def start() -> subprocess.Popen[str]:
    paths = (ROOT / "src", ROOT, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the exporter prints is not an answer
    known = programs() | networks()
    for line in sys.stdin:
        print(json.dumps(asdict(judge(known[line.strip()]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
