"""The schedules of shapes that nobody has called yet, for a plan that is about to be saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from .arguments import zeros_for

if TYPE_CHECKING:
    from .executor import Executor
    from .method_state import MethodState


def prepare_for(executor: Executor, state: MethodState, dims: Sequence[Sequence[int]]) -> None:
    """Lower what a call at these shapes would run, without running it."""
    stage, graph = executor.only_stage(), executor.plan.graph
    if stage is None:
        raise InputError(
            f"{graph.name} is not one submit: call it at the shapes that are to be saved", code="several_submits"
        )
    if len(dims) != len(graph.inputs):
        wanted = ", ".join(map(str, executor.borders.inputs))
        raise InputError(
            f"{graph.name} takes {len(graph.inputs)} inputs ({wanted}); {len(dims)} shapes were named",
            code="input_count",
        )
    try:
        args = [zeros_for(graph.values[i], tuple(sizes)) for i, sizes in zip(graph.inputs, dims, strict=True)]
    except (MemoryError, ValueError) as error:
        raise InputError(f"shapes: {dims!r:.200} cannot be: {error}") from error
    executor.prepare(stage, executor.borders.enter(args), state)
