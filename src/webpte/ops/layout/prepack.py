"""Prepack: a serialised constant becomes a GPU tensor.

For row-major buffers it is an identity, so nothing runs on the device: `out` is filled from the file, in one transfer,
after every op has been lowered and before the first call.
"""

from __future__ import annotations

from typing import Any

from ...errors import DataError
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.integers import elements_of
from ...lowering.registry import MOVABLE, op
from ...lowering.traits import OpTraits


@op("et_vk.prepack.default", dtypes=MOVABLE, traits=OpTraits(dims=dim_rules.like("x"), integers=elements_of("x")))
def prepack(cx: Context, x: Tensor, *, out: Tensor) -> None:
    source = x.spec.constant
    if source is None:
        raise DataError(f"value {x.id} {x.spec} has no constant data for value {out.id} {out.spec}", code="no_constant")
    if x.bound != out.bound or x.dtype is not out.dtype:
        raise DataError(
            f"value {x.id} {x.spec} and value {out.id} {out.spec} differ in shape or dtype", code="mismatch"
        )
    out.dims = x.dims
    cx.materialise(out, source)


@prepack.reference
def _(x: Any) -> Any:
    return x
