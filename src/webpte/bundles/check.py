"""A bundle of kind `check`: many small programs with the answers they must give, for a GPU that nobody here has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DeviceError, UnsupportedError
from ..progress import OnProgress, Progress, ignore
from .catalog import CatalogCheck, catalog_checks, own_checks
from .methods import MethodWriter
from .planned import for_any_data, with_schedules
from .site import Site

PathLike = str | os.PathLike[str]
ALIGNMENT = 8  # of an array in a file: the widest element


def bundle_checks(
    path: PathLike, catalog: PathLike | None = None, *, name: str | None = None, progress: OnProgress = ignore
) -> Path:
    """Write a page that runs programs on the visitor's GPU, and shows which gave the answers that they must.

    `catalog` is a folder of ops with answers, as ExecuTorch's generator writes it; without one a few programs of ours
    are taken. What cannot run in a page is left out, and named in the manifest under `refused`.
    """
    site = Site(path)
    with contextlib.ExitStack() as programs:
        try:
            source = None if catalog is None else Path(catalog)
            checks = own_checks() if source is None else catalog_checks(source, programs.enter_context)
            methods = MethodWriter(site)
            written, refused = _add(site, methods, list(checks), progress)
            parts = {"methods": methods.written(), "check": written, "refused": refused}
            site.finish("check", {"name": name or (source.name if source is not None else "webpte"), **parts})
            return site.path
        finally:
            site.abandon()


def _add(
    site: Site, methods: MethodWriter, checks: Sequence[CatalogCheck], progress: OnProgress
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """What the manifest says of those that a page can run, and of the others."""
    written, refused = [], []
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
            refused.append({"op": check.op, "name": check.name, "why": str(error)})
            continue
        written.append(_entry(site, check, method))
    progress(Progress("plan", len(checks), len(checks), "programs"))
    return written, refused


def _entry(site: Site, check: CatalogCheck, method: str) -> dict[str, Any]:
    """A check with its arrays, which lie in one file, one behind the other."""
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
