"""Conversion between callers' arrays and the device: checks, narrower dtypes, wider bools, and back."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..container import DType
from ..device import storage_dtype
from ..errors import Error, InputError, RangeError
from ..graph import SymBool, SymFloat, SymInt, TensorSpec
from ..lowering import stored_bytes
from ..lowering.numbers import INT32_HIGH, INT32_LOW
from ..plan import CallValues, PlanSegment, ScheduleStore
from ..typing import Array
from .arguments import ArgumentInfo, describe_all, to_number
from .checks import described, did_you_mean, wrong_argument

MAX_ACCEPTED_SHAPES = 64  # remembered
FLOAT32_HIGH = float(np.finfo(np.float32).max)


class BeyondDeviceError(Exception):
    """A value that a segment reads does not fit the device. WideCalls catches it."""

    def __init__(self, value_id: int, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.value_id = value_id
        self.expected = expected
        self.got = got
        self.state_written = False  # by an earlier segment of the call, on the device


class ArgumentConverter:
    """Converts the inputs and outputs of a plan's method."""

    def __init__(self, scheduler: ScheduleStore) -> None:
        self._scheduler = scheduler
        self._plan = plan = scheduler.plan
        self._graph = graph = plan.graph
        self._accepted: set[tuple[tuple[int, ...], ...]] = set()  # shapes of calls that differ in fixed dims
        self.inputs: tuple[ArgumentInfo, ...] = describe_all(graph, graph.inputs, "in", plan.dynamic_dims)
        self.outputs: tuple[ArgumentInfo, ...] = describe_all(graph, graph.outputs, "out", plan.dynamic_dims)
        # Computed once: a decode loop binds inputs for every token.
        self._entries = [(v, graph.values[v], self._where(position)) for position, v in enumerate(graph.inputs)]
        self._named_outputs = {info.name: v for info, v in zip(self.outputs, graph.outputs, strict=True)}

    def _where(self, position: int) -> str:
        """Return the name of an input in messages."""
        name = self.inputs[position].name
        called = f" ({name!r})" if name != f"in{position}" else ""
        return f"input {position}{called} of {self._graph.name}"

    def output_ids(self, outputs: Iterable[int | str]) -> tuple[int, ...]:
        """Return the value ids of outputs that a caller selects by position or name."""
        try:
            if not isinstance(outputs, (str, bytes)):
                return tuple(self._output(at) for at in outputs)
        except TypeError:
            pass
        raise wrong_argument("outputs", "a list of positions or names, such as [0]", outputs)

    def _output(self, at: object) -> int:
        if isinstance(at, str):
            if at in self._named_outputs:
                return self._named_outputs[at]
            raise InputError(
                argument="outputs",
                expected=f"outputs of {self._graph.name} ({', '.join(self._named_outputs)})",
                got=f"{described(at)}{did_you_mean(at, self._named_outputs)}",
                code="unknown_output",
            )
        return at_position(self._graph.outputs, at, f"outputs of {self._graph.name}")

    def bind_inputs(self, args: Any) -> CallValues:
        """Return the checked inputs of a call."""
        entries = self._entries
        if len(args) != len(entries):
            expected = ", ".join(f"{info.name}: {info}" for info in self.inputs)
            raise InputError(
                argument=self._graph.name,
                expected=f"{len(entries)} inputs ({expected})",
                got=f"{len(args)}",
                code="input_count",
            )
        live = CallValues({}, {}, {})
        wrong: dict[int, InputError] = {}
        doubtful: dict[int, InputError] = {}
        for position, arg in enumerate(args):
            try:
                problem = self._bind(position, arg, live)
                if problem is not None:
                    doubtful[position] = problem
            except InputError as error:
                wrong[position] = error
        if wrong or (doubtful and not self._fits(live)):
            wrong |= doubtful
            raise _all_wrong(self._graph.name, [wrong[position] for position in sorted(wrong)])
        return live

    def _bind(self, position: int, arg: Any, live: CallValues) -> InputError | None:
        """Add an input to the values of a call. Return the error to raise if the call does not fit."""
        value_id, spec, where = self._entries[position]
        if isinstance(spec, TensorSpec):
            array = to_array(arg, spec, where)
            live.arrays[value_id], live.dims[value_id] = array, array.shape
            if array.shape != spec.dims:
                return check_shape(array.shape, self.inputs[position], where, dynamic=spec.dynamic)
        elif isinstance(spec, (SymInt, SymFloat, SymBool)):
            live.scalars[value_id] = to_number(arg, spec, where)
        return None

    def _fits(self, live: CallValues) -> bool:
        """Return whether the method takes a call whose shapes differ from the signature in dims shown as fixed.

        A file states only that a tensor is dynamic. Dims that vary in steps, or together with dims of another bound,
        are shown as fixed, so that the lowerings have the last word.
        """
        shapes = tuple(live.dims.values())
        if shapes in self._accepted:
            return True
        if not self._scheduler.fits(live):
            return False
        if len(self._accepted) >= MAX_ACCEPTED_SHAPES:
            self._accepted.clear()
        self._accepted.add(shapes)
        return True

    def uploads(self, segment: PlanSegment, live: CallValues, fed: Container[int] = ()) -> list[tuple[int, Array]]:
        """Return the uploads of a segment except those in `fed`: (tensor, data in the device's dtype).

        Raise BeyondDeviceError for a value that does not fit: a caller's input, or a result of a CPU kernel.
        """
        return [
            (v, to_device(live.arrays[v], self._graph.tensor(v), functools.partial(BeyondDeviceError, v)))
            for v in self._plan.uploads[segment]
            if v not in fed
        ]

    def refusal(self, beyond: BeyondDeviceError, hint: str, reason: str = "") -> Error:
        """Return the error for a value that does not fit the device, if the call cannot run on the CPU either."""
        graph, value_id = self._graph, beyond.value_id
        expected = f"{beyond.expected}{reason}"
        if value_id in graph.inputs:
            where = self._where(graph.inputs.index(value_id))
            return InputError(argument=where, expected=expected, got=beyond.got, code="int32_range", hint=hint)
        makers = [f", a result of {call.name} ({call.origin})" for call in graph.calls if value_id in call.outs]
        where = f"value {value_id}{''.join(makers[:1])}"
        return RangeError(argument=where, expected=expected, got=beyond.got, hint=hint)

    def reads(self, segment: PlanSegment, live: CallValues, outputs: Container[int]) -> list[tuple[int, int]]:
        """Return what is read back from a segment: (tensor, bytes)."""
        on_host = self._plan.flow.on_host
        tensors = [v for v in segment.readbacks if v in on_host or v in outputs]
        return [(v, stored_bytes(self._graph.tensor(v).dtype, live.dims[v])) for v in tensors]

    def collect_outputs(
        self, live: CallValues, reads: Sequence[tuple[int, int]], data: Mapping[int, memoryview]
    ) -> None:
        """Convert the results of a segment and add them to the values of the call."""
        for value_id, _ in reads:
            spec = self._graph.tensor(value_id)
            array = from_device(data.get(value_id, memoryview(b"")), live.dims[value_id], spec)
            if value_id in self._plan.checks and array.any():
                wrong = array[array != 0][0]  # of a check of positions, one of them
                raise RangeError(self._plan.checks[value_id].replace("{0}", str(wrong)))
            live.arrays[value_id] = array


