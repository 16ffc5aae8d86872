"""What is fuzzed: functions of bytes that return, or raise what nobody should see.

A typed error is a right answer. Anything else that escapes, and an execution that takes more than a second of CPU time,
is a finding.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.fuzz.bases import bases
from tests.fuzz.mutations import mutant
from tests.support.container_samples import facts, read_all, sample_blob, sample_ptd, sample_pte
from webpte import container as c
from webpte.errors import Error
from webpte.graph import PASSES, build_graph
from webpte.ops import mutated_positions
from webpte.plan import make_plan
from webpte.runtime.kernels import CpuKernels
from webpte.wgsl import Caps

SECONDS = 1.0


@dataclass(frozen=True)
class Target:
    """One entrance for a stranger's bytes, with the inputs a run starts from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    longest: int = 8192

    def __call__(self, data: bytes) -> None:
        with refused_soon():
            self.run(data)


@contextlib.contextmanager
def refused_soon() -> Iterator[None]:
    """Typed errors are answers; more than a second of CPU time is none."""
    start = time.process_time()
    with contextlib.suppress(Error):
        yield
    taken = time.process_time() - start
    assert taken < SECONDS, f"took {taken:.1f} seconds of CPU time"


def read_program(data: bytes) -> None:
    read_all(data)


def read_delegate(data: bytes) -> None:
    facts(c.parse_vulkan(c.Span(c.MappedFile.from_bytes("fuzz.pte", data), 0, len(data))))


def read_tensors(data: bytes) -> None:
    facts(c.parse_tensors(c.MappedFile.from_bytes("fuzz.ptd", data)))


CAPS = Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=4)
KERNELS = CpuKernels()
WITH_TORCH = "aten::lgamma.out" in KERNELS  # imports torch now, and not inside the first execution


def plan_program(data: bytes) -> int:
    """Plan all methods of a program, as `load` and `Program.plan` do; gives their number."""
    program = c.parse_program(c.MappedFile.from_bytes("fuzz.pte", data))
    for method in program.methods:
        graph = build_graph(method, program.named_data.get, mutated_positions)
        make_plan(graph, CAPS, KERNELS, passes=tuple(PASSES))
    return len(program.methods)


def plan_mutant(data: bytes) -> None:
    """Bytes choose what is changed in an honest program."""
    random = Random(data)
    changed = mutant(random.choice(bases()), random)
    if changed is not None:
        plan_program(changed)


TARGETS: dict[str, Target] = {
    "container": Target(
        read_program,
        lambda: [
            sample_pte(),
            sample_pte(extended_header=24),
            sample_pte(inline_delegates=True, inline_constants=True),
        ],
    ),
    "delegate": Target(read_delegate, lambda: [sample_blob()]),
    "plan": Target(plan_mutant, lambda: [b"0", b"1"], longest=16),
    "tensors": Target(read_tensors, lambda: [sample_ptd()]),
}
