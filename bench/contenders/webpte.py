"""webpte itself, with programs that ExecuTorch exported."""

from __future__ import annotations

import inspect
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np

import webpte
from webpte.device.adapter import adapter_caps
from webpte.progress import Progress

from ..problems import Array, Problem
from ..programs import program
from ..protocol import Prepared, RefusedError, serve

UNITS = ("q4_stack", "attention")
# What turns fusion off, whichever of them `load` has.
WITHOUT_FUSION: dict[str, Any] = {"fuse": False, "passes": ()}


class Webpte:
    def __init__(self, fusion: bool) -> None:
        self._fusion = fusion
        self.about = {"version": webpte.__version__, "wgpu": version("wgpu"), "adapter": adapter_caps().adapter}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        if problem.kind in UNITS:
            raise RefusedError("a unit of the bare engine only")
        if problem.kind == "upload":
            return upload(problem)
        loaded = webpte.load(program(row, problem), **self._options())
        method = loaded.method("forward")
        if problem.kind == "llama":
            fill_cache(method, problem)
            position = np.array([problem.size("past")], np.int64)
            inputs: tuple[Array, ...] = (problem.inputs["ids"], position)
        else:
            inputs = tuple(problem.inputs.values())
        return Prepared(lambda: [np.asarray(array) for array in method.run(inputs)], {}, loaded.close)

    def _options(self) -> dict[str, Any]:
        if self._fusion:
            return {}
        known = inspect.signature(webpte.load).parameters
        for name, value in WITHOUT_FUSION.items():
            if name in known:
                return {name: value}
        raise RefusedError("this version has no fusion to switch off")


def upload(problem: Problem) -> Prepared:
    """Return the part of loading SmolLM2 that moves its constants, taken in proportion to the row's bytes."""
    path = program("smollm2", problem)

    def seconds() -> float:
        events: list[tuple[float, Progress]] = []
        with webpte.load(path) as loaded:
            loaded.method("forward", progress=lambda event: events.append((time.perf_counter(), event)))
        moments = [moment for moment, event in events if event.stage == "upload"]
        (nbytes,) = {event.total for _, event in events if event.stage == "upload"}
        return (moments[-1] - moments[0]) * problem.inputs["data"].nbytes / nbytes

    return Prepared(lambda: problem.expected, {"note": "in proportion to its bytes"}, seconds=seconds)


def fill_cache(method: Any, problem: Problem) -> None:
    """Run what came before, in pieces as large as the program takes."""
    if "prompt" not in problem.inputs:
        return
    piece = method.inputs[0].bound[1]
    prompt = problem.inputs["prompt"]
    for start in range(0, prompt.shape[1], piece):
        method.run((prompt[:, start : start + piece], np.array([start], np.int64)), outputs=())


if __name__ == "__main__":
    serve(lambda: Webpte(fusion="--no-fusion" not in sys.argv))
