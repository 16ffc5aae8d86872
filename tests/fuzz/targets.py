"""What is fuzzed: functions of bytes that return, or raise what nobody should see.

A typed error is a right answer. Anything else that escapes, and an execution that takes more than a second of CPU time,
is a finding.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.container_samples import facts, read_all, sample_blob, sample_ptd, sample_pte
from webpte import container as c
from webpte.errors import Error

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
    "tensors": Target(read_tensors, lambda: [sample_ptd()]),
}
