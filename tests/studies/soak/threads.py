"""Threads on one device: `python -m tests.studies soak.threads [--threads 8] [--calls 2000] [--forks 200]`.

Every thread calls four programs in turns, a fork of its own of each, and every answer must be equal, bit by bit, to
that of one thread alone. Then forks travel: made in one thread, used in a second and dropped in a third, while other
programs come and go. Ends with status 1 if an answer differs; an abort ends it with that signal.
"""

from __future__ import annotations

import argparse
import gc
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.support.export.exporting import export
from tests.support.harness.counting import X, counting_pte
from tests.support.harness.devices import gpu_of

Arguments = tuple[Any, ...]
STEPS = 40  # of a sequence, which begins with a reset


@dataclass
class Subject:
    """A method, and what a sequence of calls gives."""

    name: str
    method: webpte.Method
    calls: list[Arguments]
    answers: list[Any]

    @classmethod
    def of(cls, name: str, method: webpte.Method, calls: list[Arguments]) -> Subject:
        return cls(name, method, calls, [method(*args) for args in calls])

    def holds(self, method: webpte.Method, number: int) -> bool:
        """Make the next call of a sequence, in which this one has that number."""
        if number % len(self.calls) == 0:
            method.reset()
        at = number % len(self.calls)
        return np.array_equal(method(*self.calls[at]), self.answers[at])


def subjects(folder: Path) -> list[Subject]:
    """Four programs of one device: two that count, and two Llamas with caches."""
    results = []
    for weight in (1, 2):
        path = counting_pte(folder / f"{weight}.pte", weight)
        results.append(Subject.of(f"counting {weight}", webpte.load(path).method(), [(X,)] * STEPS))
    for name in ("llama", "llama_4w"):
        tokens = [(np.array([[(7 * at + 3) % 128]]), np.array([at])) for at in range(STEPS)]
        method = webpte.load(export(name).path).method()
        results.append(Subject.of(name, method, tokens))
    return results


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run `work(number)` in that many threads; return the exceptions."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def call_all(actual: Sequence[Subject], threads: int, calls: int) -> tuple[Counter[str], list[BaseException]]:
    """Every thread makes that many calls of every program."""
    tally: Counter[str] = Counter()

    def work(number: int) -> None:
        forks = [subject.method.fork() for subject in actual]
        right: Counter[str] = Counter()
        for call in range(calls):
            for subject, fork in zip(actual, forks, strict=True):
                right[f"{'right' if subject.holds(fork, call) else 'WRONG'} {subject.name}"] += 1
        with lock:
            tally.update(right)

    lock = threading.Lock()
    return tally, in_threads(threads, work)


def pass_forks(
    actual: Sequence[Subject], folder: Path, threads: int, forks: int
) -> tuple[Counter[str], list[BaseException]]:
    """Forks made here, used there and dropped elsewhere, grandchildren among them; programs come and go beside."""
    tally: Counter[str] = Counter()
    created: queue.Queue[tuple[Subject, webpte.Method]] = queue.Queue()
    used: queue.Queue[webpte.Method] = queue.Queue()
    todo = iter(range(forks))
    lock = threading.Lock()

    def work(number: int) -> None:
        while True:
            with lock:
                turn = next(todo, None)
            if turn is None:
                return
            subject = actual[turn % len(actual)]
            child = subject.method.fork()
            created.put((subject, child.fork() if turn % 3 == 0 else child))
            del child
            taken, fork = created.get()
            right = all(taken.holds(fork, step) for step in range(3))
            used.put(fork)
            del fork
            used.get()
            with lock:
                tally["right" if right else "WRONG"] += 1
            if turn % 10 == 0:
                gc.collect()
                with webpte.load(folder / "1.pte") as program:
                    program.method()(X)

    return tally, in_threads(threads, work)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies soak.threads", description=__doc__)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2000, help="of every program in every thread")
    parser.add_argument("--forks", type=int, default=200)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        result = subjects(Path(name))
        devices = len({id(gpu_of(subject.method)) for subject in result})
        print(f"{options.threads} threads, {len(result)} programs on {devices} device", flush=True)
        failed = devices != 1
        for title, run in (
            ("calls", lambda: call_all(result, options.threads, options.calls)),
            ("forks", lambda: pass_forks(result, Path(name), options.threads, options.forks)),
        ):
            started = time.monotonic()
            tally, errors = run()
            print(f"{title}: {dict(sorted(tally.items()))} in {time.monotonic() - started:.0f} s", flush=True)
            for error in errors:
                print(f"{title}: {type(error).__name__}: {error}")
            failed |= bool(errors) or any("WRONG" in key for key in tally)
        gc.collect()
        left = sum(len(subject.method._forks) for subject in result)
        print(f"forks left: {left}")
    return int(failed or left > 0)


if __name__ == "__main__":
    sys.exit(main())
