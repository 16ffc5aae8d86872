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

CLOCKS = {
    "wall": time.perf_counter,
    "cpu": time.process_time,
}  # the latter counts all threads: less is left to other work
NUMPY: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "bool": np.bool_}
PROMPT = 32
TOKENS = 8  # to generate
TURN_SECONDS = 0.3  # of as many calls as fit: one alone would measure how cold the caches are


class Child:
    """A loaded program and its answers."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        started = clock()
        self.method = webpte.load(path).method("forward")
        self.loaded = (clock() - started) * 1000
        self.clock = clock
        self.path = path
        self.generating: Callable[[], Any] | None = None
        bounds = [tuple(value.bound or ()) for value in self.method.inputs]
        self.has_cache = len(bounds) == 2 and len(bounds[0]) == 2 and bounds[1] == (1,)
        self.prompt = np.arange(1, min((PROMPT, *bounds[0][-1:])) + 1).reshape(1, -1)  # (1, T)

    def answer(self, question: str) -> float | None:
        if question == "load":
            return self.loaded
        if question == "call":
            return None if self.has_cache else self.milliseconds(self.call())
        if not self.has_cache:
            return None
        match question:
            case "prefill":
                return self.milliseconds(lambda: self.method.run((self.prompt, np.array([0], np.int64))))
            case "decode":
                position = np.array([self.prompt.size], np.int64)
                return self.milliseconds(lambda: self.method.run((np.array([[7]], np.int64), position)))
            case "generate":
                self.generating = self.generating or generator(self.path, self.prompt)
                return None if self.generating is None else self.milliseconds(self.generating)
        raise ValueError(question)

    def call(self) -> Callable[[], Any]:
        """Return a call with inputs at their bounds: small integers, or numbers in [0, 1)."""
        random = np.random.default_rng(0)
        inputs: list[Any] = []
        for value in self.method.inputs:
            dtype = NUMPY[str(value.dtype)]
            high = 100 if issubclass(dtype, np.integer) else 1
            inputs.append((high * random.random(value.bound)).astype(dtype))
        return lambda: self.method.run(tuple(inputs))

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """Return the median of a turn."""
        call()
        taken: list[float] = []
        while sum(taken) < TURN_SECONDS:
            started = self.clock()
            call()
            taken.append(self.clock() - started)
        return statistics.median(taken) * 1000


def generator(path: Path, prompt: Any) -> Callable[[], Any] | None:
    """Reads the prompt and makes a few tokens; None where no tokenizer lies beside the program."""
    from webpte.llm import LLM

    try:
        llm = LLM.load(path)
    except webpte.Error:
        return None
    llm.stop_tokens = frozenset()

    def generate() -> None:
        llm.reset_prefix_cache()
        # One token per submit: how many there would be otherwise depends on how fast a checkout thinks it is.
        llm.generate(tokens=prompt[0].tolist(), max_new_tokens=TOKENS, tokens_per_submit=1).result()

    return generate


if __name__ == "__main__":
    child = Child(Path(sys.argv[1]), CLOCKS[sys.argv[2]])
    for line in sys.stdin:
        reply = child.answer(line.strip())
        print("" if reply is None else reply, flush=True)
