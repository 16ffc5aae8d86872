"""A bundle of kind 'check': many small programs with their expected outputs, to test a GPU through a page."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..debug.selftest import SELF_TEST_CASES
from ..errors import DeviceError, FormatError, InputError, UnsupportedError
from ..graph import Graph
from ..plan import Planner, make_planner
from ..progress import OnProgress, Progress, ignore
from ..runtime import Program, load_program
from ..runtime.kernels import CpuKernels
from ..typing import Array, PathLike
from ..wgsl import Caps
from .methods import MethodWriter, for_any_data, with_schedules
from .site import Site

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
    """Yield the self-tests of `webpte doctor`, with NumPy's results."""
    for name, make in SELF_TEST_CASES.items():
        trial = make()

        def plan_for(caps: Caps, graph: Graph = trial.graph) -> Planner:
            return make_planner(graph, caps, CpuKernels())

        expected = trial.expected.astype(trial.graph.tensor(trial.graph.outputs[0]).host_dtype.held)
        yield CatalogCheck(
            op=name,
            name="probe",
            graph=trial.graph,
            plan_for=plan_for,
            fingerprint="",
            inputs=trial.inputs,
            outputs=[expected],
            atol=trial.tolerance,
            rtol=0.0,
        )


def catalog_checks(folder: Path, keep: Callable[[Program], Program]) -> Iterator[CatalogCheck]:
    """Yield the checks of a catalog folder. `keep` keeps a program open, because its constants are read later."""
    for path, entries in _programs(folder).items():
        program = keep(load_program(path))
        first = entries[0]
        goldens = sorted((entry["golden"] for entry in entries), key=lambda golden: int(golden["output_index"]))
        if [golden["output_index"] for golden in goldens] != list(range(len(goldens))):
            raise FormatError(
                f"{path}: expected outputs 0 to n, got {[g['output_index'] for g in goldens]}", code="missing_outputs"
            )

        def plan_for(caps: Caps, program: Program = program) -> Planner:
            return program.planner("forward", caps)

        yield CatalogCheck(
            op=str(first["op"]),
            name=str(first["case"]),
            graph=program.graph("forward"),
            plan_for=plan_for,
            fingerprint=program.fingerprint("forward"),
            inputs=[_array(folder, entry) for entry in first["inputs"]],
            outputs=[_array(folder, golden) for golden in goldens],
            atol=float(first["atol"]),
            rtol=float(first["rtol"]),
        )


def _programs(folder: Path) -> dict[Path, list[dict[str, Any]]]:
    """Return the entries of the catalog's manifest by program: one entry for each compared output."""
    path = folder / MANIFEST
    programs: dict[Path, list[dict[str, Any]]] = {}
    try:
        entries = json.loads(path.read_text("utf-8"))
        for entry in entries:
            programs.setdefault(_inside(folder, entry["pte"]), []).append(entry)
    except OSError as error:
        raise InputError(
            f"{folder} is not a catalog of ops: cannot read {path}: {error.strerror}", code="unreadable"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path} is not the manifest of a catalog: {type(error).__name__}: {error}", code="invalid_manifest"
        ) from error
    if not programs:
        raise FormatError(f"{path}: expected at least one program, got none", code="invalid_manifest")
    return programs


def _inside(folder: Path, name: Any) -> Path:
    if not isinstance(name, str) or os.path.basename(name) != name:
        raise FormatError(f"{ascii(name)[:100]} is not the name of a file in the catalog", code="file_name")
    return folder / name


def _array(folder: Path, entry: dict[str, Any]) -> Array:
    path = _inside(folder, entry["path"])
    try:
        return np.fromfile(path, STORED[entry["dtype"]]).reshape(entry["shape"]).astype(entry["dtype"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: expected {entry.get('dtype')} {entry.get('shape')}: {error}", code="invalid_array"
        ) from error


ALIGNMENT = 8  # of an array in a file: the widest element


def bundle_checks(
    path: PathLike, catalog: PathLike | None = None, *, name: str | None = None, progress: OnProgress = ignore
) -> Path:
    """Write a page that runs programs on the visitor's GPU, and shows which gave the answers that they must.

    `catalog` is a folder of ops with answers, as ExecuTorch's generator writes it; without one a few programs of ours
    are taken. What cannot run in a page is left out, and listed in the manifest under `omitted`.
    """
    site = Site(path)
    with contextlib.ExitStack() as programs:
        try:
            source = None if catalog is None else Path(catalog)
            checks = own_checks() if source is None else catalog_checks(source, programs.enter_context)
            methods = MethodWriter(site)
            written, omitted = add_checks(site, methods, list(checks), progress)
            parts = {"methods": methods.written(), "check": written, "omitted": omitted}
            site.finish("check", {"name": name or (source.name if source is not None else "webpte"), **parts})
            return site.path
        finally:
            site.abandon()


def add_checks(
    site: Site, methods: MethodWriter, checks: Sequence[CatalogCheck], progress: OnProgress
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the manifest entries of the checks that a page can run, and those of the others."""
    written, omitted = [], []
    for number, check in enumerate(checks):
        progress(Progress("plan", number, len(checks), "programs"))
        method = f"{check.op}/{check.name}"
        try:
            methods.add(
                method,
                check.fingerprint,
                lambda caps, check=check: for_any_data(  # type: ignore[misc]
                    with_schedules(check.plan_for(caps), [check.inputs])
                ),
            )
        except (UnsupportedError, DeviceError) as error:
            omitted.append({"op": check.op, "name": check.name, "reason": str(error)})
            continue
        written.append(_entry(site, check, method))
    progress(Progress("plan", len(checks), len(checks), "programs"))
    return written, omitted


def _entry(site: Site, check: CatalogCheck, method: str) -> dict[str, Any]:
    """Return the manifest entry of a check. Its arrays are consecutive in one file."""
    data, placed = bytearray(), []
    graph = check.graph
    values = (*graph.inputs, *graph.outputs[: len(check.outputs)])
    for value_id, array in zip(values, (*check.inputs, *check.outputs), strict=True):
        dtype = graph.tensor(value_id).host_dtype
        stored = np.ascontiguousarray(array, dtype.held)
        data += bytes(-len(data) % ALIGNMENT)
        placed.append({"dtype": dtype.short, "dims": list(array.shape), "offset": len(data), "bytes": stored.nbytes})
        data += stored.tobytes()
    file = site.add(bytes(data), "weights")
    arrays = [{**place, "file": file} for place in placed]
    count = len(check.inputs)
    return {
        "op": check.op,
        "name": check.name,
        "method": method,
        "inputs": arrays[:count],
        "outputs": arrays[count:],
        "atol": check.atol,
        "rtol": check.rtol,
    }
