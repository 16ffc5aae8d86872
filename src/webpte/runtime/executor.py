"""Execution of calls, one at a time for a method and all its forks."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from ..budgets import spend
from ..device import NO_OBSERVER, Gpu, Observer, Session, Submission, WeightBuffers, Workspace
from ..errors import DeviceError, Error, GraphError, GuardError, InputError
from ..graph import Bool, Call, Double, Int, Null, String, SymBool, TensorSpec
from ..lowering import mutated_values
from ..plan import CallValues, HostCalls, PlanSegment, Schedule, ScheduleStore
from ..progress import OnProgress, ignore
from ..typing import Array
from .arguments import OutputTarget, check_target_shapes, zeros_like_input
from .converter import ArgumentConverter, BeyondDeviceError
from .kernels import CpuKernels
from .state import MethodState


class Executor:
    """Runs calls with the state of a method or a fork, which share it.

    Their calls are serialized: the schedules and the workspace serve one at a time.
    """

    def __init__(self, scheduler: ScheduleStore, kernels: CpuKernels, *, lazy: bool = False) -> None:
        """Prepare the plan. With `lazy`, the first call that uses a kernel compiles it."""
        self.scheduler = scheduler
        self.plan = scheduler.plan
        self.converter = ArgumentConverter(scheduler)
        self._graph = self.plan.graph
        self._kernels = kernels
        self._lazy = lazy
        self._workspace: Workspace | None = None
        self.observer: Observer = NO_OBSERVER  # of the current calls

    # -- memory on a device ----------------------------------------------------------------------------------------

    def open(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress = ignore, *, filled: bool = True) -> Session:
        """Allocate one more state. The first one on a device creates what all others share there."""
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

    @property
    def device(self) -> tuple[Gpu, WeightBuffers] | None:
        """Return where the plan runs, and its weights there."""
        return None if self._workspace is None else (self._workspace.gpu, self._workspace.weights)

    def release_lost(self) -> None:
        """Release what was on a lost device."""
        if self._workspace is not None and not self._workspace.gpu.alive():
            self.close()

    def close(self) -> None:
        """Release what is shared. Sessions that use it must be closed, too."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()

    def warm_up(self, state: MethodState) -> None:
        """Prepare for the smallest and the largest inputs, so that the first call takes no longer than later ones."""
        stage = self.only_stage()
        if stage is None or state.session is None or self._lazy:
            return
        for bound in self.plan.extents():
            args = [zeros_like_input(self._graph.values[i], bound.get(i)) for i in self._graph.inputs]
            try:
                state.session.warm_up(self.prepare(stage, self.converter.bind_inputs(args), state)[0])
            except DeviceError:
                raise
            except Error:  # zeros need not be a valid input
                continue

    # -- one call --------------------------------------------------------------------------------------------------

    def run(
        self, state: MethodState, args: Sequence[Any], output_ids: Sequence[int], targets: Sequence[OutputTarget] = ()
    ) -> tuple[Any, ...]:
        """Run a call and return the values of `output_ids`, which are also written into `targets`.

        Raise BeyondDeviceError for a value that does not fit the device: WideCalls.run handles it.
        """
        observer = self.observer
        observer.phase("check inputs")
        live = self.converter.bind_inputs(args)
        number = 0
        blocks = self.plan.flow.blocks
        done, written = 0, False
        while number < len(blocks):
            done += 1
            spend("blocks run", done, self._graph.name)  # a file may loop for ever
            block = blocks[number]
            for stage in block.stages:
                if isinstance(stage, HostCalls):
                    self._run_on_host(stage, live, state)
                    continue
                try:
                    self._run_on_device(stage, live, state, output_ids, targets)
                except BeyondDeviceError as beyond:
                    beyond.state_written = written
                    raise
                written = written or bool(stage.updates)
            jumps = block.condition is not None and not self._truth(block.condition, live, state)
            number = block.target if jumps and block.target is not None else number + 1
        results = tuple(self.output(i, live, state) for i in output_ids)
        if targets:
            check_target_shapes(targets, live)
        if live.unsaved:
            sent = state.commit({v: live.arrays[v] for v in sorted(live.unsaved)})
            observer.moved(sent, 0)
        for (_, array, _), result in zip(targets, results, strict=False):
            np.copyto(array, result)
        observer.phase("")
        return results

    def only_stage(self) -> PlanSegment | None:
        """Return the segment that is the whole method, or None if there are several stages."""
        blocks = self.plan.flow.blocks
        stages = blocks[0].stages
        if len(blocks) == 1 and len(stages) == 1 and isinstance(stages[0], PlanSegment) and blocks[0].condition is None:
            return stages[0]
        return None

    def prepare(self, segment: PlanSegment, live: CallValues, state: MethodState) -> tuple[Schedule, dict[int, int]]:
        """Return the schedule of a segment and its live integers. The dims of its results are then in `live`."""
        for value_id in segment.host_reads:
            live.arrays[value_id] = self._host_array(value_id, live, state)
        observer = self.observer
        observer.phase("lower")
        schedule, slots = self.scheduler.prepare(segment, live)
        observer.prepared(schedule, live)
        observer.phase("convert inputs")
        return schedule, slots

    def output(self, value_id: int, live: CallValues, state: MethodState) -> Any:
        if isinstance(self._graph.values[value_id], TensorSpec):
            array = self._host_array(value_id, live, state)
            # A copy if it is the caller's memory, or the state's, also through a view that a kernel returned.
            owned = array.flags.owndata and value_id not in self._graph.inputs and value_id not in self.plan.host_state
            return array if owned else array.copy()
        return self._scalar(value_id, live)

    def _run_on_device(
        self,
        segment: PlanSegment,
        live: CallValues,
        state: MethodState,
        outputs: Container[int],
        targets: Sequence[OutputTarget] = (),
    ) -> None:
        session, converter = state.session, self.converter
        assert session is not None
        schedule, slots = self.prepare(segment, live, state)
        if targets:  # before anything changes
            check_target_shapes(targets, live)
        reads = converter.reads(segment, live, outputs)
        uploads = converter.uploads(segment, live)
        if live.unsaved:  # the submit may read or overwrite it
            uploads += state.for_device({v: live.arrays[v] for v in sorted(live.unsaved)})
        (data,) = session.run(Submission(schedule, [slots], uploads, reads), self.observer)
        self.observer.phase("convert outputs")
        live.unsaved.intersection_update(self.plan.host_state)
        for value_id in segment.updates:  # the host's copies are outdated
            live.arrays.pop(value_id, None)
        converter.collect_outputs(live, reads, data)

    def _run_on_host(self, stage: HostCalls, live: CallValues, state: MethodState) -> None:
        graph = self._graph
        self.observer.phase("CPU kernels")
        for index in stage.steps:
            call = graph.steps[index]
            assert isinstance(call, Call)
            needed = [v for v in graph.flatten(call.args) if isinstance(graph.values[v], TensorSpec)]
            tensors = {v: self._host_array(v, live, state) for v in needed}
            in_place = mutated_values(call, graph)
            tensors.update({v: tensors[v].copy() for v in in_place})  # arrays may belong to the caller or a fork
            results = self._kernels.run(call, graph, tensors, live.scalars)
            for value_id, array in ({v: tensors[v] for v in in_place} | results).items():
                self._store_result(value_id, array, call, live)

    def _store_result(self, value_id: int, array: Array, call: Call, live: CallValues) -> None:
        """Store a value that a CPU kernel has computed or changed."""
        is_state = value_id in self.plan.flow.state
        _check_dims_of_result(array, self._graph.tensor(value_id), call, value_id, is_state)
        live.arrays[value_id], live.dims[value_id] = array, array.shape
        if is_state:
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
            raise GraphError(f"value {value_id} {spec} is read before it is written", code="read_before_write")
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
        if number is None:  # the jumps skipped its call
            raise GraphError(f"value {value_id} is read before it is written", code="read_before_write")
        return bool(number) if isinstance(value, SymBool) else number


