"""Ctrl-C at random moments of real commands: `python -m tests.soak.signals MODEL.pte --count 100`.

Each trial starts a command, sends SIGINT while it loads, reads a prompt or writes an answer, in `generate` and `chat`,
with the driver's cache of compiled kernels (warm) or without (cold), and looks at the exit code and the time it took.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.harness.terminal import SRC

PHASES = ("load", "prefill", "decode", "chat prefill", "chat decode")
WITHIN = 0.5  # seconds
READY = b"tokens"  # as a chat counts them when it is asked to, and so has been loaded


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it had to be killed
    seconds: float
    errors: str

    @property
    def name(self) -> str:
        if self.code == -signal.SIGINT and "webpte" not in self.errors.split("Traceback")[0]:
            return "130 (ended by the signal before webpte ran)"
        return "hung" if self.code is None else str(self.code)

    @property
    def good(self) -> bool:
        return self.name.startswith("130") and self.seconds <= WITHIN


@dataclass(frozen=True)
class Subject:
    """A language model, and how long the prompt is that its prefill phase reads."""

    model: str
    words: int

    def command(self, phase: str) -> list[str]:
        common = ["--max-new-tokens", "100000", "--temperature", "1"]
        if phase.startswith("chat"):
            return ["chat", self.model, *common]
        prompt = "a " * (1 if phase == "decode" else self.words)
        return ["generate", self.model, "--prompt", prompt, *common]


@contextmanager
def started(arguments: list[str], cold: bool) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": str(SRC)} | ({"MESA_SHADER_CACHE_DIR": cache} if cold else {})
        child = subprocess.Popen(
            [sys.executable, "-m", "webpte", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield child
        finally:
            child.kill()
            child.communicate()


def first_output(child: subprocess.Popen[bytes], wanted: bytes = b"", timeout: float = 300) -> bool:
    """Wait until the child has written something, or something certain. False if it ends before."""
    assert child.stdout is not None
    seen, deadline = b"", time.monotonic() + timeout
    while time.monotonic() < deadline:
        if select.select([child.stdout], [], [], 1)[0]:
            piece = os.read(child.stdout.fileno(), 65536)
            seen += piece
            if not piece:
                return False
            if wanted in seen:
                return True
    raise AssertionError(f"no output within {timeout} s")


def interrupt(child: subprocess.Popen[bytes], patience: float = 20) -> Outcome | None:
    """None if there is nobody left to interrupt."""
    if child.poll() is not None:
        return None
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    try:
        _, errors = child.communicate(timeout=patience)
        return Outcome(child.returncode, time.monotonic() - began, errors.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        return Outcome(None, patience, "")


def say(child: subprocess.Popen[bytes], text: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(text + b"\n")
    child.stdin.flush()


def trial(subject: Subject, phase: str, cold: bool, moment: float) -> Outcome | None:
    """SIGINT at a moment from 0 to 1 of a phase, whose length is measured first; None if the command was faster."""
    with started(subject.command(phase), cold) as child:
        if phase in ("load", "prefill"):
            time.sleep(moment * seconds_until_answer(subject, phase, cold))
            return interrupt(child)
        if phase.startswith("chat"):
            say(child, b"/tokens")
            assert first_output(child, READY)
            say(child, b"a " * subject.words)
            if phase == "chat prefill":
                time.sleep(moment * seconds_of_prefill(subject))
                return interrupt(child)
        assert first_output(child)
        time.sleep(moment / 2)
        return interrupt(child)


_measured: dict[tuple[Subject, str, bool], float] = {}


def seconds_until_answer(subject: Subject, phase: str, cold: bool) -> float:
    key = (subject, phase, cold)
    if key not in _measured:
        with started(subject.command("decode" if phase == "load" else phase), cold) as child:
            began = time.monotonic()
            assert first_output(child)
            _measured[key] = time.monotonic() - began
    return _measured[key]


def seconds_of_prefill(subject: Subject) -> float:
    key = (subject, "chat", False)
    if key not in _measured:
        with started(subject.command("chat"), False) as child:
            say(child, b"/tokens")
            assert first_output(child, READY)
            say(child, b"a " * subject.words)
            began = time.monotonic()
            assert first_output(child)
            _measured[key] = time.monotonic() - began
    return _measured[key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--words", type=int, default=200, help="length of the prompt in the prefill phases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cold", type=float, default=0.3, help="share of trials without compiled kernels")
    chosen = parser.parse_args()
    subject, chance = Subject(chosen.model, chosen.words), random.Random(chosen.seed)
    tally: collections.Counter[tuple[str, str, str]] = collections.Counter()
    slowest, wrong = 0.0, 0
    while sum(tally.values()) < chosen.count:
        phase = PHASES[sum(tally.values()) % len(PHASES)]
        cold, moment = chance.random() < chosen.cold, chance.random()
        outcome = trial(subject, phase, cold, moment)
        if outcome is None:
            continue
        tally[phase, "cold" if cold else "warm", outcome.name] += 1
        slowest = max(slowest, outcome.seconds)
        told = f"{phase}, {'cold' if cold else 'warm'}, at {moment:.2f}: {outcome.name} after {outcome.seconds:.2f} s"
        print(told if outcome.good else f"{told}\n{outcome.errors}", flush=True)
        wrong += not outcome.good
    for row, count in sorted(tally.items()):
        print(f"{count:4} {' | '.join(row)}")
    print(f"{chosen.count} interrupts, {wrong} wrong or later than {WITHIN} s, the slowest after {slowest:.2f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
