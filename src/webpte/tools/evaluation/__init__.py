"""How well a language model predicts a text: perplexity, and divergence from another model. Needs no torch."""

from .measures import (
    Estimate,
    ModelComparison,
    Predictions,
    Quality,
    agreement,
    kl,
    log_softmax,
    losses,
    mean,
    perplexity,
)
from .texts import calibration_chats, calibration_text, evaluation_text
from .windows import LONGEST_WINDOW, TextTokens, TextWindow, rolling_windows, sliding_windows

__all__ = [
    "LONGEST_WINDOW",
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
