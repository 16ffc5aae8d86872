"""Torch's own kernels, for calls that nothing of ours serves: pure ones, whose result is known to fit.

The names and arguments come out of a file. `pure_ops` says which names are looked up at all; the arguments are tensors,
numbers and lists of them; the op is first run on shapes alone, and refused if its result would not fit where the file
says it goes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import GraphError
from ..graph import Call, TensorSpec
from .pure_ops import PLACEMENT, PURE, SIZED_BY_DATA

Array = np.ndarray[Any, Any]


def _parts(name: str) -> tuple[str, str, str]:
    """`aten::cumsum.out` outside delegates; inside, with the fallback on, `aten.cumsum.default`."""
    namespace, _, rest = name.partition("::" if "::" in name else ".")
    base, _, overload = rest.partition(".")
    return namespace, base, overload or "default"


@functools.lru_cache(1024)
def torch_kernel(name: str) -> Any | None:
    """The overload that a file's name stands for, if it is one of the pure ops and torch is installed."""
    namespace, base, overload = _parts(name)
    if namespace != "aten" or base not in PURE:
        return None
    try:
        import torch
    except ImportError:
        return None
    kernel = getattr(getattr(torch.ops.aten, base, None), overload, None)
    if not isinstance(kernel, torch._ops.OpOverload):
        return None
    written = [a for a in kernel._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return kernel if all(a.is_out for a in written) else None


def run_torch(call: Call, args: Sequence[Any], outs: Sequence[TensorSpec]) -> Any:
    """Run a call whose arguments are arrays, numbers, None and lists of those."""
    import torch

    kernel = torch_kernel(call.name)
    assert kernel is not None
    schema = kernel._schema.arguments
    _refuse_arguments(call, schema, args)
    if _parts(call.name)[1] not in SIZED_BY_DATA:
        _refuse_sizes(call, _run(kernel, schema, args, outs, "meta"), outs)
    results = _run(kernel, schema, args, outs, "cpu")
    if not all(isinstance(r, torch.Tensor) for r in results):
        raise GraphError(f"{call.name} ({call.origin}) gives something other than tensors")
    arrays = tuple(r.numpy() for r in results)
    return arrays if len(arrays) != 1 else arrays[0]


def _run(kernel: Any, schema: Sequence[Any], args: Sequence[Any], outs: Sequence[TensorSpec], device: str) -> list[Any]:
    import torch

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(item) for item in value]
        if not isinstance(value, np.ndarray):
            return value
        # Of an array only its shape matters on the meta device: no copy is made of it there.
        return torch.from_numpy(np.array(value) if device == "cpu" else value).to(device)

    converted = [convert(value) for value in args]
    named = {a.name: v for a, v in zip(schema, converted, strict=False) if a.kwarg_only}
    positional = [v for a, v in zip(schema, converted, strict=False) if not a.kwarg_only]
    # An out tensor without elements is resized without a warning; torch must own its memory to do so.
    dtypes = [torch.from_numpy(np.empty(0, spec.host_dtype.held)).dtype for spec in outs]
    empty = iter(torch.empty(0, dtype=dtype, device=device) for dtype in dtypes)
    named |= {a.name: next(empty) for a in schema[len(converted) :] if a.is_out}
    result = kernel(*positional, **named)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _refuse_arguments(call: Call, schema: Sequence[Any], args: Sequence[Any]) -> None:
    wanted = [a for a in schema if not a.is_out]
    if len(args) > len(wanted):
        raise GraphError(
            f"{call.name} ({call.origin}) has {len(args)} arguments; it takes {len(wanted)}", code="wrong_arity"
        )
    for argument, value in zip(wanted, args, strict=False):
        if not _plain(value, argument) or (argument.name in PLACEMENT and value is not None):
            raise GraphError(
                f"{call.name} ({call.origin}), argument {argument.name}: torch's kernels are given tensors, numbers "
                f"and lists of them, not {value!r:.80}",
                code="wrong_kind",
            )


def _plain(value: Any, argument: Any, nested: bool = False) -> bool:
    """Tensors, numbers and lists of them; a string where the op wants one, such as the kind of a reduction."""
    if isinstance(value, list) and not nested:
        return all(_plain(item, argument, nested=True) for item in value)
    if isinstance(value, str):
        return "str" in str(argument.type).lower()
    return value is None or isinstance(value, (bool, int, float, np.ndarray))


def _refuse_sizes(call: Call, made: Sequence[Any], outs: Sequence[TensorSpec]) -> None:
    """Before anything is computed: as many results as the file takes, each within its declared bound."""
    if len(made) != len(outs):
        raise GraphError(f"{call.name} ({call.origin}) gives {len(made)} results; the file takes {len(outs)}")
    for tensor, spec in zip(made, outs, strict=True):
        shape = tuple(tensor.shape)
        if len(shape) != len(spec.dims) or any(a > b for a, b in zip(shape, spec.dims, strict=True)):
            raise GraphError(
                f"{call.name} ({call.origin}) would give the shape {list(shape)}, outside its bound {list(spec.dims)}",
                code="exceeds_bound",
            )