def _check_dims_of_result(array: Array, spec: TensorSpec, call: Call, value_id: int, is_state: bool) -> None:
    """Check the shape of a result. State has one shape; other values may be smaller than their bound."""
    bound = array.ndim == len(spec.dims) and all(a <= b for a, b in zip(array.shape, spec.dims, strict=True))
    if not bound or (is_state and array.shape != spec.dims):
        raise GraphError(
            f"{call.name} ({call.origin}): value {value_id} has the shape {list(array.shape)}, "
            f"outside its bound {list(spec.dims)}",
            code="exceeds_bound",
        )


def lower_shapes(executor: Executor, state: MethodState, dims: Sequence[Sequence[int]]) -> None:
    """Lower a call at these shapes without running it, for a plan that is about to be saved."""
    stage, graph = executor.only_stage(), executor.plan.graph
    if stage is None:
        raise InputError(
            f"{graph.name} needs several submits", code="several_submits", hint="Call it at the shapes to save."
        )
    if len(dims) != len(graph.inputs):
        inputs = ", ".join(map(str, executor.converter.inputs))
        raise InputError(
            argument="shapes",
            expected=f"the shapes of {len(graph.inputs)} inputs of {graph.name} ({inputs})",
            got=f"{len(dims)} shapes",
            code="input_count",
        )
    try:
        args = [zeros_like_input(graph.values[i], tuple(sizes)) for i, sizes in zip(graph.inputs, dims, strict=True)]
    except (MemoryError, ValueError) as error:
        raise InputError(f"shapes: {dims!r:.200} cannot be allocated: {error}", code="shape") from error
    with contextlib.suppress(GuardError):  # of zeros; the schedule is stored before
        executor.prepare(stage, executor.converter.bind_inputs(args), state)
