"""The other end of `bench.against`: times what it is asked for, with the webpte that PYTHONPATH names.

Run as a script, because the checkout under test need not have this file. One question a line on stdin, one answer a
line on stdout: milliseconds, or nothing where the program cannot do that.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import webpte

PROMPT = 32
TOKENS = 8  # to generate
TURN_SECONDS = 0.3  # of as many calls as fit: one alone would measure how cold the caches are


class Child:
    """A loaded program and its answers."""

    def __init__(self, path: Path) -> None:
        started = time.perf_counter()
        self.method = webpte.load(path).method("forward")
        self.loaded = (time.perf_counter() - started) * 1000
        self.path = path
        self.generating: Callable[[], Any] | None = None
        bound = self.method.inputs[0].bound
        assert bound is not None
        self.prompt = np.arange(1, min(PROMPT, bound[1]) + 1).reshape(1, -1)  # (1, T)

    def answer(self, question: str) -> float | None:
        match question:
            case "load":
                return self.loaded
            case "prefill":
                return milliseconds(lambda: self.method.run((self.prompt, np.array([0], np.int64))))
            case "decode":
                position = np.array([self.prompt.size], np.int64)
                return milliseconds(lambda: self.method.run((np.array([[7]], np.int64), position)))
            case "generate":
                self.generating = self.generating or generator(self.path, self.prompt)
                return None if self.generating is None else milliseconds(self.generating)
        raise ValueError(question)


def generator(path: Path, prompt: Any) -> Callable[[], Any] | None:
    """Reads the prompt and makes a few tokens; None where no tokenizer lies beside the program."""
    from webpte.llm import LLM

    try:
        llm = LLM.load(path)
    except webpte.Error:
        return None
    llm.stop_tokens = frozenset()
    forget = "forget" if hasattr(llm, "forget") else "reset"  # of a checkout before there were sequences

    def generate() -> None:
        getattr(llm, forget)()
        # One token per submit: how many there would be otherwise depends on how fast a checkout thinks it is.
        llm.generate(tokens=prompt[0].tolist(), max_new_tokens=TOKENS, tokens_per_submit=1).result()

    return generate


def milliseconds(call: Callable[[], Any]) -> float:
    """Return the median of a turn."""
    call()
    taken: list[float] = []
    while sum(taken) < TURN_SECONDS:
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


if __name__ == "__main__":
    child = Child(Path(sys.argv[1]))
    for line in sys.stdin:
        reply = child.answer(line.strip())
        print("" if reply is None else reply, flush=True)