def at_position(values: Sequence[int], position: object, what: str) -> int:
    """Return the value at a position among the inputs or outputs of a method."""
    try:
        if not isinstance(position, bool):
            return values[operator.index(position)]  # type: ignore[arg-type]
    except (TypeError, IndexError):
        pass
    raise InputError(expected=f"a position among the {len(values)} {what}", got=described(position), code="position")


def to_array(value: Any, spec: TensorSpec, where: str) -> Array:
    """Return the caller's value as a C-contiguous array of the declared dtype. Shapes are checked separately."""
    array = _as_numpy(value, where)
    dtype = spec.host_dtype.held
    if array.dtype != dtype:
        array = _converted(array, value, dtype, where)
    return spec.host_dtype.rounded(array)


def _converted(array: Array, value: Any, dtype: np.dtype[Any], where: str) -> Array:
    """Return the array in the declared dtype, if nothing is lost. Python numbers convert to any dtype of their kind."""
    if array.dtype.kind not in "biufcV":
        raise wrong_argument(where, f"an array of {dtype}", value, "not_numeric")
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    if isinstance(value, (list, tuple, int, float)) and np.can_cast(array.dtype, dtype, "same_kind"):
        try:
            return np.asarray(value, dtype)
        except OverflowError as error:
            raise InputError(
                argument=where, expected=f"numbers that fit {dtype}", got=str(error), code="overflow"
            ) from error
    raise InputError(
        argument=where,
        expected=f"dtype {dtype}",
        got=f"dtype {array.dtype}",
        code="dtype",
        hint=f"Convert it with .astype(np.{dtype}).",
    )


