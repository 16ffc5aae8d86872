"""Run a method on inputs from a command line, and measure time: stages of loading, cold and warm calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, TypedDict, TypeVar

import numpy as np

from ..device import adapter_caps
from ..errors import DeviceError, GuardError, InputError, ShapeError
from ..partial_files import not_writable
from ..progress import OnProgress, Progress, ignore
from ..runtime import ArgumentInfo, Bundle, Method, load_source
from ..runtime.checks import check_method_name
from ..typing import PathLike
from .inputs import InputValue, at_shapes, check_specs, make_inputs

T = TypeVar("T")


class Stages:
    """A progress callback that measures each stage of loading. The first stage is finding the adapter."""

    AFTER: ClassVar = {"read": "plan"}  # the stage between the last event of a stage and the first of the next

    def __init__(self, progress: OnProgress = ignore) -> None:
        self._next = progress
        self._began = self._entered = time.perf_counter()
        self._stage = "adapter"
        self.seconds: dict[str, float] = {}
        self.total = 0.0

    def __call__(self, event: Progress) -> None:
        self._enter(event.stage)
        if event.done >= event.total:
            self._enter(self.AFTER.get(event.stage, "prepare"))
        self._next(event)

    def end(self) -> None:
        self._enter("")
        self.total = time.perf_counter() - self._began

    def _enter(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._entered
        self._stage, self._entered = stage, now


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds of a call and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


class Spread(TypedDict):
    """Durations of measured calls, in seconds."""

    calls: Annotated[int, "how many were measured"]
    median: Annotated[float, "seconds"]
    min: Annotated[float, "seconds"]
    p90: Annotated[float, "seconds"]


def spread(seconds: Sequence[float]) -> Spread:
    """Return count, median, minimum and 90th percentile of durations, of which there is at least one."""
    return {
        "calls": len(seconds),
        "median": float(np.median(seconds)),
        "min": min(seconds),
        "p90": float(np.quantile(seconds, 0.9)),
    }


MAX_HEAD_ELEMENTS = 6  # elements of an output that a report shows
DIM_SIZES = (16, 64, 256)  # of a dynamic dim of an input that is not given, tried in this order; the bound comes last


class ValueSummary(TypedDict):
    """An input or output. What an array has is null for other values."""

    kind: Annotated[str, "array, int, float, bool, str or NoneType"]
    value: Annotated[Any, "of a value that is not an array"]
    dtype: str | None
    shape: list[int] | None
    min: Annotated[float | None, "of the finite elements"]
    max: float | None
    mean: float | None
    nonfinite: Annotated[int | None, "elements that are NaN or infinite"]
    head: Annotated[
        list[Annotated[Any, "a number, a boolean, a string or a list of such"]] | None, "the first elements"
    ]


class InputSummary(ValueSummary):
    """An input of a call."""

    source: Annotated[str, "as it was specified"]
    bound: Annotated[list[int] | None, "the largest shape the program accepts"]


class OutputSummary(ValueSummary):
    """An output of a call."""

    declared: Annotated[str, "the type with its bound"]


class ReducedDim(TypedDict):
    """A dim of a default input that is smaller than its bound."""

    input: int
    dim: int
    size: int
    bound: int


class RunReport(TypedDict):
    """Inputs, outputs and durations of calls."""

    file: str
    method: str
    inputs: list[InputSummary]
    reduced_dims: Annotated[list[ReducedDim], "dims of default inputs that are smaller than their bound"]
    outputs: list[OutputSummary]
    load: Annotated[dict[str, float], "by stage, and total"]
    first_call: float
    warm: Annotated[Spread | None, "calls after the first; null if there were none"]
    saved: Annotated[str | None, "the .npz file"]


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
) -> RunReport:
    """Load a program, call a method once and then `repeat` times. State carries over from call to call.

    `inputs` are strings as `debug.inputs` describes them. `save` is an .npz file for the inputs and the first call's
    outputs.
    """
    if repeat < 0:
        raise InputError(argument="repeat", expected="an integer of at least 0", got=repeat, code="out_of_range")
    check_specs(inputs)
    stages = Stages(progress)
    with suppress(DeviceError):  # a method without calls needs no adapter; one with calls raises the error itself
        adapter_caps()
    with load_source(path, data, fallback=fallback, progress=stages) as program:
        check_method_name(method, program.method_names, "method")
        called = program.method(method, progress=stages)
        stages.end()
        shapes = program.shapes(method) if isinstance(program, Bundle) else []
        infos = at_shapes(called.inputs, shapes[0]) if shapes else called.inputs
        progress(Progress("run", 0, repeat + 1, "calls"))
        values, seconds, outputs = _first_call(called, infos, inputs, seed, () if shapes else DIM_SIZES)
        arguments = [item.value for item in values]
        warm = []
        for number in range(1, repeat + 1):
            progress(Progress("run", number, repeat + 1, "calls"))
            warm.append(timed(lambda: called.run(arguments))[0])
        progress(Progress("run", repeat + 1, repeat + 1, "calls"))
        declared = [str(info) for info in called.outputs]
    if save is not None:
        _save(save, values, outputs)
    return {
        "file": os.fspath(path),
        "method": method,
        "inputs": [
            {**summary(item.value), "source": item.source, "bound": None if info.bound is None else list(info.bound)}
            for item, info in zip(values, infos, strict=True)
        ],
        "reduced_dims": _reduced_dims(values, infos),
        "outputs": [{**summary(value), "declared": text} for value, text in zip(outputs, declared, strict=True)],
        "load": {**stages.seconds, "total": stages.total},
        "first_call": seconds,
        "warm": spread(warm) if warm else None,
        "saved": None if save is None else os.fspath(save),
    }


def _first_call(
    method: Method, infos: Sequence[ArgumentInfo], specs: Sequence[str], seed: int, dim_sizes: Sequence[int]
) -> tuple[list[InputValue], float, Sequence[Any]]:
    """Call the method at the smallest default shapes that it accepts. A refused call leaves the method unchanged."""
    for max_dim in dim_sizes:
        values = make_inputs(infos, specs, seed, max_dim)
        with suppress(ShapeError, GuardError, InputError):
            return values, *timed(lambda values=values: method.run([item.value for item in values]))  # type: ignore[misc]
    values = make_inputs(infos, specs, seed)
    return values, *timed(lambda: method.run([item.value for item in values]))


def _reduced_dims(values: Sequence[InputValue], infos: Sequence[ArgumentInfo]) -> list[ReducedDim]:
    """Return the dims of default inputs that are smaller than their bound."""
    return [
        {"input": position, "dim": dim, "size": size, "bound": bound}
        for position, (item, info) in enumerate(zip(values, infos, strict=True))
        if item.default and info.bound is not None
        for dim, (size, bound) in enumerate(zip(item.value.shape, info.bound, strict=True))
        if size < bound
    ]


def summary(value: Any) -> ValueSummary:
    """Return shape, dtype and range of an array. Non-finite elements are counted and left out of the range."""
    if not isinstance(value, np.ndarray):
        return {
            "kind": type(value).__name__,
            "value": value,
            "dtype": None,
            "shape": None,
            "min": None,
            "max": None,
            "mean": None,
            "nonfinite": None,
            "head": None,
        }
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
        "head": [_json_number(x) for x in value.reshape(-1)[:MAX_HEAD_ELEMENTS]],
    }


def _json_number(element: Any) -> Any:
    """Return an element for JSON, which has no NaN and no infinity."""
    number = element.item()
    return str(number) if isinstance(number, float) and not np.isfinite(number) else number


def _save(path: PathLike, inputs: Sequence[InputValue], outputs: Sequence[Any]) -> None:
    arrays = {f"in{i}": item.value for i, item in enumerate(inputs)} | {f"out{i}": x for i, x in enumerate(outputs)}
    try:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **{name: value for name, value in arrays.items() if value is not None})
    except OSError as error:
        raise not_writable(path, error) from error
