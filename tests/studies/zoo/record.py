"""The latest results of the networks, in `results.json`, so that a new machine need not repeat hours of exports.

A result is of an export: its key is beside it, and a result of another key is not one of the program as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from .index import networks
from .outcome import Outcome, outcome_of

RESULTS = Path(__file__).with_name("results.json")


def read() -> dict[str, Outcome]:
    return {name: outcome_of(result) for name, (_, result) in _read().items()}


def add(outcomes: Mapping[str, Outcome]) -> None:
    """Record outcomes, and drop those of exports that have changed since."""
    known = networks()
    kept = {name: result for name, (key, result) in _read().items() if name in known and known[name].key == key}
    kept |= {name: asdict(outcome) for name, outcome in outcomes.items()}
    lines = [f'"{name}": {json.dumps([known[name].key, kept[name]])}' for name in known if name in kept]
    RESULTS.write_text("{{\n{}\n}}\n".format(",\n".join(lines)), encoding="utf-8")


def _read() -> dict[str, tuple[str, dict]]:
    """Return the key of the export and the outcome by program."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))
