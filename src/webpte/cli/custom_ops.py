"""Import the modules of `--import`, which register custom ops."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from ..errors import Error, InputError


def import_modules(names: Iterable[str]) -> None:
    """Import modules by name, also from the current folder, or by the path of their file."""
    for name in names:
        try:
            _import_file(Path(name)) if name.endswith(".py") else _import_name(name)
        except Error:
            raise
        except Exception as error:
            raise InputError(
                argument="--import",
                expected="a module that can be imported, or its file",
                got=f"{name}: {type(error).__name__}: {error}",
                code="not_imported",
            ) from error


def _import_name(name: str) -> None:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.import_module(name)


def _import_file(path: Path) -> None:
    if path.stem in sys.modules:
        raise ImportError(f"there is a module {path.stem} already; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
