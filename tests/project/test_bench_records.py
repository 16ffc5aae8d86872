"""The measurement of further rows, and the stored results of pages."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from bench import curve, page
from bench.page.names import NATIVE, ORT, PAGE, ratio


def test_steps_and_gains_of_a_curve():
    seconds = {1: 2.0, 2: 3.0, 4: 4.0}
    assert curve.steps(seconds) == {2: 1.5, 4: pytest.approx(4 / 3)}
    assert curve.gains(seconds) == {1: 1.0, 2: pytest.approx(4 / 3), 4: 2.0}


def test_calls_take_turns_and_the_fastest_counts():
    calls: list[str] = []
    ticks = iter([0.0, 1, 10, 13, 13, 14, 14, 16, 16, 21])  # of the first turn only the starts
    named = {name: functools.partial(calls.append, name) for name in "ab"}
    fastest = curve.interleaved(named, 2, lambda: next(ticks))
    assert calls == list("ababab") and fastest == {"a": 2, "b": 1}


def test_stored_pages_are_right_and_within_their_ratios():
    assert page.__file__ is not None
    rows = json.loads(Path(page.__file__).parent.with_suffix(".json").read_text())
    assert {"smollm2_decode_100", "smollm2_prefill_32", "smollm2_prefill_128", "llama256_decode"} <= rows.keys()
    for name, row in rows.items():
        assert all(result["right"] for result in row.values()), name
        assert len({tuple(result["tokens"]) for result in row.values()}) == 1, name
        assert ratio(row, PAGE, ORT) <= (0.7 if name.startswith("minilm") else 0.5), name
        assert ratio(row, PAGE, NATIVE) <= 1.3, name
