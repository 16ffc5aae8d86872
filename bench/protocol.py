"""How the bench talks to its contenders: each in a process of its own, one JSON line per question and answer.

    -> {"do": "prepare", "row": "add_small", "folder": "…", "scratch": "…"}    <- {"outputs": "….npz", "about": {…}}
    -> {"do": "run"}                                                           <- {"seconds": 0.0123}
    -> {"do": "release"}                                                       <- {}

A contender that cannot do a row answers {"cannot": "why"}. Only NumPy and the standard library are imported here: every
environment has them.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .problems import Array, Problem

TURN_SECONDS = 0.02  # a turn is as many calls as fit: a single short one would measure how cold the caches are


class RefusedError(Exception):
    """A contender cannot do a row; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """`run` does the row's work once, from arrays on the host to arrays on the host.

    Its duration is taken from outside, unless `seconds` knows better: it runs once and says how long the part took that
    the row is about.
    """

    run: Callable[[], Sequence[Array]]
    about: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None
    seconds: Callable[[], float] | None = None


class Contender(Protocol):
    about: dict[str, Any]  # adapter, versions

    def prepare(self, row: str, problem: Problem) -> Prepared: ...


def serve(contender: Callable[[], Contender]) -> None:
    """Answer questions until the other side closes. Whatever a library prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    server = _Server(contender)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = server.answer(question)
        except RefusedError as reason:
            answer = {"cannot": str(reason)}
        except Exception as error:
            traceback.print_exc()
            answer = {"cannot": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        answers.write(json.dumps(answer) + "\n")


class _Server:
    def __init__(self, contender: Callable[[], Contender]) -> None:
        self._make = contender
        self._contender: Contender | None = None
        self._prepared: Prepared | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question["do"]:
            case "about":
                return {"about": self._start().about}
            case "prepare":
                return self._prepare(question["row"], Path(question["folder"]), Path(question["scratch"]))
            case "run":
                return {"seconds": self._run()}
            case "release":
                self._release()
                return {}
        raise ValueError(f"unknown question {question}")

    def _start(self) -> Contender:
        if self._contender is None:
            self._contender = self._make()
        return self._contender

    def _prepare(self, row: str, folder: Path, scratch: Path) -> dict[str, Any]:
        self._release()
        self._prepared = self._start().prepare(row, Problem.read(folder))
        outputs = [np.asarray(array) for array in self._prepared.run()]
        path = scratch / f"outputs-{os.getpid()}.npz"
        np.savez(path, *outputs)
        return {"outputs": str(path), "about": self._prepared.about}

    def _run(self) -> float:
        if self._prepared is None:
            raise RefusedError("nothing was prepared")
        if self._prepared.seconds is not None:
            return self._prepared.seconds()
        taken: list[float] = []
        while sum(taken) < TURN_SECONDS:
            started = time.perf_counter()
            self._prepared.run()
            taken.append(time.perf_counter() - started)
        return statistics.median(taken)

    def _release(self) -> None:
        if self._prepared is not None:
            self._prepared.close()
        self._prepared = None
        gc.collect()  # GPU memory goes with the objects that hold it
