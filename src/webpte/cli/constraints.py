"""Options that say what an answer follows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import InputError


def add_constraints(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--json-schema", metavar="FILE", help="answer with JSON that follows the schema in FILE")
    one.add_argument("--regex", metavar="EXPRESSION", help="answer with a text that matches")
    one.add_argument("--grammar", metavar="FILE", help="answer by the grammar in FILE, in llguidance's form of Lark")
    one.add_argument("--choices", nargs="+", metavar="TEXT", help="answer with one of these texts")


def constraints(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings they stand for."""
    files = ("json_schema", "grammar")
    found = {name: _read(path) for name in files if (path := getattr(arguments, name)) is not None}
    return found | {name: getattr(arguments, name) for name in ("regex", "choices")}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
