"""Measure how well a language model predicts a text: perplexity, and divergence from a reference. Needs no torch."""

from .measures import (
    MAX_WINDOW_TOKENS,
    Estimate,
    ModelComparison,
    Predictions,
    Quality,
    TextTokens,
    TextWindow,
    agreement,
    kl,
    log_softmax,
    losses,
    mean,
    perplexity,
    rolling_windows,
    sliding_windows,
)
from .texts import calibration_chats, calibration_text, evaluation_text

__all__ = [
    "MAX_WINDOW_TOKENS",
    "Estimate",
    "ModelComparison",
    "Predictions",
    "Quality",
    "TextTokens",
    "TextWindow",
    "agreement",
    "calibration_chats",
    "calibration_text",
    "evaluation_text",
    "kl",
    "log_softmax",
    "losses",
    "mean",
    "perplexity",
    "rolling_windows",
    "sliding_windows",
]
