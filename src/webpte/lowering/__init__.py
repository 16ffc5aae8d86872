"""What a lowering sees and says: tensors, live scalars, dispatches; and how ops are registered and found."""

from . import dim_rules
from .binding import BoundCall, Frame
from .context import WHOLE, Binding, Context, Dispatch, Guard, LiveScalar, Tensor, stored_bytes
from .registry import (
    FLOATS,
    NUMBERS,
    WORDS,
    Op,
    Option,
    Unused,
    elementwise_op,
    find,
    gpu_op,
    mutated_positions,
    mutated_values,
    op,
    refused_dtypes,
    registered,
    unregister,
)
from .variants import ANYWHERE, Job, Needs, Variant

__all__ = [
    "ANYWHERE",
    "FLOATS",
    "NUMBERS",
    "WHOLE",
    "WORDS",
    "Binding",
    "BoundCall",
    "Context",
    "Dispatch",
    "Frame",
    "Guard",
    "Job",
    "LiveScalar",
    "Needs",
    "Op",
    "Option",
    "Tensor",
    "Unused",
    "Variant",
    "dim_rules",
    "elementwise_op",
    "find",
    "gpu_op",
    "mutated_positions",
    "mutated_values",
    "op",
    "refused_dtypes",
    "registered",
    "stored_bytes",
    "unregister",
]
