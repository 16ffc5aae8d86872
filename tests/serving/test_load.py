"""The short form of `python -m tests.serving load`: every kind of client with every hostile schema, once.

How memory grows is for the nightly run: after so few requests it depends on the moment.
"""

from __future__ import annotations

import collections

import pytest

from tests.serving.load import HOSTILE, KINDS, Pressed, judge, run, turns
from tests.support.models.caller_files import write_caller

ALL = len(KINDS) * len(HOSTILE)


@pytest.mark.slow
@pytest.mark.gpu
def test_load_hostile_clients_leave_nothing_behind(tmp_path):
    assert run(str(write_caller(tmp_path)), (ALL,), clients=12, seed=1) == []


def test_load_turns_block_covers_kinds_and_schemas():
    results = [(turn.kind, str(turn.schema)) for turn in turns(2 * ALL, 3)]
    assert sorted(results[:ALL]) == sorted(results[ALL:])
    assert {kind for kind, _ in results[:ALL]} == set(KINDS)
    assert len({schema for _, schema in results[:ALL]}) == len(HOSTILE)


def looks(*sizes: int) -> dict[int, dict[str, int]]:
    return {number: {"server": size} for number, size in enumerate(sizes)}


def test_load_judge_reports_each_problem():
    good = Pressed(collections.Counter({200: 5, 429: 1}), {"busy": 0, "queued": 0}, looks(100, 101, 102))
    assert judge(good) == []
    bad = Pressed(collections.Counter({500: 2}), {"busy": 1, "queued": 0}, looks(100, 101, 103))
    assert [line.split()[0] for line in judge(bad)] == ["2", "nobody", "slots", "the"]
