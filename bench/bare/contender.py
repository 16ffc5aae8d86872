"""The engine run bare as a contender: for each job, the best of its variants."""

from __future__ import annotations

from collections.abc import Callable

from ..problems import Problem
from ..protocol import Prepared, RefusedError, serve
from .attention import attention
from .elementwise import add, chain
from .engine import Engine
from .linear import linear
from .q4 import q4_linear, q4_stack
from .upload import upload
from .variants import Variant, calibrate, right

JOBS: dict[str, Callable[[Engine, Problem], list[Variant]]] = {
    "add": add,
    "linear": linear,
    "chain": chain,
    "q4_linear": q4_linear,
    "q4_stack": q4_stack,
    "attention": attention,
    "upload": upload,
}
ROUNDS = 7


class Bare:
    def __init__(self) -> None:
        self._engine = Engine()
        self.about = {"adapter": self._engine.info}

    def prepare(self, row: str, problem: Problem) -> Prepared:
        job = JOBS.get(problem.kind)
        if job is None:
            raise RefusedError("only single kernels are written by hand")
        variants = right(job(self._engine, problem), problem)
        if not variants:
            raise RefusedError("no variant gives the right result on this adapter")
        seconds = calibrate(variants, ROUNDS)
        best = min(variants, key=lambda variant: seconds[variant.name])
        return Prepared(best.run, {"variant": best.name, "calibration": seconds})


if __name__ == "__main__":
    serve(Bare)
