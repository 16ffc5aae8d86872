"""What runs a call: for a method and all its forks, one at a time."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from ..budgets import spend
from ..device import Gpu, Observer, Session, WeightBuffers, Workspace
from ..errors import DeviceError, Error, GraphError
from ..graph import Bool, Call, Double, Int, Null, String, SymBool, TensorSpec
from ..lowering import mutated_values
from ..plan import CallValues, HostCalls, Schedule, Scheduler, Segment
from ..progress import OnProgress, ignore
from .arguments import zeros_for
from .borders import Array, Borders
from .call_arguments import Target, check_targets
from .kernels import CpuKernels
from .method_state import MethodState


class Executor:
    """The way from arguments to results, with the state of whoever calls.

    It is shared by a method and its forks, whose calls take turns: the scheduler and the workspace serve one at a time.
    """

    def __init__(self, scheduler: Scheduler, kernels: CpuKernels, *, lazy: bool = False) -> None:
        """With `lazy`, nothing is compiled before a call needs it."""
        self.scheduler = scheduler
        self.plan = scheduler.plan
        self.borders = Borders(self.plan)
        self._graph = self.plan.graph
        self._kernels = kernels
        self._lazy = lazy
        self._workspace: Workspace | None = None
        self.observer: Observer | None = None  # of the calls that are made now

    # -- memory on a device ----------------------------------------------------------------------------------------

    def open(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress = ignore, *, filled: bool = True) -> Session:
        """Memory for one more state. Whoever comes first on a device makes what all others share there."""
        workspace = self._workspace
        if workspace is not None and workspace.gpu is gpu:
            return Session(workspace, filled=filled)
        self.close()
        workspace = self._workspace = Workspace(self.plan, gpu, weights, progress, lazy=self._lazy)
        try:
            return Session(workspace, first=True, filled=filled)
        except BaseException:
            self.close()
            raise

    def let_go(self) -> None:
        """Drop what was on a device that is gone."""
        if self._workspace is not None and not self._workspace.gpu.alive():
            self.close()

    def close(self) -> None:
        """Give back what is shared. Sessions that use it must be closed, too."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()

    def warm_up(self, state: MethodState) -> None:
        """Prepare for the smallest and the largest inputs, so that the first call costs what the tenth does."""
        stage = self.only_stage()
        if stage is None or state.session is None or self._lazy:
            return
        for bound in self.plan.extents():
            args = [zeros_for(self._graph.values[i], bound.get(i)) for i in self._graph.inputs]
            try:
                state.session.warm_up(self.prepare(stage, self.borders.enter(args), state)[0])
            except DeviceError:
                raise
            except Error:  # zeros need not be a valid input
                continue

    # -- one call --------------------------------------------------------------------------------------------------

    def run(
        self, state: MethodState, args: Sequence[Any], wanted: Sequence[int], targets: Sequence[Target] = ()
    ) -> tuple[Any, ...]:
        """The wanted values after a call with these arguments; written into `targets`, if there are any."""
        observer = self.observer
        if observer is not None:
            observer.phase("check inputs")
        live = self.borders.enter(args)
        number = 0
        blocks = self.plan.flow.blocks
        done = 0
        while number < len(blocks):
            done += 1
            spend("blocks run", done, self._graph.name)  # a file may jump back for ever
            block = blocks[number]
            for stage in block.stages:
                if isinstance(stage, HostCalls):
                    self._run_on_host(stage, live, state)
                else:
                    self._run_on_device(stage, live, state, wanted, targets)
            jumps = block.condition is not None and not self._truth(block.condition, live, state)
            number = block.target if jumps and block.target is not None else number + 1
        results = tuple(self.output(i, live, state) for i in wanted)
        if targets:
            check_targets(targets, live)
        if live.unsaved:
            sent = state.keep({v: live.arrays[v] for v in sorted(live.unsaved)})
            if observer is not None:
                observer.moved(sent, 0)
        for (_, array, _), result in zip(targets, results, strict=False):
            np.copyto(array, result)
        if observer is not None:
            observer.phase("")
        return results

    def only_stage(self) -> Segment | None:
        """The segment that is the whole method, if there is one."""
        blocks = self.plan.flow.blocks
        stages = blocks[0].stages
        if len(blocks) == 1 and len(stages) == 1 and isinstance(stages[0], Segment) and blocks[0].condition is None:
            return stages[0]
        return None

    def prepare(self, segment: Segment, live: CallValues, state: MethodState) -> tuple[Schedule, dict[int, int]]:
        """The schedule of a segment and its live integers. From here on what the segment makes is known."""
        for value_id in segment.looks:
            live.arrays[value_id] = self._host_array(value_id, live, state)
        observer = self.observer
        if observer is None:
            return self.scheduler.prepare(segment, live)
        observer.phase("lower")
        found = self.scheduler.prepare(segment, live)
        observer.prepared(found[0], live)
        observer.phase("convert inputs")
        return found

    def output(self, value_id: int, live: CallValues, state: MethodState) -> Any:
        if isinstance(self._graph.values[value_id], TensorSpec):
            array = self._host_array(value_id, live, state)
            # Not the caller's memory, nor the state's, be it by way of a kernel that made a view of it.
            theirs = array.flags.owndata and value_id not in self._graph.inputs and value_id not in self.plan.host_state
            return array if theirs else array.copy()
        return self._scalar(value_id, live)

    def _run_on_device(
        self,
        segment: Segment,
        live: CallValues,
        state: MethodState,
        outputs: Container[int],
        targets: Sequence[Target] = (),
    ) -> None:
        session, borders = state.session, self.borders
        assert session is not None
        schedule, slots = self.prepare(segment, live, state)
        if targets:  # while nothing has changed
            check_targets(targets, live)
        reads = borders.reads(segment, live, outputs)
        uploads = borders.uploads(segment, live)
        if live.unsaved:  # the submit may read it, or write over it
            uploads += state.for_device({v: live.arrays[v] for v in sorted(live.unsaved)})
        (data,) = session.run(schedule, [slots], uploads, reads, observer=self.observer)
        if self.observer is not None:
            self.observer.phase("convert outputs")
        live.unsaved.intersection_update(self.plan.host_state)
        for value_id in segment.updates:  # what the host knew of them is of before
            live.arrays.pop(value_id, None)
        borders.leave(live, reads, data)

    def _run_on_host(self, stage: HostCalls, live: CallValues, state: MethodState) -> None:
        graph = self._graph
        if self.observer is not None:
            self.observer.phase("CPU kernels")
        for index in stage.steps:
            call = graph.steps[index]
            assert isinstance(call, Call)
            needed = [v for v in graph.flatten(call.args) if isinstance(graph.values[v], TensorSpec)]
            tensors = {v: self._host_array(v, live, state) for v in needed}
            in_place = mutated_values(call, graph)
            tensors.update({v: tensors[v].copy() for v in in_place})  # arrays may be the caller's, or a fork's too
            results = self._kernels.run(call, graph, tensors, live.scalars)
            for value_id, array in ({v: tensors[v] for v in in_place} | results).items():
                self._take_over(value_id, array, call, live)

    def _take_over(self, value_id: int, array: Array, call: Call, live: CallValues) -> None:
        """What a CPU kernel has made or changed."""
        kept = value_id in self.plan.flow.state
        _check_dims_of_result(array, self._graph.tensor(value_id), call, value_id, kept)
        live.arrays[value_id], live.dims[value_id] = array, array.shape
        if kept:
            live.unsaved.add(value_id)

    # -- values on the host ----------------------------------------------------------------------------------------

    def _host_array(self, value_id: int, live: CallValues, state: MethodState) -> Array:
        array = live.arrays.get(value_id)
        if array is not None:
            return array
        if value_id in self.plan.flow.state:
            live.arrays[value_id] = state.array(value_id, self.observer)
            return live.arrays[value_id]
        spec = self._graph.tensor(value_id)
        if spec.constant is None:
            raise GraphError(f"value {value_id} {spec} is read before anything wrote it")
        return spec.constant.array(spec.dims)

    def _truth(self, value_id: int, live: CallValues, state: MethodState) -> bool:
        if isinstance(self._graph.values[value_id], TensorSpec):
            return bool(np.all(self._host_array(value_id, live, state)))
        return bool(self._scalar(value_id, live))

    def _scalar(self, value_id: int, live: CallValues) -> Any:
        value = self._graph.values[value_id]
        if isinstance(value, (Int, Double, Bool, String)):
            return value.value
        if isinstance(value, Null):
            return None
        number = live.scalars.get(value_id)
        if number is None:  # on the way that the jumps took
            raise GraphError(f"value {value_id} is read before anything wrote it")
        return bool(number) if isinstance(value, SymBool) else number


def _check_dims_of_result(array: Array, spec: TensorSpec, call: Call, value_id: int, kept: bool) -> None:
    """State that is kept has one shape, always; anything else may be smaller than its bound."""
    bound = array.ndim == len(spec.dims) and all(a <= b for a, b in zip(array.shape, spec.dims, strict=True))
    if not bound or (kept and array.shape != spec.dims):
        raise GraphError(
            f"{call.name} ({call.origin}) gave value {value_id} the shape {list(array.shape)}, "
            f"outside its bound {list(spec.dims)}"
        )
