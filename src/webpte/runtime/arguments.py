"""The inputs and outputs of a method: their descriptions, and the ways to pass them.

Inputs are passed by position, keyword or mapping. Outputs are selected by position or name, and may be written into
arrays of the caller. A call with a tuple of inputs, which is what a decode loop makes, needs none of this.
"""

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
from ..typing import Array
from .checks import check_bool, check_list, described, did_you_mean, wrong_argument


class DLPack(Protocol):
    """An array of another library, such as a torch tensor. It is read without a copy if possible."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


OutputArray = np.ndarray[tuple[int, ...], np.dtype[Any]]
"""What a tensor comes out as, in the dtype the program declares."""

Value = OutputArray | Any
"""An output: an array, or, as only the file can say, a number, or for a call with several outputs a tuple.

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
    """Return unique names of inputs or outputs: those of the file if they are unique, else a prefix and a number."""
    numbered = [f"{prefix}{position}" for position in range(len(ids))]
    names = [graph.names.get(value_id, number) for value_id, number in zip(ids, numbered, strict=True)]
    return tuple(names if len(set(names)) == len(names) else numbered)


def describe_all(
    graph: Graph, ids: Sequence[int], prefix: str, dynamic_dims: Mapping[int, tuple[bool, ...]]
) -> tuple[ArgumentInfo, ...]:
    """Return the descriptions of inputs or outputs."""
    names = argument_names(graph, ids, prefix)
    return tuple(describe(graph, i, dynamic_dims, name) for i, name in zip(ids, names, strict=True))


def describe(graph: Graph, value_id: int, dynamic_dims: Mapping[int, tuple[bool, ...]], name: str = "") -> ArgumentInfo:
    """Return the description of a value. Without an entry in `dynamic_dims`, all dims of a dynamic tensor may vary."""
    value = graph.values[value_id]
    if isinstance(value, TensorSpec):
        dynamic = dynamic_dims.get(value_id, (value.dynamic,) * len(value.dims))
        return ArgumentInfo(name, "tensor", value.host_dtype.short, value.dims, dynamic)
    return ArgumentInfo(name, _KINDS.get(type(value), "none"))


def zeros_like_input(spec: object, dims: tuple[int, ...] | None) -> Any:
    return np.zeros(dims, spec.host_dtype.held) if isinstance(spec, TensorSpec) and dims is not None else 0


def to_number(arg: Any, spec: object, where: str) -> float:
    """Return the number of a Python number or an array of one element. A lossy conversion raises InputError."""
    kind = "a boolean" if isinstance(spec, SymBool) else "an integer" if isinstance(spec, SymInt) else "a number"
    try:
        value = arg.item() if hasattr(arg, "item") else arg
        if not isinstance(value, (int, float)):
            raise TypeError("neither int nor float")
        number = bool(value) if isinstance(spec, SymBool) else int(value) if isinstance(spec, SymInt) else float(value)
        if number != value and value == value:  # 1.5 as an integer, 2 as a boolean; NaN is unequal to itself
            raise ValueError("another number")
    except Exception as error:  # `item` may be anything's
        raise wrong_argument(where, f"{kind}, or an array of one", arg) from error
    if isinstance(spec, SymInt) and not INT32_LOW <= number <= INT32_HIGH:
        raise InputError(
            argument=where, expected=f"a 32-bit integer, {INT32_LOW} to {INT32_HIGH}", got=number, code="int32_range"
        )
    return number


OutputTarget = tuple[int, Array, str]  # a value, the array it is written into, and what to call that


