"""Lazy exports: the names of a package are imported at their first use, so that few commands import NumPy or wgpu."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`. `homes` maps each name to its module, which may be the name itself."""

    def find(name: str) -> object:
        module = sys.modules[package]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        home = import_module(f".{homes[name]}", package)
        value = home if homes[name] == name else getattr(home, name)
        setattr(module, name, value)  # so that it is looked up once
        return value

    return find
