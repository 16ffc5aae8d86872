"""Run mutants in forked processes, so that one that ends its process is counted and the others are still run."""

from __future__ import annotations

import os
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from webpte.errors import Error

BATCH = 250  # mutants of a process
MAX_SECONDS = 5  # of CPU time for a mutant
MAX_WAIT_SECONDS = 60
MAX_MEMORY = 8 << 30  # bytes of addresses
READ, REFUSED, UNTYPED, SLOW, CRASH = "read", "refused", "untyped", "slow", "crash"


@dataclass
class Results:
    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[int]] = field(default_factory=dict)  # numbers of mutants, by what they did

    def note(self, number: int, outcome: str, detail: str = "") -> None:
        self.counts[outcome] += 1
        if outcome not in (READ, REFUSED):
            self.findings.setdefault(f"{outcome}: {detail}", []).append(number)

    def __str__(self) -> str:
        names = (READ, REFUSED, UNTYPED, SLOW, CRASH)
        lines = [", ".join(f"{self.counts[name]} {name}" for name in names)]
        lines += [f"  {len(numbers)} x {what}, such as {numbers[:5]}" for what, numbers in self.findings.items()]
        return "\n".join(lines)


def run_mutants(run: Callable[[Random], None], count: int, seed: int, first: int = 0) -> Results:
    """Call `run` for `count` mutants, each with a source of chance of its own.

    A typed error is a right answer. Any other exception, a process that dies, and `MAX_SECONDS` of CPU time are
    findings.
    """
    results, done = Results(), first
    while done < first + count:
        done = _run_batch(run, done, min(first + count, done + BATCH), seed, results)
    return results


def _run_batch(run: Callable[[Random], None], first: int, end: int, seed: int, results: Results) -> int:
    """Return the number of the mutant to continue with."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(run, range(first, end), seed, writing)
    os.close(writing)
    begun, last = None, first
    with os.fdopen(reading, errors="replace") as lines:
        for line in lines:
            word, number, *rest = line.rstrip("\n").split(" ", 3)
            if word == "begin":
                begun = int(number)
            else:
                results.note(int(number), rest[0], rest[1] if len(rest) > 1 else "")
                begun, last = None, int(number) + 1
    _, status = os.waitpid(child, 0)
    if begun is not None:
        results.note(begun, CRASH, f"signal {status & 127}" if status & 127 else f"exit code {status >> 8}")
        return begun + 1
    return max(last, first + 1)


def _be_child(run: Callable[[Random], None], numbers: range, seed: int, writing: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):  # packages print what they panic about
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in numbers:
        os.write(writing, f"begin {number}\n".encode())
        signal.alarm(MAX_WAIT_SECONDS)
        started = time.process_time()
        outcome = outcome_of(run, Random(seed * (1 << 32) + number))
        if time.process_time() - started > MAX_SECONDS:
            outcome = f"{SLOW} {time.process_time() - started:.0f} s of CPU time"
        signal.alarm(0)
        os.write(writing, f"end {number} {outcome}\n".encode(errors="replace"))
    os._exit(0)


def outcome_of(run: Callable[[Random], None], random: Random) -> str:
    try:
        run(random)
    except Error:
        return REFUSED
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        return f"{UNTYPED} {os.path.basename(place.filename)}:{place.lineno} {text}"
    return READ
