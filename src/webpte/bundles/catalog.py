"""Programs with the answers they must give: a folder of ops as ExecuTorch's generator writes it, or a few of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, InputError
from ..graph import Graph
from ..plan import Planner, make_planner
from ..runtime import Program, load_program
from ..runtime.kernels import CpuKernels
from ..tools.selftest import SELF_TEST_CASES
from ..wgsl import Caps

Array = np.ndarray[Any, Any]
MANIFEST = "manifest.json"
# How the files of a catalog hold each dtype.
STORED = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "int64": "<i8", "int8": "i1", "uint8": "u1", "bool": "i1"}


@dataclass(frozen=True)
class CatalogCheck:
    """A program, what it is given, and what its first outputs must be."""

    op: str
    name: str
    graph: Graph
    plan_for: Callable[[Caps], Planner]
    fingerprint: str
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    atol: float
    rtol: float


def own_checks() -> Iterator[CatalogCheck]:
    """What `webpte doctor` tries, with NumPy's answers."""
    for name, make in SELF_TEST_CASES.items():
        trial = make()

        def plan_for(caps: Caps, graph: Graph = trial.graph) -> Planner:
            return make_planner(graph, caps, CpuKernels())

        wanted = trial.expected.astype(trial.graph.tensor(trial.graph.outputs[0]).host_dtype.held)
        yield CatalogCheck(name, "probe", trial.graph, plan_for, "", trial.inputs, [wanted], trial.tolerance, 0.0)


def catalog_checks(folder: Path, keep: Callable[[Program], Program]) -> Iterator[CatalogCheck]:
    """Those of a folder; `keep` holds on to programs, whose constants are read later."""
    for path, entries in _programs(folder).items():
        program = keep(load_program(path))
        first = entries[0]
        goldens = sorted((entry["golden"] for entry in entries), key=lambda golden: int(golden["output_index"]))
        if [golden["output_index"] for golden in goldens] != list(range(len(goldens))):
            raise FormatError(
                f"{path}: there are answers for outputs {[g['output_index'] for g in goldens]} only",
                code="missing_outputs",
            )

        def plan_for(caps: Caps, program: Program = program) -> Planner:
            return program.planner("forward", caps)

        yield CatalogCheck(
            str(first["op"]),
            str(first["case"]),
            program.graph("forward"),
            plan_for,
            program.fingerprint("forward"),
            [_array(folder, entry) for entry in first["inputs"]],
            [_array(folder, golden) for golden in goldens],
            float(first["atol"]),
            float(first["rtol"]),
        )


def _programs(folder: Path) -> dict[Path, list[dict[str, Any]]]:
    """What the catalog's manifest says of each program: an entry for each output that is compared."""
    path = folder / MANIFEST
    found: dict[Path, list[dict[str, Any]]] = {}
    try:
        entries = json.loads(path.read_text("utf-8"))
        for entry in entries:
            found.setdefault(_inside(folder, entry["pte"]), []).append(entry)
    except OSError as error:
        raise InputError(f"{folder} is no catalog of ops: {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is not the manifest of a catalog: {type(error).__name__}: {error}") from error
    if not found:
        raise FormatError(f"{path} names no programs")
    return found


def _inside(folder: Path, name: Any) -> Path:
    if not isinstance(name, str) or os.path.basename(name) != name:
        raise FormatError(f"{ascii(name)[:100]} is not a file of the catalog", code="file_name")
    return folder / name


def _array(folder: Path, entry: dict[str, Any]) -> Array:
    path = _inside(folder, entry["path"])
    try:
        return np.fromfile(path, STORED[entry["dtype"]]).reshape(entry["shape"]).astype(entry["dtype"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path} does not hold {entry.get('dtype')} {entry.get('shape')}: {error}", code="invalid_array"
        ) from error
