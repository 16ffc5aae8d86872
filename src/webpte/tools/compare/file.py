"""A comparison from what a person types: files and specs of inputs in, plain data out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...progress import OnProgress, ignore
from ...runtime import load
from ...runtime.manifest import is_bundle
from ..inputs import check_specs, make_inputs
from .against import compare_with
from .bundle import compare_bundle
from .capture import PathLike
from .compare import compare, fused
from .measure import Tolerance
from .reports import Comparison
from .repro import write_repro


def compare_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    method: str = "forward",
    inputs: Sequence[Sequence[str]] = ((),),
    seed: int = 0,
    against: PathLike | None = None,
    tolerance: Tolerance | None = None,
    state: PathLike | None = None,
    joined: bool = True,
    repro: PathLike | None = None,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Compare a method of a file with the references, or with another file's method of that name; or a bundle, see
    :mod:`webpte.tools.compare.bundle`.

    `inputs` has a list of specs (see :mod:`webpte.tools.inputs`) for each consecutive call of the method. With `repro`,
    the first call at fault is written there as a script and its data.
    """
    for specs in inputs:
        check_specs(specs)
    if is_bundle(path):
        if state is not None or repro is not None or not joined:
            raise InputError(f"{path} is a bundle, of which outputs are compared: no calls, and no states")
        named: dict[str, Any] = {"method": method, "inputs": inputs, "seed": seed, "against": against}
        return compare_bundle(path, data, **named, tolerance=tolerance, progress=progress)
    tolerance = tolerance or Tolerance()
    with load(path, data, passes=()) as program:
        ordinary = program.method(method, fused, progress)
        given = [make_inputs(ordinary.inputs, specs, seed) for specs in inputs]
        steps = [[argument.value for argument in arguments] for arguments in given]
        if against is None:
            result = compare(program, method, steps, tolerance, state, joined, progress)
        else:
            with load(against, data, passes=()) as other:
                result = compare_with(program, other, method, steps, tolerance, progress)
        report = {
            "file": str(path),
            "adapter": ordinary.adapter,
            "inputs": [[argument.source for argument in arguments] for arguments in given],
            **result.data(),
            "repro": None,
        }
    if repro is not None:
        files = write_repro(repro, result, _title(result, report))
        report["repro"] = None if files is None else [str(file) for file in files]
    return report


def _title(result: Comparison, report: dict[str, Any]) -> str:
    """What the repro is about, for whoever is sent it."""
    if result.suspect is None:
        return ""
    call = result.suspect.report
    found = "\n".join(f"    {output}" for output in call.outputs.values())
    return (
        f"{call.op} ({call.origin}) of {Path(report['file']).name}, {report['method']}.\n\n"
        f"On {report['adapter']}:\n{found}"
    )
