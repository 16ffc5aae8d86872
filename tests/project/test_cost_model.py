"""The cost model: its formula on numbers computed by hand, its errors on published figures, and its page."""

from __future__ import annotations

import dataclasses

import pytest

from bench.compilers.drivers import DEVICES
from bench.cost_model import (
    CARDS,
    FAMILY_MODELS,
    PAGE,
    PUBLISHED,
    TOLERANCE,
    Card,
    Parameters,
    PublishedFigure,
    Work,
    error,
    filled,
    fit,
    predict,
)

CARD = Card("a card", 100, 1000, 1.0, "Vulkan", "", "navi31")
PARAMETERS = Parameters({"Vulkan": 10e-6}, issue=0.5, bandwidth=0.8)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work(0.8, 100), 0.001 + 0.01),  # 0.8 GB at 80 GB/s
        (Work(0.8, 100, 1e9), 0.001 + 0.01),  # 1e9 instructions at 0.5e12 per second take 2 ms
        (Work(0.8, 100, 10e9), 0.001 + 0.02),
        (Work(0, 0, 10e9), 0.02),
    ],
)
def test_cost_model_time_is_dispatches_plus_larger_of_bytes_and_math(work, seconds):
    assert predict(work, CARD, PARAMETERS) == pytest.approx(seconds)


def test_fitted_figures_have_no_error():
    parameters = fit()
    assert all(abs(error(figure, parameters)) < 1e-9 for figure in PUBLISHED if figure.fits)


def test_cost_model_held_out_figures_do_not_change_fit():
    changed = [figure if figure.fits else dataclasses.replace(figure, tokens_per_second=1.0) for figure in PUBLISHED]
    assert fit(changed) == fit()


def test_five_of_eight_held_out_figures_are_within_tolerance():
    parameters = fit()
    held_out = [figure for figure in PUBLISHED if not figure.fits]
    right = [figure for figure in held_out if abs(error(figure, parameters)) <= TOLERANCE]
    assert (len(held_out), len(right)) == (8, 5)


def test_error_is_relative_to_the_published_figure():
    figure = PublishedFigure("x", "M2", Work(100 * 0.85, 0), 2.0)
    assert error(figure, Parameters({"Metal": 0.0}, 1.0)) == pytest.approx(-0.5)
    assert set(CARDS) >= {figure.card for figure in PUBLISHED}


def test_cost_model_cards_name_known_compilers():
    assert {card.compiler for card in CARDS.values()} <= set(DEVICES)


def test_page_has_the_current_tables():
    page = PAGE.read_text(encoding="utf-8")
    assert page == filled(page), "run python -m bench.cost_model --write"


def test_family_models_have_their_published_sizes_and_dispatches():
    """Gemma 3 1B has 1.0 billion parameters, LFM2 1.2B 1.17, Qwen3.5 0.8B 0.75 in its language model."""
    sizes = {model.name: round((model.layer_weights + model.head_weights) / 1e9, 2) for model in FAMILY_MODELS}
    assert sizes == {"Gemma 3 1B": 1.0, "LFM2 1.2B": 1.17, "Qwen3.5 0.8B": 0.75}
    assert all(0 < model.dispatches <= model.dispatches_before / 2 for model in FAMILY_MODELS)
