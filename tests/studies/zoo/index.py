"""List the programs and networks from the text of their files: no torch is imported for names or cache keys."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.export import exporting
from tests.support.export.sources import definitions_hash
from tests.support.models.named import installed

HERE = Path(__file__).parent
HALF_ERROR = "half.json"  # beside a program in f16: the largest error of eager PyTorch in f16
TOLERANCE = 2e-5  # the default of building.program
# The largest error of a network by mode, relative to the largest value of an output: against eager PyTorch in f32, and
# against the executorch wheel if the mode quantizes. In f16 it is at least four units in the last place.
MODES = {
    "portable": 2e-5,
    "vulkan": 2e-5,
    "vulkan_f16": 2e-3,
    "xnnpack": 2e-5,
    "xnnpack_int8": 2e-5,
    "xnnpack_8da4w": 2e-5,
    "mixed": 2e-5,
}


@dataclass(frozen=True)
class Program:
    name: str
    family: str
    about: str  # the first line of its docstring
    tolerance: float
    file: Path

    @property
    def params(self) -> dict[str, Any]:
        return {"transformers": installed("transformers")}

    @property
    def key(self) -> str:
        sources = definitions_hash((HERE / "lowering.py", "write"), (self.file, self.name))
        return exporting.key_of(sources, self.name, self.params)

    def export(self) -> exporting.Exported:
        """From the cache, or exported now, in the exporter's own errors."""

        def write(folder: Path) -> None:
            from .lowering import write

            write(getattr(import_module(f"{__package__}.programs.{self.family}"), self.name), folder)

        return exporting.kept(exporting.cache_root() / self.key, self.name, self.params, write)

    def tolerance_of(self, exported: exporting.Exported) -> float:
        """Return the largest error that counts as right."""
        return self.tolerance

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that select a program on the command line."""
        return self.name, self.family


@dataclass(frozen=True)
class NetworkProgram(Program):
    """A network in a mode, with a dynamic dim or without."""

    network: str
    mode: str
    dynamic: bool

    @property
    def params(self) -> dict[str, Any]:
        return super().params | {"mode": self.mode, "dynamic": self.dynamic}

    @property
    def key(self) -> str:
        sources = definitions_hash((HERE / "modes.py", "write"), (self.file, self.network))
        return exporting.key_of(sources, self.network, self.params)

    def export(self) -> exporting.Exported:
        def write(folder: Path) -> None:
            from .modes import write

            build = getattr(import_module(f"{__package__}.networks.{self.family}"), self.network)
            write(build, self.mode, self.dynamic, folder)

        return exporting.kept(exporting.cache_root() / self.key, self.name, self.params, write)

    def tolerance_of(self, exported: exporting.Exported) -> float:
        """Return the mode's, or twice what f16 and codes at ties cost in this program if this is more."""
        if self.mode == "xnnpack_8da4w":
            from .ties import largest_change

            return max(self.tolerance, 2 * largest_change(exported))
        try:
            return max(self.tolerance, 2 * json.loads((exported.folder / HALF_ERROR).read_text()))
        except FileNotFoundError:
            return self.tolerance

    @property
    def words(self) -> tuple[str, ...]:
        return self.name, self.network, self.mode


@cache
def programs() -> dict[str, Program]:
    results: dict[str, Program] = {}
    for path in sorted((HERE / "programs").glob("*.py")):
        for one in of_family(path):
            if one.name in results:
                raise ValueError(f"{one.name} is in {results[one.name].family} and in {one.family}")
            results[one.name] = one
    return results


@cache
def networks() -> dict[str, NetworkProgram]:
    """Return every network in every mode, static and dynamic."""
    results = [one for path in sorted((HERE / "networks").glob("*.py")) for one in of_family(path)]
    return {
        program.name: program
        for one in results  # the modes of one follow each other, which share its trace
        for dynamic in (False, True)
        for mode in MODES
        for program in (in_mode(one, mode, dynamic),)
    }


def in_mode(one: Program, mode: str, dynamic: bool) -> NetworkProgram:
    name = f"{one.name}-{mode}-{'dynamic' if dynamic else 'static'}"
    return NetworkProgram(name, one.family, one.about, MODES[mode], one.file, one.name, mode, dynamic)


def of_family(path: Path) -> list[Program]:
    """Return the programs of a file, whose family is the file's name."""
    results = []
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and (arguments := marks(node)) is not None:
            about = (ast.get_docstring(node) or "").partition("\n")[0]
            results.append(Program(node.name, path.stem, about, arguments.get("tolerance", TOLERANCE), path))
    return results


def marks(node: ast.FunctionDef) -> dict[str, Any] | None:
    """Return the arguments of `@program`, or None for a function that is not a program."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Name("program"):
                return {}
            case ast.Call(func=ast.Name("program"), keywords=keywords):
                return {k.arg: ast.literal_eval(k.value) for k in keywords if k.arg}
    return None
