"""Two threads on one device: `python -m tests.studies soak.pair [--calls 2000] [--pause 0.0002]`.

A program each, a method each of one program, and a fork each of one method: calls at many shapes, several steps in one
submit, resets. Every answer must be exact. Submits are slow, so that the other thread comes between. Ends with status 1
if an answer is wrong; two threads that use the same native object at once abort the process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.support.harness.caching import Cache, caching_pte, inputs
from tests.support.harness.devices import gpu_of
from webpte.device import recording

Pair = tuple[webpte.Method, webpte.Method]


class SlowToSubmit:
    """Stands in for the native library."""

    def __init__(self, native: Any, pause: float) -> None:
        self._native = native
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def wgpuQueueSubmit(self, *args: Any) -> None:  # noqa: N802 - the library's name
        time.sleep(self._pause)
        self._native.wgpuQueueSubmit(*args)


@contextmanager
def pairs(folder: Path) -> Iterator[dict[str, Pair]]:
    """Return the pairs of callables of the two threads."""
    path = caching_pte(folder / "p.pte", ["first", "second"])
    with webpte.load(path) as one, webpte.load(path) as other, webpte.load(path) as third:
        forked = third.method("first")
        yield {
            "a program each": (one.method("first"), other.method("first")),
            "a method each": (other.method("first"), other.method("second")),
            "a fork each": (forked.fork(), forked.fork()),
        }


def right_answers(method: webpte.Method, calls: int, seed: int) -> int:
    """Make that many calls, several steps in one submit among them; how many were exact."""
    chance = np.random.default_rng(seed)
    method.reset()
    cache, right, done = Cache(), 0, 0
    while done < calls:
        steps = [inputs(chance)] if chance.integers(4) or calls - done < 3 else fed_steps(chance)
        actual = method.run_steps(steps, {1: 0} if len(steps) > 1 else {}, [0, 1])
        x = steps[0][0]
        for (_, scale, number), (moved, added) in zip(steps, actual, strict=True):
            expected, x = cache.answers(x, scale, number)
            right += np.array_equal(moved, expected) and np.array_equal(added, x)
        done += len(steps)
        if not chance.integers(50):
            method.reset()
            cache = Cache()
    return right


def fed_steps(chance: np.random.Generator) -> list[Any]:
    """Three steps, of which the later ones take their x from the one before."""
    x, scale, _ = inputs(chance)
    return [(x, scale, np.array([number], np.int32)) for number in chance.integers(0, 9, 3)]


def in_two_threads(pair: Pair, calls: int) -> tuple[int, list[BaseException]]:
    """Half of the calls in each; how many answers were exact, and what was raised."""
    right: list[int] = []
    errors: list[BaseException] = []

    def guarded(work: Callable[[], int]) -> None:
        try:
            right.append(work())
        except BaseException as error:
            errors.append(error)

    works = [lambda m=method, s=seed: right_answers(m, calls // 2, s) for seed, method in enumerate(pair)]
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(right), errors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies soak.pair", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000, help="of both threads together")
    parser.add_argument("--pause", type=float, default=0.0002, help="seconds before every submit")
    options = parser.parse_args(arguments)
    vars(recording)["lib"] = SlowToSubmit(vars(recording)["lib"], options.pause)
    failed = False
    with tempfile.TemporaryDirectory() as folder, pairs(Path(folder)) as result:
        for name, pair in result.items():
            assert gpu_of(pair[0]) is gpu_of(pair[1])
            right, errors = in_two_threads(pair, options.calls)
            print(f"{name}: {right} of {options.calls} exact", flush=True)
            for error in errors:
                print(f"{name}: {type(error).__name__}: {error}")
            failed |= right != options.calls or bool(errors)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
