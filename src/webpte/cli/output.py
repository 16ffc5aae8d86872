"""Print lines and JSON. Every command imports this module, so it imports nothing slow.

The schemas of the JSON reports (schemas/) are generated from the types of the reports by
`python -m tests.support.harness.report_schemas --write`.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from ..text import sanitize


def say(text: str = "", end: str = "\n", error: bool = False) -> None:
    """Print sanitized text to stdout or stderr."""
    print(sanitize(text), end=end, file=sys.stderr if error else sys.stdout, flush=True)


def dim(text: str) -> str:
    """Return sanitized text, which a terminal shows dim."""
    return f"\x1b[2m{sanitize(text)}\x1b[0m" if sys.stdout.isatty() else sanitize(text)


def print_json(report: Any) -> None:
    """Print a report as JSON."""
    print(json_text(report))


def json_text(report: Any) -> str:
    """Return a report as JSON. NaN and infinity, which JSON does not have, become strings."""
    return json.dumps(_finite(report), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
