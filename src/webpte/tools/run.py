"""Run a method on inputs a person typed: what came out, and how long it took, cold and warm apart."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from ..device import adapter_caps
from ..errors import DeviceError, InputError
from ..progress import OnProgress, ignore
from ..runtime import Bundle, load
from .inputs import InputValue, at_shapes, check_specs, make_inputs
from .timing import Stages, spread, timed

PathLike = str | os.PathLike[str]
SHOWN = 6  # first elements of an output


def run_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    inputs: Sequence[str] = (),
    *,
    method: str = "forward",
    repeat: int = 5,
    save: PathLike | None = None,
    seed: int = 0,
    fallback: Literal["cpu"] | None = None,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Load a program, call a method once and then `repeat` times. State carries over from call to call.

    `inputs` are what `tools.inputs` describes; `save` writes inputs and the first call's outputs to an .npz file.
    """
    if repeat < 0:
        raise InputError(f"repeat is {repeat}; it cannot be negative")
    check_specs(inputs)
    stages = Stages(progress)
    with suppress(DeviceError):  # a method without calls needs no adapter, and one with calls will say that it does
        adapter_caps()
    with load(path, data, fallback=fallback, progress=stages) as program:
        called = program.method(method, progress=stages)
        stages.end()
        shapes = program.shapes(method) if isinstance(program, Bundle) else []
        given = make_inputs(at_shapes(called.inputs, shapes[0]) if shapes else called.inputs, inputs, seed)
        arguments = [item.value for item in given]
        first, outputs = timed(lambda: called.run(arguments))
        warm = [timed(lambda: called.run(arguments))[0] for _ in range(repeat)]
        described = [str(info) for info in called.outputs]
    if save is not None:
        _save(save, given, outputs)
    return {
        "file": os.fspath(path),
        "method": method,
        "inputs": [{**summary(item.value), "source": item.source} for item in given],
        "outputs": [{**summary(value), "declared": text} for value, text in zip(outputs, described, strict=True)],
        "load": {**stages.seconds, "total": stages.total},
        "first_call": first,
        "warm": spread(warm),
        "saved": None if save is None else os.fspath(save),
    }


_ARRAY = ("dtype", "shape", "min", "max", "mean", "nonfinite", "head")


def summary(value: Any) -> dict[str, Any]:
    """Shape, dtype and the range of an array; non-finite elements are counted and left out of the range."""
    if not isinstance(value, np.ndarray):
        return dict.fromkeys(_ARRAY) | {"kind": type(value).__name__, "value": value}
    numbers = value.astype(np.float64, copy=False).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    return {
        "kind": "array",
        "value": None,
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean()) if finite.size else None,
        "nonfinite": int(numbers.size - finite.size),
        "head": [_plain(x) for x in value.reshape(-1)[:SHOWN]],
    }


def _plain(number: Any) -> Any:
    """An element for JSON, which has no NaN and no infinity."""
    plain = number.item()
    return str(plain) if isinstance(plain, float) and not np.isfinite(plain) else plain


def _save(path: PathLike, given: Sequence[InputValue], outputs: Sequence[Any]) -> None:
    arrays = {f"in{i}": item.value for i, item in enumerate(given)} | {f"out{i}": x for i, x in enumerate(outputs)}
    try:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **{name: value for name, value in arrays.items() if value is not None})
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be written: {error.strerror}") from error
