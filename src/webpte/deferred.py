"""Names of a package that come when they are first asked for: what needs neither NumPy nor a GPU waits for neither."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def names_of(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__`: which of its modules each name comes from. A module may be what is named itself."""

    def find(name: str) -> object:
        module = sys.modules[package]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        home = import_module(f".{homes[name]}", package)
        found = home if homes[name] == name else getattr(home, name)
        setattr(module, name, found)  # asked once
        return found

    return find
