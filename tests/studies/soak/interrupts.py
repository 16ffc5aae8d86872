"""Calls interrupted at random moments, each followed by one that must be exact: `python -m tests.studies
soak.interrupts`.

A timer raises KeyboardInterrupt wherever the interpreter happens to be, or presses Ctrl-C there, in turns. With a model
the calls are those of a language model with a cache, whose inputs are tokens and a position.
"""

from __future__ import annotations

import argparse
import collections
import functools
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import webpte
from tests.support.harness.interruption import arguments, expected, write_subject
from webpte.runtime import Method

Array = np.ndarray[Any, Any]
Case = tuple[int, ...]
SHAPES = [(rows, columns) for rows in (1, 2, 3, 7, 20) for columns in (1, 3, 8, 31)]
NEW = 0.1  # share of calls at shapes that were probably not seen before
LENGTHS, POSITIONS = (1, 2, 5, 9, 17, 31), (0, 3, 11, 30)


class Small:
    """A method without state, at many shapes and numbers."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def case(self, chance: random.Random) -> Case:
        shape = (chance.randint(1, 61), chance.randint(1, 59)) if chance.random() < NEW else chance.choice(SHAPES)
        return (*shape, chance.randint(-1000, 1000))

    def call(self, case: Case) -> Array:
        return np.asarray(self.method(*arguments(*case)))

    def reference(self, case: Case) -> Array:
        return expected(*case)


class Llama:
    """Some tokens at some position of an empty cache."""

    def __init__(self, method: Method) -> None:
        self.method = method
        cases: list[Case] = [(length, position) for length in LENGTHS for position in POSITIONS]
        self._wanted = {case: self.call(case) for case in cases}

    def case(self, chance: random.Random) -> Case:
        return chance.choice(list(self._wanted))

    def call(self, case: Case) -> Array:
        length, position = case
        self.method.reset()
        tokens = np.array([[(7 * i + 3) % 128 for i in range(length)]], np.int64)
        return np.asarray(self.method(tokens, np.array([position], np.int64)))

    def reference(self, case: Case) -> Array:
        return self._wanted[case]


class Timer:
    """Interrupts what runs after a while, once, in one of two ways."""

    def __init__(self) -> None:
        self.presses = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.presses:
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    def interrupted(self, seconds: float, call: Callable[[], object]) -> bool:
        self.presses = not self.presses
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            call()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return False
        except KeyboardInterrupt:
            return True


def soak(subject: Small | Llama, interrupts: int, chance: random.Random) -> collections.Counter[str]:
    timer, tally = Timer(), collections.Counter[str]()
    span = 1e-3  # in which interrupts come; follows the time that calls take
    while tally["interrupted"] < interrupts:
        case = subject.case(chance)
        hit = timer.interrupted(chance.uniform(1e-6, span), functools.partial(subject.call, case))
        tally["interrupted" if hit else "came too late"] += 1
        span *= 1.05 if hit else 0.9
        following = case if chance.random() < 0.5 else subject.case(chance)
        right = np.array_equal(subject.call(following), subject.reference(following))
        tally["right afterwards" if right else "WRONG afterwards"] += 1
        if sum(tally.values()) % 20000 < 2:
            print(dict(tally), flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a .pte language model: tokens and a position to logits")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(chosen.model or Path(folder) / "p.pte")
        if not chosen.model:
            write_subject(path)
        with webpte.load(path, passes=None if chosen.model else ()) as program:
            subject = (Llama if chosen.model else Small)(program.method())
            tally = soak(subject, chosen.count, random.Random(chosen.seed))
    print(dict(tally))
    return 1 if tally["WRONG afterwards"] else 0


if __name__ == "__main__":
    sys.exit(main())
