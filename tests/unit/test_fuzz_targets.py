"""The fuzz harnesses work: their seeds are accepted, and a few thousand changed ones find nothing."""

from __future__ import annotations

import random

import pytest

from tests.studies.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_changed_seeds_give_answers(name):
    target, chance = TARGETS[name], random.Random(name)
    for seed in target.seeds():
        target(seed)
        for _ in range(40):
            changed = bytearray(seed)
            for _ in range(chance.choice([1, 2, 8])):
                changed[chance.randrange(len(changed))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            target(bytes(changed))


def test_fuzz_target_exception_is_a_failure():
    with pytest.raises(ZeroDivisionError):
        Target(lambda data: 1 // 0, lambda: [])(b"")  # type: ignore[arg-type]
