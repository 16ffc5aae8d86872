"""What callers are told of the inputs and outputs of a method, and the numbers among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InputError, UnsupportedError
from ..graph import Bool, Double, Graph, Int, String, SymBool, SymFloat, SymInt, TensorSpec
from ..lowering.numbers import INT32_HIGH, INT32_LOW
from ..plan import CallValues, Plan
from ..text import sanitize_line, table
from .checks import check_list, described, did_you_mean


class DLPack(Protocol):
    """An array of another library, such as a torch tensor: read without a copy where that can be."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


OutputArray = np.ndarray[tuple[int, ...], np.dtype[Any]]
"""What a tensor comes out as, in the dtype the program declares."""

Value = OutputArray | Any
"""An output: an array, or what only the file can tell: a number, or for a call with several outputs a tuple.

So a type checker knows what arrays have, catches what they have not, and demands no test of what everybody knows of
their model. `np.asarray(y, np.float32)` says the rest, and `run(..., into=[array])` gives back what was given.
"""

Input = npt.ArrayLike | DLPack
"""Whatever NumPy makes an array of: arrays, nested lists, numbers; and torch tensors."""


@dataclass(frozen=True, repr=False)
class ArgumentInfo:
    """An input or output of a method."""

    name: str  # as the file has it, else in0, in1, ... or out0, out1, ...
    kind: str  # "tensor", "int", "float", "bool", "str" or "none"
    dtype: str | None = None
    bound: tuple[int, ...] | None = None
    dynamic: tuple[bool, ...] | None = None  # which dims may be smaller than the bound

    def __str__(self) -> str:
        if self.bound is None or self.dynamic is None:
            return self.kind
        dims = ", ".join(f"<={b}" if may else str(b) for b, may in zip(self.bound, self.dynamic, strict=True))
        return f"{self.dtype}[{dims}]"

    def __repr__(self) -> str:
        return f"<{self.name}: {self}>"

    def _repr_html_(self) -> str:
        rows = {"kind": self.kind, "dtype": self.dtype or "", "shape": str(self) if self.bound is not None else ""}
        return table(self.name, {name: text for name, text in rows.items() if text})


_KINDS = {SymInt: "int", Int: "int", SymFloat: "float", Double: "float", SymBool: "bool", Bool: "bool", String: "str"}


def argument_names(graph: Graph, ids: Sequence[int], prefix: str) -> tuple[str, ...]:
    """One name for each input or output, each another: those of the file if they are, else numbers behind a prefix."""
    numbered = [f"{prefix}{position}" for position in range(len(ids))]
    given = [graph.names.get(value_id, number) for value_id, number in zip(ids, numbered, strict=True)]
    return tuple(given if len(set(given)) == len(given) else numbered)


def describe_all(
    graph: Graph, ids: Sequence[int], prefix: str, dynamic_dims: Mapping[int, tuple[bool, ...]]
) -> tuple[ArgumentInfo, ...]:
    """Inputs or outputs."""
    names = argument_names(graph, ids, prefix)
    return tuple(describe(graph, i, dynamic_dims, name) for i, name in zip(ids, names, strict=True))


def describe(graph: Graph, value_id: int, dynamic_dims: Mapping[int, tuple[bool, ...]], name: str = "") -> ArgumentInfo:
    """What a caller has to know of a value. Without an entry in `dynamic_dims` a dynamic tensor's dims may all vary."""
    value = graph.values[value_id]
    if isinstance(value, TensorSpec):
        dynamic = dynamic_dims.get(value_id, (value.dynamic,) * len(value.dims))
        return ArgumentInfo(name, "tensor", value.host_dtype.short, value.dims, dynamic)
    return ArgumentInfo(name, _KINDS.get(type(value), "none"))


def zeros_like_input(spec: object, dims: tuple[int, ...] | None) -> Any:
    return np.zeros(dims, spec.host_dtype.held) if isinstance(spec, TensorSpec) and dims is not None else 0


def to_number(arg: Any, spec: object, where: str) -> float:
    """A number that a call gives: a Python number, or an array of one element. What would lose something is refused."""
    kind = "truth value" if isinstance(spec, SymBool) else "whole number" if isinstance(spec, SymInt) else "number"
    try:
        value = arg.item() if hasattr(arg, "item") else arg
        if not isinstance(value, (int, float)):
            raise TypeError("neither int nor float")
        number = bool(value) if isinstance(spec, SymBool) else int(value) if isinstance(spec, SymInt) else float(value)
        if number != value and value == value:  # 1.5 as a whole number, 2 as a truth value; NaN is unequal to itself
            raise ValueError("another number")
    except Exception as error:  # `item` may be anything's
        raise InputError(f"{where} must be a {kind}, or an array of one, not {described(arg)}") from error
    if isinstance(spec, SymInt) and not INT32_LOW <= number <= INT32_HIGH:
        raise InputError(
            f"{where} is {number}; the device computes with 32-bit integers, {INT32_LOW} to {INT32_HIGH}",
            code="int32_range",
        )
    return number


Array = np.ndarray[Any, Any]
OutputTarget = tuple[int, Array, str]  # a value, the array it is written into, and what to call that


