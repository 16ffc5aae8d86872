"""What is connected when it is first used: names of packages, and functions of upper packages that lower ones call.

Few commands import NumPy or wgpu, because the names of a package are imported at their first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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


class Hook(Generic[P, R]):
    """A function that a lower package calls and an upper one defines. `webpte/__init__.py` provides it."""

    def __init__(self) -> None:
        self._function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> Callable[P, R]:
        """Set the function, and return it."""
        self._function = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self._function is not None, "webpte/__init__.py provides every hook"
        return self._function(*args, **kwargs)


show_in_notebook: Hook[..., object] = Hook()  # a program, or the folder of a bundle, as a widget
# (checkpoint, progress, max_context) -> the path of its program, built on first use
build_cached_program: Hook[..., Path] = Hook()
# (name, progress) -> the `sources.RemoteProgram` of a name on a hub or of an address; None for a checkpoint
fetch_program: Hook[..., Any] = Hook()
# (folders by name, modules of a program, its path) -> the matrices of adapters by name and layer
read_adapters: Hook[..., Any] = Hook()
# (name) -> a context of its files: the program, then its .ptd files. Only the ranges that are read are downloaded
open_remote_files: Hook[..., Any] = Hook()