def check_shape(dims: tuple[int, ...], info: ArgumentInfo, where: str, *, dynamic: bool) -> InputError | None:
    """Raise an InputError for a shape outside the bound. Return one for a shape that differs in a fixed dim.

    The caller decides about the second: the file of a tensor that is `dynamic` does not say which dims may vary.
    """
    bound, may_vary = info.bound or (), info.dynamic or ()
    if len(dims) != len(bound):
        raise InputError(argument=where, expected=str(info), got=f"shape {list(dims)}", code="rank")
    if all(size == most or (may and 0 < size < most) for size, most, may in zip(dims, bound, may_vary, strict=True)):
        return None  # first, because every decode step comes here
    sizes = list(enumerate(zip(dims, bound, strict=True)))
    fixed = [n for n, (size, most) in sizes if size != most and not may_vary[n]]
    outside = [n for n, (size, most) in sizes if not min(1, most) <= size <= most]  # 0 allows nothing else
    if fixed:
        hint = f"Its size is fixed: {', '.join(f'{bound[n]} in dim {n}' for n in fixed)}."
        error = InputError(argument=where, expected=str(info), got=f"shape {list(dims)}", code="shape", hint=hint)
        if dynamic and not outside:
            return error
        raise error
    larger = any(dims[n] > bound[n] for n in outside)
    hint = "Re-export with a larger upper bound for larger inputs." if larger else "Every dim has at least size 1."
    raise InputError(argument=where, expected=str(info), got=f"shape {list(dims)}", code="bound", hint=hint)


def _all_wrong(method: str, errors: Sequence[InputError]) -> InputError:
    """Return the error of the inputs of a call: the only one, or one that lists all of them."""
    if len(errors) == 1:
        return errors[0]
    codes = {error.reason for error in errors}
    listed = "".join(f"\n  {error}" for error in errors)
    return InputError(
        f"{len(errors)} inputs of {method} are wrong:{listed}", code=codes.pop() if len(codes) == 1 else "several"
    )


def _range_error(expected: str, got: str) -> Exception:
    return RangeError(expected=expected, got=got)


def to_device(array: Array, spec: TensorSpec, refuse: Callable[[str, str], Exception] = _range_error) -> Array:
    """Return the array in the device's dtype: 64 bits become 32, with a check of the values; bools become words.

    `refuse` returns the error for what was expected and what the array holds.
    """
    dtype = storage_dtype(spec.dtype)
    if spec.host_dtype is DType.INT64 and array.size:
        low, high = int(array.min()), int(array.max())
        if low < INT32_LOW or high > INT32_HIGH:
            raise refuse(f"integers of 32 bits, {INT32_LOW} to {INT32_HIGH}", f"values from {low} to {high}")
    elif spec.host_dtype is DType.FLOAT64 and array.size:
        size = float(np.max(np.abs(array), where=np.isfinite(array), initial=0))
        if size > FLOAT32_HIGH:
            raise refuse(f"floats of 32 bits, up to {FLOAT32_HIGH:g} in size", f"values up to {size:g}")
    return np.ascontiguousarray(array.astype(dtype, copy=False))


def from_device(data: memoryview, dims: tuple[int, ...], spec: TensorSpec) -> Array:
    """Return bytes that were read back as an array of the declared dtype. It owns its memory."""
    array = np.frombuffer(data, storage_dtype(spec.dtype)).reshape(dims)
    return array.astype(spec.host_dtype.held)


def _as_numpy(value: Any, where: str) -> Array:
    if isinstance(value, np.ndarray):
        if value.dtype.isbuiltin == 1:  # asked first, in every call: the name is put together in Python
            return value
        # bfloat16 is what others have taught NumPy, and not safe to cast by its rules.
        return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
    try:
        if hasattr(value, "detach"):  # a torch tensor that requires grad refuses to be viewed
            value = value.detach()
            if str(value.dtype) == "torch.bfloat16":  # which NumPy does not have; f32 holds every value of it
                value = value.float()
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        raise InputError(
            f"{where} is a {type(value).__name__} that cannot be read as an array: {error}", code="not_numeric"
        ) from error