def merge_named_inputs(
    method: str, infos: Sequence[ArgumentInfo], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the inputs in order, from those passed by position and those passed by name."""
    names = [info.name for info in infos]
    expected = ", ".join(f"{info.name}: {info}" for info in infos) or "none"
    for name in named:
        if name not in names:
            raise InputError(
                argument=method,
                expected=f"inputs {expected}",
                got=f"{described(name)}{did_you_mean(name, names)}",
                code="unknown_input",
            )
    if len(args) > len(names):
        raise InputError(
            argument=method,
            expected=f"{len(names)} inputs ({expected})",
            got=f"{len(args) + len(named)}",
            code="input_count",
        )
    twice = [name for name in names[: len(args)] if name in named]
    missing = [name for name in names[len(args) :] if name not in named]
    if twice or missing:
        problem = f"input {twice[0]!r} twice, by position and by name" if twice else f"no input {missing[0]!r}"
        raise InputError(
            argument=method,
            expected=f"inputs {expected}",
            got=problem,
            code=("duplicate_input" if twice else "missing_input"),
        )
    return (*args, *(named[name] for name in names[len(args) :]))


def ordered_inputs(method: str, infos: Sequence[ArgumentInfo], args: Any, name: str = "args") -> Sequence[Any]:
    """Return the arguments of `run`, a sequence or a mapping by name, in order."""
    if isinstance(args, Mapping):
        return merge_named_inputs(method, infos, (), args)
    if isinstance(args, Sequence) and not isinstance(args, (str, bytes, bytearray, memoryview)):
        return args
    raise InputError(
        argument=name,
        expected=f"a list of the {len(infos)} inputs of {method}, or a mapping by name",
        got=described(args),
        code="wrong_type",
        hint="For one input, pass [x].",
    )


def check_strict(plan: Plan, strict: object) -> None:
    """Raise UnsupportedError if a strict call would run CPU kernels."""
    if check_bool(strict, "strict") and (calls := plan.cpu_calls):
        named = ", ".join(f"{name} x{count}" for name, count in sorted(calls.items()))
        raise UnsupportedError(
            f"strict=True: {plan.graph.name} would run {sum(calls.values())} calls on the CPU: {named}",
            sorted(calls),
            code="cpu_kernels",
            hint="Export it so that they are delegated, as `webpte check` describes, or call it without strict.",
        )


def output_targets(graph: Graph, into: Any, value_ids: Sequence[int]) -> list[OutputTarget]:
    """Return the arrays that outputs are written into, checked as far as possible before the call."""
    arrays = check_list(into, "into", "arrays, one for each output", "[np.empty((1, 8), np.float32)]")
    if len(arrays) != len(value_ids):
        raise InputError(
            argument="into",
            expected=f"{len(value_ids)} arrays, one for each output of {graph.name}",
            got=f"{len(arrays)}",
            code="output_count",
        )
    if len({id(array) for array in arrays}) < len(arrays):
        raise InputError(
            argument="into", expected="a distinct array for each output", got="one array twice", code="duplicate_array"
        )
    named = [
        (value_id, array, f"into[{number}]")
        for number, (value_id, array) in enumerate(zip(value_ids, arrays, strict=True))
    ]
    for value_id, array, where in named:
        _check_target(graph, value_id, array, where)
    return named


def _check_target(graph: Graph, value_id: int, array: object, where: str) -> None:
    spec = graph.values[value_id]
    if not isinstance(spec, TensorSpec):
        raise InputError(
            f"{where}: the output of {graph.name} is not a tensor",
            code="not_a_tensor",
            hint="Leave it out with outputs=[...].",
        )
    dtype = spec.host_dtype.held
    if not isinstance(array, np.ndarray):
        raise wrong_argument(where, f"a NumPy array of {dtype}", array)
    if array.dtype != dtype:
        raise InputError(argument=where, expected=f"dtype {dtype}", got=f"dtype {array.dtype}", code="dtype")
    if not array.flags.writeable or not array.flags.c_contiguous:
        problem = "is not contiguous" if array.flags.writeable else "cannot be written"
        raise InputError(
            f"{where} {problem}",
            code=("not_contiguous" if array.flags.writeable else "read_only"),
            hint=f"Pass an array such as np.empty({list(spec.dims)}, np.{dtype}).",
        )
    if not spec.dynamic:
        _check_shape(array, spec.dims, where)


def check_target_shapes(targets: Sequence[OutputTarget], live: CallValues) -> None:
    """Check the arrays against the shapes of the outputs that are known already."""
    for value_id, array, where in targets:
        if value_id in live.dims:
            _check_shape(array, live.dims[value_id], where)


def _check_shape(array: Array, dims: tuple[int, ...], where: str) -> None:
    if array.shape != dims:
        raise InputError(
            argument=where,
            expected=f"shape {list(dims)}, as the output of this call",
            got=f"shape {list(array.shape)}",
            code="shape",
        )


def signature(graph: Graph, dynamic_dims: Mapping[int, tuple[bool, ...]]) -> str:
    """Return a method as a function signature."""
    inputs = describe_all(graph, graph.inputs, "in", dynamic_dims)
    outputs = describe_all(graph, graph.outputs, "out", dynamic_dims)
    return f"{sanitize_line(graph.name)}({arguments(inputs)}) -> {arguments(outputs) or 'nothing'}"


def arguments(infos: Sequence[ArgumentInfo]) -> str:
    return ", ".join(f"{sanitize_line(info.name)}: {info}" for info in infos)
