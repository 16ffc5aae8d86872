"""The cost model says what the bench measured, and the page says what both say now."""

from __future__ import annotations

import functools
import json

import pytest

from bench import bulk, curve, scale, visits
from bench.page.names import NATIVE, ORT, PAGE, ratio


def test_the_sum_of_parts_is_near_what_was_measured():
    for model, context, taken, parts in scale.measured(*scale.stored()):
        assert 0.75 <= sum(parts.values()) / taken <= 1.25, (model.name, context)


def test_the_page_is_up_to_date():
    assert scale.PAGE.read_text(encoding="utf-8") == scale.markdown(*scale.stored()), "run python -m bench.scale"


@pytest.mark.parametrize(
    ("model", "millions"), [(scale.LLAMA256, 3.7), (scale.SMOLLM2, 134.5), (scale.LLAMA1B, 1235.7)]
)
def test_weights_are_counted_as_published(model, millions):
    assert model.weights / 1e6 == pytest.approx(millions, rel=0.01)


def test_further_rows_cost_what_was_measured():
    found = scale.measured_rows(*scale.stored())
    assert {(model.name, count) for model, count, _, _ in found} >= {(scale.SMOLLM2.name, n) for n in range(1, 33)}
    for model, count, taken, predicted in found:
        assert 0.75 <= predicted / taken <= 1.25, (model.name, count)


def test_more_bandwidth_is_more_tokens_and_hope_is_more_than_caution():
    found = [scale.expected(name) for name in sorted(scale.DEVICES, key=scale.DEVICES.__getitem__)]
    assert all(low < high for low, high in found) and found == sorted(found)


def test_more_sequences_make_more_tokens():
    for name in scale.DEVICES:
        found = [scale.expected(name, sequences=n) for n in scale.SEQUENCES]
        assert found == sorted(found) and all(low < high for low, high in found)


def test_steps_and_gains_of_a_curve():
    seconds = {1: 2.0, 2: 3.0, 4: 4.0}
    assert curve.steps(seconds) == {2: 1.5, 4: pytest.approx(4 / 3)}
    assert curve.gains(seconds) == {1: 1.0, 2: pytest.approx(4 / 3), 4: 2.0}


def test_calls_take_turns_and_the_fastest_counts():
    calls: list[str] = []
    ticks = iter([0.0, 1, 10, 13, 13, 14, 14, 16, 16, 21])  # of the first turn only the beginnings
    named = {name: functools.partial(calls.append, name) for name in "ab"}
    found = curve.interleaved(named, 2, lambda: next(ticks))
    assert calls == list("ababab") and found == {"a": 2, "b": 1}


def test_a_curve_is_read_as_it_was_written(tmp_path):
    one = curve.Curve(100, "seconds", "adapter", {1: 0.5, 12: 1.0}, {"model": {1: 0.1, 2: 0.2}})
    one.write(tmp_path / "curve.json")
    assert curve.Curve.read(tmp_path / "curve.json") == one


def test_a_million_visits_cost_what_their_bytes_do():
    visit = {"page": 10_000, "plan": 40_000, "weights": 950_000, "manifest": 5_000, "device": {}}
    assert visits.dollars(visit, new=1.0, price=0.05) == pytest.approx(50.0)
    assert visits.dollars(visit, new=0.0, price=0.05) == pytest.approx(0.75)
    assert visits.dollars(visit, new=0.5, price=0.05) == pytest.approx((50.0 + 0.75) / 2)


def test_pages_were_right_and_as_fast_as_they_should_be():
    rows = json.loads(visits.SPEEDS.read_text())
    assert {"smollm2_decode_100", "smollm2_prefill_32", "smollm2_prefill_128", "llama256_decode"} <= rows.keys()
    for name, row in rows.items():
        assert all(found["right"] for found in row.values()), name
        assert len({tuple(found["tokens"]) for found in row.values()}) == 1, name
        assert ratio(row, PAGE, ORT) <= (0.7 if name.startswith("minilm") else 0.5), name
        assert ratio(row, PAGE, NATIVE) <= 1.3, name


def test_lines_of_a_command_cross_where_both_take_as_long():
    one, two = bulk.Line.through({100: 15.0, 500: 55.0}), bulk.Line.through({100: 30.0, 500: 50.0})
    assert (one.start, one.row, two.start, two.row) == pytest.approx((5, 0.1, 25, 0.05))
    rows = one.crosses(two)
    assert rows == pytest.approx(400) and two.crosses(one) is None
    assert one.start + one.row * 400 == pytest.approx(two.start + two.row * 400)


def test_the_job_on_paper_adds_up():
    paper = bulk.Paper()
    assert paper.flops * (1 - paper.padding) == pytest.approx(2 * 200 * (10.6e6 + 0.92e6), rel=0.01)
    low, high = paper.rates()
    slow, fast = paper.seconds()
    assert high / low == pytest.approx(slow / fast) and paper.documents == pytest.approx(slow * low * paper.devices)
    assert 0 <= paper.blocks * paper.block - paper.documents < paper.block
    assert paper.stretch % paper.block == 0 and paper.documents / paper.stretch >= 4 * paper.devices
