"""Programs that `webpte export` builds, changed in structure or as bytes: states, experts, MXFP4, recurrent layers."""

from __future__ import annotations

import functools
from random import Random

from tests.studies.fuzz.changes import changed_bytes
from tests.studies.fuzz.checkpoints import scratch
from tests.studies.fuzz.mutations import Base, mutant
from tests.studies.fuzz.targets import plan_program
from tests.support.models import families

FAMILIES = ("lfm2", "mixtral", "gpt_oss", "qwen3_5")


@functools.cache
def built_programs() -> tuple[Base, ...]:
    """Build the programs, and plan each."""
    from webpte.builder import build_program

    bases = []
    for name in FAMILIES:
        folder, path = scratch() / f"built-{name}", scratch() / f"{name}.pte"
        families.first(name).save(folder)
        build_program(folder, path, max_context=families.CONTEXT)
        bases.append(Base.of(path.read_bytes()))
        assert plan_program(bases[-1].original)
    return tuple(bases)


def run_program(random: Random) -> None:
    base = random.choice(built_programs())
    size = len(base.original)
    if random.random() < 0.7:
        changed = mutant(base, random)
    else:
        changed = changed_bytes(base.original, random, header=random.choice([2000, 20_000, size]))
    if changed is not None:
        plan_program(changed)
