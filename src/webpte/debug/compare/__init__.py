"""Compare a method with references: op by op on the same inputs, and end to end.

Every value of the method is read back. The reference of each call computes from the device's own inputs, so an error
belongs to that call and to no other.
"""

from .compare import compare, compare_file, compare_with
from .executorch import EXECUTORCH, compare_with_executorch
from .reports import EDGES, CallReport, Comparison, Difference, EndReport, OpSummary, Tolerance
from .repro import Out, TensorOperand, Varying, check_call, write_repro

__all__ = [
    "EDGES",
    "EXECUTORCH",
    "CallReport",
    "Comparison",
    "Difference",
    "EndReport",
    "OpSummary",
    "Out",
    "TensorOperand",
    "Tolerance",
    "Varying",
    "check_call",
    "compare",
    "compare_file",
    "compare_with",
    "compare_with_executorch",
    "write_repro",
]
