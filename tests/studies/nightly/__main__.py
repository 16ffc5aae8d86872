"""Run parts that the gate has no time for: `python -m tests.studies nightly [--list] [--logs FOLDER] [PART ...]`.

Without a name, all parts run, one after the other. Every part prints one line:
`nightly: PART: passed|FAILED|timed out in N s: detail`. If a part fails, the others still run.
Exits with status 1 if a part did not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from .parts import PARTS, Part

ROOT = Path(__file__).parents[3]
GRACE = 30.0  # seconds between SIGINT and SIGKILL, in which a command can report what it has done
MAX_DETAIL_CHARS = 160  # characters


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies nightly", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help="the parts to run (all)")
    parser.add_argument("--list", action="store_true", help="print names, limits and commands, and run nothing")
    parser.add_argument("--logs", type=Path, help="the folder for the output of each part (a new temporary one)")
    options = parser.parse_args(arguments)
    known = {part.name: part for part in parts}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown parts: {', '.join(unknown)}. Run with --list to see all of them.")
    chosen = [known[name] for name in options.names] or list(parts)
    if options.list:
        for part in chosen:
            commands = "; ".join(shlex.join(command) for command in part.commands)
            print(f"{part.name:18} {part.limit / 60:3.0f} min  {commands}")
        return 0
    logs = options.logs or Path(tempfile.mkdtemp(prefix="webpte-nightly-"))
    logs.mkdir(parents=True, exist_ok=True)
    print(f"logs: {logs}", flush=True)
    results = [run(part, logs / f"{part.name}.log") for part in chosen]
    return 0 if all(results) else 1


def run(part: Part, log: Path) -> bool:
    """Run the commands of a part, print its result line, and return whether it passed."""
    started = time.monotonic()
    until = started + part.limit
    failed: list[str] = []
    with log.open("w", encoding="utf-8") as output:
        for command in part.commands:
            output.write(f"$ {shlex.join(command)}\n")
            output.flush()
            status = _status(command, output, until - time.monotonic())
            if status is None:
                _report(part, "timed out", started, f"the limit is {part.limit:.0f} s, in: {shlex.join(command)}")
                return False
            if status:
                failed.append(f"status {status} of {shlex.join(command)}")
    detail = _last_line(log)
    _report(part, "FAILED" if failed else "passed", started, f"{failed[0]}: {detail}" if failed else detail)
    return not failed


def _status(command: Sequence[str], output: IO[str], seconds: float) -> int | None:
    """Run a command; return its exit status, or None if it took longer than it may."""
    words = [sys.executable, *command[1:]] if command[0] == "python" else list(command)
    try:
        process = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True
        )
    except OSError as error:
        output.write(f"{error}\n")
        return 127
    try:
        return process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        _signal(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        return None
    finally:
        _signal(process.pid, signal.SIGKILL)  # whatever the command left running, too
        process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:MAX_DETAIL_CHARS]


def _report(part: Part, result: str, started: float, detail: str) -> None:
    print(f"nightly: {part.name}: {result} in {time.monotonic() - started:.0f} s: {detail}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
