"""Text of strangers, made harmless for a terminal. Imports nothing that would make every command start slower."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from ..text import sanitize


def say(text: str = "", end: str = "\n", error: bool = False) -> None:
    """Print a line, or a piece of one, to stdout or stderr."""
    print(sanitize(text), end=end, file=sys.stderr if error else sys.stdout, flush=True)


def print_json(report: Any) -> None:
    """A report for scripts. JSON has no NaN and no infinity: they become text."""
    print(json.dumps(_finite(report), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
