"""The cost model says what the bench measured, and the page says what both say now."""

from __future__ import annotations

import pytest

from bench import scale


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


def test_more_bandwidth_is_more_tokens_and_hope_is_more_than_caution():
    found = [scale.expected(bandwidth) for bandwidth in sorted(scale.DEVICES.values())]
    assert all(low < high for low, high in found) and found == sorted(found)
