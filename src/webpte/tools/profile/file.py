"""A profile from what a person types: a file and specs of inputs in, plain data out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ...errors import InputError
from ...progress import OnProgress, ignore
from ...runtime import load
from ..inputs import check_specs, make_inputs
from .profile import profile
from .trace import write_trace

PathLike = str | os.PathLike[str]


def profile_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    inputs: Sequence[str] = (),
    *,
    method: str = "forward",
    repeat: int = 5,
    seed: int = 0,
    peak: bool = True,
    trace: PathLike | None = None,
    fallback: Literal["cpu"] | None = None,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Where the time of a method's call goes. `inputs` are what `tools.inputs` describes.

    With `trace`, the fastest timed call is written there as a Chrome JSON trace.
    """
    check_specs(inputs)
    with load(path, data, fallback=fallback, progress=progress) as program:
        called = program.method(method, progress=progress)
        given = make_inputs(called.inputs, inputs, seed)
        found = profile(called, [item.value for item in given], repeat, peak, progress)
        adapter = called.adapter
    if trace is not None:
        try:
            write_trace(trace, found, adapter)
        except OSError as error:
            raise InputError(f"{os.fspath(trace)} cannot be written: {error.strerror}") from error
    return {
        "file": os.fspath(path),
        "method": method,
        "adapter": adapter,
        "inputs": [item.source for item in given],
        **found.data(),
        "trace": None if trace is None else os.fspath(trace),
    }
