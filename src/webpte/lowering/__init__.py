"""The interface of lowerings (tensors, live scalars, dispatches) and the registry of ops."""

from . import dim_rules
from .binding import BoundCall, Frame
from .context import WHOLE, Arrays, Binding, Context, Dispatch, Guard, LiveScalar, Tensor, stored_bytes
from .integers import NO_INTEGERS, Integers
from .registry import (
    FLOATS,
    NUMBERS,
    WORDS,
    Op,
    TensorOption,
    Unused,
    elementwise_op,
    find,
    gpu_op,
    mutated_positions,
    mutated_values,
    op,
    overload,
    refused_dtypes,
    registered,
    unregister,
)
from .traits import OpTraits
from .variants import ANYWHERE, Requirements, TuningKey, Variant

__all__ = [
    "ANYWHERE",
    "FLOATS",
    "NO_INTEGERS",
    "NUMBERS",
    "WHOLE",
    "WORDS",
    "Arrays",
    "Binding",
    "BoundCall",
    "Context",
    "Dispatch",
    "Frame",
    "Guard",
    "Integers",
    "LiveScalar",
    "Op",
    "OpTraits",
    "Requirements",
    "Tensor",
    "TensorOption",
    "TuningKey",
    "Unused",
    "Variant",
    "dim_rules",
    "elementwise_op",
    "find",
    "gpu_op",
    "mutated_positions",
    "mutated_values",
    "op",
    "overload",
    "refused_dtypes",
    "registered",
    "stored_bytes",
    "unregister",
]
