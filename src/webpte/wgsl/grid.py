"""Workgroup counts: one helper for every dispatch."""

from __future__ import annotations

from ..errors import ShapeError

Grid = tuple[int, int, int]


def grid_for(threads: int, workgroup: int, per_dimension: int) -> Grid:
    """The smallest near-square 2-D grid that covers `threads` invocations.

    Kernels recover the flat index with `thread_index`, which relies on the x extent being full rows.
    """
    groups = -(-threads // workgroup)
    if groups <= per_dimension:
        return (groups, 1, 1)
    rows = -(-groups // per_dimension)
    if rows > per_dimension:
        raise ShapeError(
            f"{threads} invocations need {groups} workgroups of {workgroup}; "
            f"the device allows {per_dimension} x {per_dimension}. Use smaller inputs.",
            code="grid_too_large",
        )
    return (-(-groups // rows), rows, 1)
