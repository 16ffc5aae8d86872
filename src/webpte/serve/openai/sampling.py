"""What a request says of how an answer is chosen, as `GenerateSettings`."""

from __future__ import annotations

import secrets
from typing import Any

from ...llm.settings import LARGEST, PENALTIES
from ..config import Config
from ..failures import Refusal
from .fields import Fields

MOST_STOPS = 16
MOST_SEED = LARGEST  # of ours; OpenAI's may be larger, and is folded


def temperature(fields: Fields, config: Config) -> dict[str, Any]:
    """The settings that all endpoints know."""
    settings: dict[str, Any] = {
        "temperature": fields.real("temperature", 0, 2, config.default_temperature),
        "top_p": fields.real("top_p", 0, 1, 1.0),
        "seed": _seed(fields),
    }
    if settings["top_p"] == 0:  # the likeliest token alone, which is what OpenAI's server does with it
        settings |= {"top_p": 1.0, "temperature": 0.0}
    return settings


def sampling(fields: Fields, config: Config) -> dict[str, Any]:
    """Those of chats and completions, but `max_new_tokens`, which `output_tokens` reads."""
    settings = temperature(fields, config)
    settings |= {
        "top_k": fields.whole("top_k", -1, LARGEST, 0),
        "min_p": fields.real("min_p", 0, 1, 0.0),
        "presence_penalty": fields.real("presence_penalty", -2, 2, 0.0),
        "frequency_penalty": fields.real("frequency_penalty", -2, 2, 0.0),
        "repetition_penalty": fields.real("repetition_penalty", 0.01, 100, 1.0),
        "logit_bias": _bias(fields),
        "stop": _stop(fields),
    }
    settings["top_k"] = max(settings["top_k"], 0)  # others write -1 for all
    return settings


def _seed(fields: Fields) -> int:
    """A request without a seed gets one of its own."""
    given = fields.whole("seed", -(2**63), 2**64 - 1, None)
    return secrets.randbelow(MOST_SEED) if given is None else given % (MOST_SEED + 1)


def _stop(fields: Fields) -> list[str]:
    given = fields.raw("stop", [])
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list) or len(stops) > MOST_STOPS:
        raise fields.wrong("stop", f"a text or a list of at most {MOST_STOPS}")
    for text in stops:
        if not isinstance(text, str) or not text:
            raise fields.wrong("stop", "made of texts of at least one character each")
    return list(stops)


def _bias(fields: Fields) -> dict[int, float]:
    """JSON has only texts as keys."""
    given = fields.raw("logit_bias", {})
    if not isinstance(given, dict):
        raise fields.wrong("logit_bias", "an object of token numbers and what is added to their logits")
    found: dict[int, float] = {}
    low, high = PENALTIES
    for token, bias in given.items():
        right = isinstance(bias, (int, float)) and not isinstance(bias, bool) and low <= bias <= high
        if not token.isascii() or not token.isdigit() or len(token) > 10 or not right:
            raise Refusal(
                400,
                f"logit_bias holds tokens with numbers from {low:g} to {high:g}, not {token[:20]!r}: {bias!r:.20}",
                param="logit_bias",
            )
        found[int(token)] = float(bias)
    return found


def output_tokens(fields: Fields, names: tuple[str, ...], config: Config) -> int:
    """How long an answer may get. Where the context ends sooner, so does the answer."""
    given = [(name, value) for name in names if (value := fields.whole(name, 1, LARGEST, None)) is not None]
    if not given:
        return config.max_output_tokens
    name, value = given[0]
    if value > config.max_output_tokens:
        raise Refusal(
            400,
            f"{name} is {value}; this server gives {config.max_output_tokens} at most (max_output_tokens)",
            param=name,
        )
    return int(value)
