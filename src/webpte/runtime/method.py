"""A method you can call."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..budgets import spend
from ..device import Counters, Gpu, Session, Weights
from ..errors import ClosedError, DeviceError, Error, GraphError, InputError, RangeError
from ..graph import Bool, Call, Double, Graph, Int, Null, String, SymBool, SymFloat, SymInt, TensorSpec
from ..lowering import mutated_values, stored_bytes
from ..plan import HostCalls, Live, Planner, Schedule, Scheduler, Segment, save_plan
from ..progress import OnProgress, ignore
from ..wgsl import Caps
from .arguments import ArgumentInfo, describe, number_of, zeros_for
from .borders import Array, at_position, check_dims, from_device, to_array, to_device
from .executor import Executor
from .kernels import CpuKernels
from .method_state import MethodState
from .preparing import prepare_for
from .process import Process
from .shared_state import SharedState, shared_buffers
from .state import PathLike, read_state, write_state
from .steps import run_steps


class Method:
    """A loaded method: call it with arrays, get arrays back. State such as a KV cache persists between calls."""

    recoveries: int
    """How often a lost device took the state, which then began anew: see `Program.recover`."""

    def __init__(
        self,
        scheduler: Scheduler,
        gpu: Gpu | None,
        weights: Weights | None,
        kernels: CpuKernels,
        fingerprint: Callable[[], str] = str,
        progress: OnProgress = ignore,
        parent: Method | None = None,
        shared: SharedState | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.plan = plan = scheduler.plan
        self.recoveries = 0
        self._graph: Graph = plan.graph
        self._kernels = kernels
        self._fingerprint = fingerprint
        self._process = Process(f"method {plan.graph.name}")
        self._closed = False
        self._executor: Executor = Executor(plan) if parent is None else parent._executor
        self._is_fork = parent is not None
        # Forks of forks too, whoever lives longer; one that nobody holds is gone, with its memory.
        self._forks: weakref.WeakSet[Method] = weakref.WeakSet() if parent is None else parent._forks
        # The scheduler serves one call at a time.
        self._lock: threading.RLock = parent._lock if parent else shared.lock if shared else threading.RLock()
        self._shared = shared  # none for a fork, which owns all its state
        self._copies = shared_buffers(plan) if shared else ()
        self._gpu: Gpu | None = None
        self._weights: Weights | None = None
        self._session: Session | None = None
        self._state: MethodState
        if gpu is not None and weights is not None:
            self._start(gpu, weights, progress, filled=parent is None)  # a fork takes over its parent's state
        else:  # nothing runs on a device
            self._state = MethodState(plan, None)

    def _start(self, gpu: Gpu, weights: Weights, progress: OnProgress, *, filled: bool = True) -> None:
        """Take memory of a device; state begins as the file says if it is `filled`."""
        self._session = self._executor.open(gpu, weights, progress, filled=filled)
        self._state = MethodState(self.plan, self._session)
        self._gpu, self._weights = gpu, weights
        if not self._is_fork:  # whose bind groups are made when it first runs: many forks never do, or at one shape
            self._warm_up()

    @property
    def name(self) -> str:
        return self._graph.name

    @property
    def inputs(self) -> tuple[ArgumentInfo, ...]:
        return tuple(describe(self._graph, i, self.plan.dynamic_dims) for i in self._graph.inputs)

    @property
    def outputs(self) -> tuple[ArgumentInfo, ...]:
        return tuple(describe(self._graph, i, self.plan.dynamic_dims) for i in self._graph.outputs)

    @property
    def counters(self) -> Counters:
        """What was done on the device this method runs on, by all its users together."""
        return self._gpu.counters if self._gpu is not None else Counters()

    @property
    def adapter(self) -> str:
        """The name of what this method runs on."""
        return self._gpu.caps.adapter if self._gpu is not None else Caps().adapter

    @property
    def planner(self) -> Planner:
        """What makes schedules for new shapes."""
        if not isinstance(self.scheduler, Planner):
            raise InputError(f"{self.name} runs from the schedules it was saved with: there is no graph to plan from")
        return self.scheduler

    @property
    def lowerings(self) -> int:
        """How many lowerings have run so far, at build and in calls."""
        return self.scheduler.runs if isinstance(self.scheduler, Planner) else 0

    def __call__(self, *args: Any) -> Any:
        """Run the method. One output is returned as it is, several as a tuple."""
        outputs = self.run(args)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, args: Sequence[Any], outputs: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Run the method; always a tuple. With `outputs`, only those positions are read back and returned."""
        wanted = self._graph.outputs if outputs is None else self._wanted(outputs)
        with self.exclusive():
            self._make_ready()
            live = self._enter(args)
            number = 0
            blocks = self.plan.layout.blocks
            done = 0
            while number < len(blocks):
                done += 1
                spend("blocks run", done, self.name)  # a file may jump back for ever
                block = blocks[number]
                for stage in block.stages:
                    if isinstance(stage, HostCalls):
                        self._run_on_host(stage, live)
                    else:
                        self._run_on_device(stage, live, wanted)
                jumps = block.condition is not None and not self._truth(block.condition, live)
                number = block.target if jumps and block.target is not None else number + 1
            results = tuple(self._output(i, live) for i in wanted)
            if live.unsaved:
                self._state.keep({v: live.arrays[v] for v in sorted(live.unsaved)})
            return results

    def run_steps(
        self, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """Run the method several times, in one submit where that is possible: the results of `run` for each.

        `feed` maps an output to the input it becomes in the next step, where only the shape of what `steps` holds
        counts. So a generated token never visits the host on its way back into the model. Inputs that are not fed
        are those of each step. Steps that cannot share a submit run one by one, with the same results.
        """
        with self.exclusive():
            self._make_ready()
            return run_steps(self, steps, feed, outputs)

    def reset(self) -> None:
        """Put the method's state (KV caches, mutable buffers) back to what the file says."""
        with self.exclusive():
            self._make_ready()
            self._state.reset()

    def fork(self) -> Method:
        """The same method with a state of its own, equal to this one's now. Weights and plan are shared."""
        with self.exclusive():
            self._make_ready()
            other = Method(self.scheduler, self._gpu, self._weights, self._kernels, self._fingerprint, parent=self)
            other._state.copy(self._state)
            self._forks.add(other)
            return other

    def snapshot(self, path: PathLike, note: bytes = b"") -> None:
        """Write the state to a file that `restore` of the same program accepts, in this process or another."""
        with self.exclusive():
            self._make_ready()
            state = self._state.read()
        write_state(path, self._fingerprint(), state, note)

    def restore(self, path: PathLike, accept: Callable[[bytes], None] = lambda note: None) -> bytes:
        """Take the state from a file that `snapshot` wrote, and give back its note. Another program's is refused.

        The file is checked whole before the state changes. `accept` is then given the note, and may refuse by raising.
        """
        with self.exclusive():
            self._make_ready()
            state, note = read_state(path, self._fingerprint(), self._state.sizes())
            accept(note)
            self._state.write(state)
            return note

    def save(self, folder: PathLike, shapes: Iterable[Sequence[Sequence[int]]] = ()) -> None:
        """Write the plan into a folder, with the schedules for all shapes called so far: `webpte.open_plan` runs it.

        `shapes` names further ones, each by the dims of every input (`()` for a number); a method of several submits
        must have been called. Shaders are those chosen for this device; constants stay in the program's files.
        """
        with self.exclusive():
            self._check_open()
            for dims in shapes:
                prepare_for(self, dims)
            save_plan(self.scheduler, folder, self._fingerprint())

    def exclusive(self) -> threading.RLock:
        """A lock to hold over several calls that belong together. While it is held no fork can be called either."""
        self._process.check()
        return self._lock

    def _make_ready(self) -> None:
        """Before whatever reads or writes the state."""
        self._check_open()
        if self._shared is not None and self._copies:
            self._shared.bring(self._state, self._copies)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"method {self.name} was closed")
        if self._gpu is not None and self._gpu.lost is not None:
            raise self._gpu.loss()

    def close(self) -> None:
        """Release the GPU memory of the method, whose program's weights stay, and of all forks that came from it.

        A fork closes alone. In a process forked off nothing happens: the memory is the parent's.
        """
        if not self._process.here:
            return
        with self._lock:
            for method in (self,) if self._is_fork else (self, *self._forks):
                method._closed = True
                method._drop_session()
            if not self._is_fork:
                self._executor.close()

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if self._shared is not None:
            self._shared.forget(self._state)
        if session is not None:
            session.close()

    def recover(self, gpu: Gpu, weights: Weights, progress: OnProgress) -> None:
        """For Program.recover: those of this method and its forks that have let go begin again on another device."""
        with self._lock:
            for method in self.stranded():
                if method._session is None:
                    method._start(gpu, weights, progress)

    def let_go(self) -> None:
        """Drop what this method and its forks had on a device that is gone, so that it does not count as taken."""
        with self._lock:
            for method in self.stranded():
                method.recoveries += 1
                method._drop_session()
            self._executor.let_go()

    def stranded(self) -> list[Method]:
        """Of this method and its forks, those whose device is gone."""
        with self._lock:
            return [m for m in (self, *self._forks) if not m._closed and m._gpu is not None and not m._gpu.alive()]

    def _warm_up(self) -> None:
        """Prepare for the smallest and the largest inputs, so that the first call costs what the tenth does."""
        stage = self._only_stage()
        if stage is None or self._session is None:
            return
        for bound in self.plan.extents():
            args = [zeros_for(self._graph.values[i], bound.get(i)) for i in self._graph.inputs]
            try:
                self._session.warm_up(self._prepare(stage, self._enter(args))[0])
            except DeviceError:
                raise
            except Error:  # zeros need not be a valid input
                continue

    # -- one call --------------------------------------------------------------------------------------------------

    def _wanted(self, outputs: Sequence[int]) -> tuple[int, ...]:
        return tuple(at_position(self._graph.outputs, p, f"outputs of {self.name}") for p in outputs)

    def _enter(self, args: Any) -> Live:
        graph = self._graph
        if len(args) != len(graph.inputs):
            wanted = ", ".join(str(i) for i in self.inputs)
            raise InputError(f"{self.name} takes {len(graph.inputs)} inputs ({wanted}); {len(args)} were given")
        live = Live({}, {}, {})
        for position, (value_id, arg) in enumerate(zip(graph.inputs, args, strict=True)):
            where = f"input {position} of {self.name}"
            spec = graph.values[value_id]
            if isinstance(spec, TensorSpec):
                array = to_array(arg, spec, where)
                check_dims(array.shape, spec, where)
                live.arrays[value_id], live.dims[value_id] = array, array.shape
            elif isinstance(spec, (SymInt, SymFloat, SymBool)):
                live.scalars[value_id] = number_of(arg, spec, where)
        return live

    def _run_on_device(self, segment: Segment, live: Live, outputs: Container[int]) -> None:
        session = self._session
        assert session is not None
        schedule, slots = self._prepare(segment, live)
        reads = self._reads(segment, live, outputs)
        uploads = self._uploads(segment, live)
        if live.unsaved:  # the submit may read it, or write over it
            uploads += self._state.for_device({v: live.arrays[v] for v in sorted(live.unsaved)})
        (data,) = session.run(schedule, [slots], uploads, reads)
        live.unsaved.intersection_update(self.plan.host_state)
        for value_id in segment.updates:  # what the host knew of them is of before
            live.arrays.pop(value_id, None)
        self._leave(live, reads, data)

    def _prepare(self, segment: Segment, live: Live) -> tuple[Schedule, dict[int, int]]:
        """The schedule of a segment and its live integers. From here on what the segment makes is known."""
        for value_id in segment.looks:
            live.arrays[value_id] = self._host_array(value_id, live)
        return self.scheduler.prepare(segment, live)

    def _only_stage(self) -> Segment | None:
        """The segment that is the whole method, if there is one."""
        blocks = self.plan.layout.blocks
        stages = blocks[0].stages
        if len(blocks) == 1 and len(stages) == 1 and isinstance(stages[0], Segment) and blocks[0].condition is None:
            return stages[0]
        return None

    def _uploads(self, segment: Segment, live: Live, fed: Container[int] = ()) -> list[tuple[int, Array]]:
        """What a segment needs from the host, but for what is `fed`: (tensor, data as the device stores it)."""
        return [
            (v, to_device(live.arrays[v], self._graph.tensor(v), functools.partial(self._beyond, v)))
            for v in self.plan.uploads[segment]
            if v not in fed
        ]

    def _beyond(self, value_id: int, reason: str) -> Error:
        """What does not fit the device is the caller's fault, or a kernel's on the CPU."""
        if value_id in self._graph.inputs:
            return InputError(f"input {self._graph.inputs.index(value_id)} of {self.name} {reason}")
        makers = [f", made by {call.name} ({call.origin})," for call in self._graph.calls if value_id in call.outs]
        return RangeError(f"value {value_id}{''.join(makers[:1])} {reason}")

    def _reads(self, segment: Segment, live: Live, outputs: Container[int]) -> list[tuple[int, int]]:
        """What the host wants of a segment: (tensor, bytes)."""
        hosted = self.plan.layout.hosted
        wanted = [v for v in segment.reads if v in hosted or v in outputs]
        return [(v, stored_bytes(self._graph.tensor(v).dtype, live.dims[v])) for v in wanted]

    def _leave(self, live: Live, reads: Sequence[tuple[int, int]], data: Mapping[int, memoryview]) -> None:
        """Take over what a segment has made."""
        for value_id, _ in reads:
            spec = self._graph.tensor(value_id)
            array = from_device(data.get(value_id, memoryview(b"")), live.dims[value_id], spec)
            if value_id in self.plan.checks and array.any():
                raise RangeError(self.plan.checks[value_id])
            live.arrays[value_id] = array

    def _run_on_host(self, stage: HostCalls, live: Live) -> None:
        for index in stage.steps:
            call = self._graph.steps[index]
            assert isinstance(call, Call)
            needed = self._graph.flatten(call.args)
            tensors = {v: self._host_array(v, live) for v in needed if isinstance(self._graph.values[v], TensorSpec)}
            in_place = mutated_values(call, self._graph)
            tensors.update({v: tensors[v].copy() for v in in_place})  # arrays may be the caller's, or a fork's too
            results = self._kernels.run(call, self._graph, tensors, live.scalars)
            for value_id, array in ({v: tensors[v] for v in in_place} | results).items():
                self._take_over(value_id, array, call, live)

    def _take_over(self, value_id: int, array: Array, call: Call, live: Live) -> None:
        """What a CPU kernel has made or changed."""
        kept = value_id in self.plan.layout.state
        check_dims_of_result(array, self._graph.tensor(value_id), call, value_id, kept)
        live.arrays[value_id], live.dims[value_id] = array, array.shape
        if kept:
            live.unsaved.add(value_id)

    def _host_array(self, value_id: int, live: Live) -> Array:
        array = live.arrays.get(value_id)
        if array is not None:
            return array
        if value_id in self.plan.layout.state:
            live.arrays[value_id] = self._state.array(value_id)
            return live.arrays[value_id]
        spec = self._graph.tensor(value_id)
        if spec.constant is None:
            raise GraphError(f"value {value_id} {spec} is read before anything wrote it")
        return spec.constant.array(spec.dims)

    def _truth(self, value_id: int, live: Live) -> bool:
        if isinstance(self._graph.values[value_id], TensorSpec):
            return bool(np.all(self._host_array(value_id, live)))
        value = self._scalar(value_id, live)
        return bool(value)

    def _scalar(self, value_id: int, live: Live) -> Any:
        value = self._graph.values[value_id]
        if isinstance(value, (Int, Double, Bool, String)):
            return value.value
        if isinstance(value, Null):
            return None
        number = live.scalars.get(value_id)
        if number is None:  # on the way that the jumps took
            raise GraphError(f"value {value_id} is read before anything wrote it")
        return bool(number) if isinstance(value, SymBool) else number

    def _output(self, value_id: int, live: Live) -> Any:
        if isinstance(self._graph.values[value_id], TensorSpec):
            array = self._host_array(value_id, live)
            # Not the caller's memory, nor the state's, be it by way of a kernel that made a view of it.
            theirs = array.flags.owndata and value_id not in self._graph.inputs and value_id not in self.plan.host_state
            return array if theirs else array.copy()
        return self._scalar(value_id, live)


def check_dims_of_result(array: Array, spec: TensorSpec, call: Call, value_id: int, kept: bool) -> None:
    """State that is kept has one shape, always; anything else may be smaller than its bound."""
    bound = array.ndim == len(spec.dims) and all(a <= b for a, b in zip(array.shape, spec.dims, strict=True))
    if not bound or (kept and array.shape != spec.dims):
        raise GraphError(
            f"{call.name} ({call.origin}) gave value {value_id} the shape {list(array.shape)}, "
            f"outside its bound {list(spec.dims)}"
        )
