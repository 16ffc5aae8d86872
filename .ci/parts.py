"""Run all tests in parts, as many at a time as there are cores: `python .ci/parts.py --seconds N`.

Most tests keep one core busy, so that two parts at once take little longer than the longer one.
What a part prints is shown when it has ended. Parts that have not ended after N seconds are interrupted, and tell what
they did until then.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

PYTEST = ("pytest", "--durations=25")
DEVICES = (sys.executable, "-m", "tests.devices", "--suites", "op cases", "--configurations")
# Who takes longest begins first. A path inside another part's folder is left out there, so that every test runs once.
PATHS = {
    "contract": ("tests/contract",),
    "gpu": ("tests/gpu",),
    "shown": ("tests/project/test_examples.py", "tests/project/test_notebooks.py", "tests/project/test_pages.py"),
    "serving": ("tests/serving",),
    "others": ("tests",),
}
LAST_WORDS = 60  # seconds for an interrupted part to sum up


@dataclass(frozen=True)
class Ended:
    """A part that ran."""

    name: str
    seconds: float
    status: int
    output: str


def parts() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, paths in PATHS.items():
        others = [other for part in PATHS if part != name for other in PATHS[part]]
        inside = [other for other in others if any(other.startswith(f"{path}/") for path in paths)]
        yield name, (*PYTEST, *paths, *(f"--ignore={path}" for path in inside))
    for configuration in ("swiftshader", "browser"):  # the other configurations: python -m tests.devices
        yield configuration, (*DEVICES, configuration)


def run(name: str, command: tuple[str, ...], until: float) -> Ended:
    print(f"-- {name} begins\n", end="", flush=True)  # in one piece: others print, too
    started = time.monotonic()
    # No pipe: what a test leaves behind would keep it open.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            status = process.wait(until - started)
        except subprocess.TimeoutExpired:
            status = _end(process)
        output.seek(0)
        return Ended(name, time.monotonic() - started, status, output.read())


def _end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python .ci/parts.py", description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="when to give up")
    until = time.monotonic() + parser.parse_args().seconds
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in as_completed([pool.submit(run, name, command, until) for name, command in parts()]):
            ended = done.result()
            result = "passed" if ended.status == 0 else f"FAILED with status {ended.status}"
            print(f"-- {ended.name} {result} after {ended.seconds:.0f} s\n{ended.output}", flush=True)
            failed += [ended.name] if ended.status else []
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