def merge_named_inputs(
    method: str, infos: Sequence[ArgumentInfo], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The inputs in their order, the first of them by position and others by name."""
    names = [info.name for info in infos]
    told = ", ".join(f"{info.name}: {info}" for info in infos) or "none"
    for name in named:
        if name not in names:
            raise InputError(
                f"{method} has no input {described(name)}{did_you_mean(name, names)}; its inputs are {told}",
                code="unknown_input",
            )
    if len(args) > len(names):
        raise InputError(
            f"{method} takes {len(names)} inputs ({told}); {len(args) + len(named)} were given", code="input_count"
        )
    twice = [name for name in names[: len(args)] if name in named]
    missing = [name for name in names[len(args) :] if name not in named]
    if twice or missing:
        problem = f"input {twice[0]!r} twice, by position and by name" if twice else f"no input {missing[0]!r}"
        raise InputError(
            f"{method} was given {problem}; its inputs are {told}",
            code=("duplicate_input" if twice else "missing_input"),
        )
    return (*args, *(named[name] for name in names[len(args) :]))


def ordered_inputs(method: str, infos: Sequence[ArgumentInfo], args: Any, name: str = "args") -> Sequence[Any]:
    """What `run` was given, which should be a sequence or a mapping by name."""
    if isinstance(args, Mapping):
        return merge_named_inputs(method, infos, (), args)
    if isinstance(args, Sequence) and not isinstance(args, (str, bytes, bytearray, memoryview)):
        return args
    raise InputError(
        f"{name} is a list of the {len(infos)} inputs of {method}, or a mapping by name, not {described(args)}: [x]"
    )


def check_strict(plan: Plan, strict: object) -> None:
    """For calls that may use nothing but the device."""
    if not isinstance(strict, bool):
        raise InputError(f"strict is True or False, not {described(strict)}")
    if strict and (calls := plan.cpu_calls):
        named = ", ".join(f"{name} x{count}" for name, count in sorted(calls.items()))
        raise UnsupportedError(
            f"{plan.graph.name} was called with strict=True, and would run {sum(calls.values())} calls on the CPU: "
            f"{named}. Export it so that they are delegated (`webpte check` says how), or call it without strict",
            sorted(calls),
            code="cpu_kernels",
        )


def output_targets(graph: Graph, into: Any, wanted: Sequence[int]) -> list[OutputTarget]:
    """The arrays that outputs are to be written into, checked as far as can be before the call."""
    arrays = check_list(into, "into", "arrays, one for each output", "[np.empty((1, 8), np.float32)]")
    if len(arrays) != len(wanted):
        raise InputError(
            f"into has {len(arrays)} arrays for the {len(wanted)} outputs that are wanted of {graph.name}",
            code="output_count",
        )
    if len({id(array) for array in arrays}) < len(arrays):
        raise InputError("into has the same array twice: each output needs one of its own", code="duplicate_array")
    named = [
        (value_id, array, f"into[{number}]")
        for number, (value_id, array) in enumerate(zip(wanted, arrays, strict=True))
    ]
    for value_id, array, where in named:
        _check_target(graph, value_id, array, where)
    return named


def _check_target(graph: Graph, value_id: int, array: object, where: str) -> None:
    spec = graph.values[value_id]
    if not isinstance(spec, TensorSpec):
        raise InputError(
            f"{where} is for an output of {graph.name} that is no array: leave it out by outputs=[...]",
            code="not_a_tensor",
        )
    wanted = spec.host_dtype.held
    if not isinstance(array, np.ndarray):
        raise InputError(f"{where} is a NumPy array of {wanted} to write into, not {described(array)}")
    if array.dtype != wanted:
        raise InputError(f"{where} has dtype {array.dtype}; the output it is for is {wanted}", code="dtype")
    if not array.flags.writeable or not array.flags.c_contiguous:
        problem = "is not contiguous" if array.flags.writeable else "cannot be written"
        raise InputError(
            f"{where} {problem}: give an array of its own, such as np.empty({list(spec.dims)}, np.{wanted})",
            code=("not_contiguous" if array.flags.writeable else "read_only"),
        )
    if not spec.dynamic:
        _check_shape(array, spec.dims, where)


def check_target_shapes(targets: Sequence[OutputTarget], live: CallValues) -> None:
    """Against the shapes that outputs will have, as soon as they are known."""
    for value_id, array, where in targets:
        if value_id in live.dims:
            _check_shape(array, live.dims[value_id], where)


def _check_shape(array: Array, dims: tuple[int, ...], where: str) -> None:
    if array.shape != dims:
        raise InputError(
            f"{where} has shape {list(array.shape)}; the output of this call has shape {list(dims)}", code="shape"
        )


def signature(name: str, inputs: Sequence[ArgumentInfo], outputs: Sequence[ArgumentInfo]) -> str:
    """A method as one would write it."""
    return f"{sanitize_line(name)}({arguments(inputs)}) -> {arguments(outputs) or 'nothing'}"


def arguments(infos: Sequence[ArgumentInfo]) -> str:
    return ", ".join(f"{sanitize_line(info.name)}: {info}" for info in infos)
