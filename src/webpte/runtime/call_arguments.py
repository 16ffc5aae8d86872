"""How a call may be written: inputs by position, keyword or mapping, outputs by position or name, or into given arrays.

A plain call with a tuple of inputs, which is what a decode loop makes, needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, UnsupportedError
from ..graph import Graph, TensorSpec
from ..plan import CallValues, Plan
from .arguments import ArgumentInfo
from .checks import check_list, described, did_you_mean

Array = np.ndarray[Any, Any]
Target = tuple[int, Array, str]  # a value, the array it is written into, and what to call that


def placed(
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


def in_order(method: str, infos: Sequence[ArgumentInfo], args: Any, name: str = "args") -> Sequence[Any]:
    """What `run` was given, which should be a sequence or a mapping by name."""
    if isinstance(args, Mapping):
        return placed(method, infos, (), args)
    if isinstance(args, Sequence) and not isinstance(args, (str, bytes, bytearray, memoryview)):
        return args
    raise InputError(
        f"{name} is a list of the {len(infos)} inputs of {method}, or a mapping by name, not {described(args)}: [x]"
    )


def refuse_cpu(plan: Plan, strict: object) -> None:
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


def targets_of(graph: Graph, into: Any, wanted: Sequence[int]) -> list[Target]:
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


def check_targets(targets: Sequence[Target], live: CallValues) -> None:
    """Against the shapes that outputs will have, as soon as they are known."""
    for value_id, array, where in targets:
        if value_id in live.dims:
            _check_shape(array, live.dims[value_id], where)


def _check_shape(array: Array, dims: tuple[int, ...], where: str) -> None:
    if array.shape != dims:
        raise InputError(
            f"{where} has shape {list(array.shape)}; the output of this call has shape {list(dims)}", code="shape"
        )
