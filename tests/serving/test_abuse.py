"""The short form of `python -m tests.serving abuse`: every kind of hostile client, and the server answers afterwards.

How long a normal client waits, and how memory grows, is for the nightly run: here other tests run at the same time.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.serving.abuse import Abuse, KindResults, Seen, broken_bounds, run, wrong_answers
from tests.serving.hostile import KINDS
from tests.support.models.caller_files import write_caller


@pytest.mark.slow
@pytest.mark.gpu
def test_server_outlives_hostile_clients(tmp_path):
    abuse = run(str(write_caller(tmp_path)), seconds=8, connections=1500, settling=0)
    assert wrong_answers(abuse) == [] and len(abuse.kinds) == len(KINDS) >= 38


def kinds(**statuses: int) -> list[KindResults]:
    return [KindResults("flood", 9, Counter({int(name[1:]): count for name, count in statuses.items()}), [])]


def test_bounds_are_judged():
    good = Abuse(Seen(9, 0.1, 0.1), Seen(9, 0.2, 0.1), Seen(9, 0.4, 0.1), kinds(s200=5, s429=3, s503=1), 100, 109, 5, 0)
    assert wrong_answers(good) + broken_bounds(good) == []
    bad = Abuse(Seen(9, 0.1, 0.1), Seen(9, 0.2, 0.1), Seen(0, 0.7, 1.1, ["late"]), kinds(s500=2), 100, 112, 5, 1)
    assert len(wrong_answers(bad)) == 3 and len(broken_bounds(bad)) == 4
