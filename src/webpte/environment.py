"""Environment variables. This module reads them for all packages, when they are used and not at import.

Variables are inputs of the user. webpte does not write them to pass arguments, except in processes that Ray starts: the
two modules `on_ray`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

PREFIX = "WEBPTE_"  # of webpte's own variables


def variable(name: str) -> str:
    """Return the value of a variable without surrounding spaces; empty if it is not set."""
    return os.environ.get(name, "").strip()


def variables(names: Iterable[str] = (), prefix: str | None = None) -> dict[str, str]:
    """Return the variables that are set among `names`, and those whose names start with `prefix`."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or (prefix is not None and name.startswith(prefix))
    }


def for_child(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: that of this one, with other values of some variables."""
    return {**os.environ, **values}
