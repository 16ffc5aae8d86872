"""A method as typed values and calls, checked."""

from ..container import DType
from .delegate import COPY, ITEM
from .fusion import PASSES, apply_passes
from .fusion.attention import ROTARY_ATTENTION
from .fusion.programs import (
    ELEMENTWISE,
    FINISHED_CONVOLUTION,
    FINISHED_LINEAR,
    MATMUL,
    WEIGHTS,
    parse_program,
)
from .graph import OVERFLOW, OVERFLOW_FLAGS, Call, DelegateInfo, Graph, Jump, Origin, Step
from .method import build_graph
from .passes import widen_halves
from .remedies import keep_out
from .values import (
    LIVE_SCALARS,
    Bool,
    BoolList,
    Constant,
    Double,
    DoubleList,
    Int,
    IntList,
    Null,
    String,
    SymBool,
    SymFloat,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    device_dtype,
    normalize_dim,
    numel,
)

__all__ = [
    "COPY",
    "ELEMENTWISE",
    "FINISHED_CONVOLUTION",
    "FINISHED_LINEAR",
    "ITEM",
    "LIVE_SCALARS",
    "MATMUL",
    "OVERFLOW",
    "OVERFLOW_FLAGS",
    "PASSES",
    "ROTARY_ATTENTION",
    "WEIGHTS",
    "Bool",
    "BoolList",
    "Call",
    "Constant",
    "DType",
    "DelegateInfo",
    "Double",
    "DoubleList",
    "Graph",
    "Int",
    "IntList",
    "Jump",
    "Null",
    "Origin",
    "Step",
    "String",
    "SymBool",
    "SymFloat",
    "SymInt",
    "TensorSpec",
    "Value",
    "ValueList",
    "apply_passes",
    "build_graph",
    "device_dtype",
    "keep_out",
    "normalize_dim",
    "numel",
    "parse_program",
    "widen_halves",
]
