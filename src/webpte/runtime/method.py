"""A method you can call."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import numpy as np

from ..container.flat import quoted_name
from ..device import (
    Counters,
    Extent,
    Gpu,
    Observer,
    Session,
    WeightBuffers,
    memory_line,
    memory_needs,
    state_memory_needs,
)
from ..errors import ClosedError, InputError
from ..plan import Plan, Planner, ScheduleStore
from ..progress import OnProgress, ignore
from ..text import lines, sanitize_line, table
from ..wgsl import Caps
from .arguments import (
    ArgumentInfo,
    Input,
    Value,
    arguments,
    check_strict,
    merge_named_inputs,
    ordered_inputs,
    output_targets,
)
from .checks import ProcessGuard, check_callable, check_list, check_path, check_shapes, described
from .executor import Executor, StepRunner, lower_shapes
from .kernels import CpuKernels
from .state import MethodState, PathLike, StateShare, read_state, write_state

logger = logging.getLogger("webpte")
A = TypeVar("A", bound=np.ndarray[Any, Any])


class Method:
    """A loaded method: call it with arrays, get arrays back. State such as a KV cache persists between calls."""

    recoveries: int
    """How often a lost device took the state, which then began anew: see `Program.recover`."""

    def __init__(
        self,
        scheduler: ScheduleStore,
        gpu: Gpu | None,
        weights: WeightBuffers | None,
        kernels: CpuKernels,
        fingerprint: Callable[[], str] = str,
        progress: OnProgress = ignore,
        parent: Method | None = None,
        shared: StateShare | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.plan = plan = scheduler.plan
        self.recoveries = 0
        self._kernels = kernels
        self._fingerprint = fingerprint
        self._process = ProcessGuard(f"method {plan.graph.name}")
        self._closed = False
        self._executor: Executor = Executor(scheduler, kernels, lazy=lazy) if parent is None else parent._executor
        self._step_runner: StepRunner = StepRunner(self._executor) if parent is None else parent._step_runner
        self._is_fork = parent is not None
        # Forks of forks too, whoever lives longer; one that nobody holds is gone, with its memory.
        self._forks: weakref.WeakSet[Method] = weakref.WeakSet() if parent is None else parent._forks
        # The executor serves one call at a time.
        self._lock: threading.RLock = parent._lock if parent else shared.whole.lock if shared else threading.RLock()
        self._shared = shared  # none for a fork, which owns all its state
        self._gpu: Gpu | None = None
        self._weights: WeightBuffers | None = None
        self._session: Session | None = None
        self._state: MethodState
        started = time.perf_counter()
        if gpu is not None and weights is not None:
            self._start(gpu, weights, progress, filled=parent is None)  # a fork takes over its parent's state
        else:  # nothing runs on a device
            self._state = MethodState(plan, None)
        if parent is None:
            _log_ready(plan, self.adapter, time.perf_counter() - started)

    def _start(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress, *, filled: bool = True) -> None:
        """Take memory of a device; state begins as the file says if it is `filled`."""
        self._session = self._executor.open(gpu, weights, progress, filled=filled)
        self._state = MethodState(self.plan, self._session)
        self._gpu, self._weights = gpu, weights
        if not self._is_fork:  # whose bind groups are made when it first runs: many forks never do, or at one shape
            self._executor.warm_up(self._state)

    @property
    def name(self) -> str:
        return self.plan.graph.name

    @property
    def inputs(self) -> tuple[ArgumentInfo, ...]:
        return self._executor.converter.inputs

    @property
    def outputs(self) -> tuple[ArgumentInfo, ...]:
        return self._executor.converter.outputs

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
            raise InputError(
                f"{self.name} runs from the schedules it was saved with: there is no graph to plan from",
                code="no_graph",
            )
        return self.scheduler

    @property
    def lowerings(self) -> int:
        """How many lowerings have run so far, at build and in calls."""
        return self.scheduler.runs if isinstance(self.scheduler, Planner) else 0

    def __call__(self, /, *args: Input, **named: Input) -> Value:
        """Run the method, its inputs by position or by name. One output is returned as it is, several as a tuple."""
        outputs = self.run(merge_named_inputs(self.name, self.inputs, args, named) if named else args)
        return outputs[0] if len(outputs) == 1 else outputs

    @overload
    def run(
        self,
        args: Sequence[Input] | Mapping[str, Input],
        *,
        outputs: Sequence[int | str] | None = None,
        into: None = None,
        strict: bool = False,
    ) -> tuple[Value, ...]: ...

    @overload
    def run(
        self,
        args: Sequence[Input] | Mapping[str, Input],
        *,
        outputs: Sequence[int | str] | None = None,
        into: Sequence[A],
        strict: bool = False,
    ) -> tuple[A, ...]: ...

    def run(
        self,
        args: Sequence[Input] | Mapping[str, Input],
        *,
        outputs: Sequence[int | str] | None = None,
        into: Sequence[Any] | None = None,
        strict: bool = False,
    ) -> tuple[Any, ...]:
        """Run the method; always a tuple. `args` are its inputs in their order, or by name.

        With `outputs`, only those are read back and returned, by position or by name. `into` are arrays to write them
        into, of their shapes and dtypes; they are what is returned. `strict=True` refuses a method of which some part
        would run on the CPU.
        """
        executor = self._executor
        if type(args) is not tuple and type(args) is not list:
            args = ordered_inputs(self.name, self.inputs, args)
        wanted = self.plan.graph.outputs if outputs is None else executor.converter.output_ids(outputs)
        if strict is not False:
            check_strict(self.plan, strict)
        targets = () if into is None else output_targets(self.plan.graph, into, wanted)
        with self.exclusive():
            self._make_ready()
            results = executor.run(self._state, args, wanted, targets)
        return results if into is None else tuple(into)

    def run_steps(
        self, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """Run the method several times, in one submit where that is possible: the results of `run` for each.

        `feed` maps an output to the input it becomes in the next step, where only the shape of what `steps` holds
        counts. So a generated token never visits the host on its way back into the model. Inputs that are not fed
        are those of each step. Steps that cannot share a submit run one by one, with the same results.
        """
        if not isinstance(feed, Mapping):
            raise InputError(f"feed maps outputs to inputs, such as {{0: 0}}, not {described(feed)}")
        if type(steps) not in (list, tuple):
            steps = check_list(steps, "steps", "calls, each a list of inputs", "[[x], [y]]")
        if not {*map(type, steps)} <= {list, tuple}:
            steps = [ordered_inputs(self.name, self.inputs, args, "steps") for args in steps]
        with self.exclusive():
            self._make_ready()
            return self._step_runner.run(self._state, steps, feed, outputs)

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
        where = check_path(path, "path")
        if not isinstance(note, bytes):
            raise InputError(f"note is bytes to keep with the state, not {described(note)}")
        write_state(where, self._fingerprint(), self.read_state(), note)

    def restore(self, path: PathLike, accept: Callable[[bytes], None] = lambda note: None) -> bytes:
        """Take the state from a file that `snapshot` wrote, and give back its note. Another program's is refused.

        The file is checked whole before the state changes. `accept` is then given the note, and may refuse by raising.
        """
        where = check_path(path, "path")
        check_callable(accept, "accept", "the note of the snapshot")
        with self.exclusive():
            self._make_ready()
            state, note = read_state(where, self._fingerprint(), self._state.sizes())
            accept(note)
            self._state.write(state)
            return note

    def copy_extents(self, source: Method, extents: Sequence[Extent]) -> None:
        """Take over parts of the state on the device, of this method or of another with the same pieces of it."""
        with source.exclusive(), self.exclusive():
            self._make_ready()
            self._device_state().copy_extents(source._device_state(), extents)

    def read_extents(self, extents: Sequence[Extent]) -> list[memoryview]:
        """Parts of the state on the device."""
        with self.exclusive():
            self._make_ready()
            return self._device_state().read_extents(extents)

    def write_extents(self, extents: Sequence[Extent], pieces: Sequence[memoryview]) -> None:
        """Put what `read_extents` gave into parts of the state."""
        with self.exclusive():
            self._make_ready()
            self._device_state().write_extents(extents, pieces)

    def _device_state(self) -> Session:
        if self._session is None:
            raise InputError(f"{self.name} keeps nothing on a device")
        return self._session

    def fingerprint(self) -> str:
        """What a snapshot of this method's state is known by: program, method and weights."""
        return self._fingerprint()

    def state_sizes(self) -> list[int]:
        """Bytes of each piece of the state."""
        with self.exclusive():
            self._make_ready()
            return self._state.sizes()

    def read_state(self) -> list[memoryview]:
        """The state, piece by piece: what `write_state` takes."""
        with self.exclusive():
            self._make_ready()
            return self._state.read()

    def write_state(self, pieces: Sequence[memoryview]) -> None:
        with self.exclusive():
            self._make_ready()
            self._state.write(pieces)

    def save(self, folder: PathLike, shapes: Iterable[Sequence[Sequence[int]]] = ()) -> None:
        """Write the plan into a folder, with the schedules of the last 64 shapes called: `webpte.open_plan` runs it.

        `shapes` names any number of further ones, each by the dims of every input (`()` for a number); a method of
        several submits must have been called. Shaders are those chosen for this device; constants stay in the
        program's files.
        """
        from ..plan.plan_writer import save_plan  # few methods are

        where, named = check_path(folder, "folder"), check_shapes(shapes, "shapes")
        with self.exclusive():
            self._check_open()
            self.scheduler.make_room(len(named))
            for dims in named:
                lower_shapes(self._executor, self._state, dims)
            save_plan(self.scheduler, where, self._fingerprint())

    def __repr__(self) -> str:
        return lines(self._title(), self._rows())

    def _repr_html_(self) -> str:
        return table(self._title(), self._rows())

    def _title(self) -> str:
        return (
            f"{'Fork' if self._is_fork else 'Method'} {sanitize_line(self.name)}{' (closed)' if self._closed else ''}"
        )

    def _rows(self) -> dict[str, str]:
        taken = state_memory_needs(self.plan, filled=False) if self._is_fork else memory_needs(self.plan)
        return {
            "inputs": arguments(self.inputs) or "none",
            "outputs": arguments(self.outputs) or "none",
            "memory": memory_line(taken) if self._session is not None else "none",
            "runs on": self.adapter if self._gpu is not None else "the CPU",
        }

    @contextmanager
    def observed(self, observer: Observer) -> Iterator[None]:
        """Let an observer see the calls that are made inside. All others, of forks too, wait for their end."""
        executor = self._executor
        with self.exclusive():
            before, executor.observer = executor.observer, observer
            try:
                yield
            finally:
                executor.observer = before

    def exclusive(self) -> threading.RLock:
        """A lock to hold over several calls that belong together. While it is held no fork can be called either."""
        self._process.check()
        return self._lock

    def _make_ready(self) -> None:
        """Before whatever reads or writes the state."""
        self._check_open()
        if self._shared is not None:
            self._shared.bring(self._state)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"method {self.name} was closed")
        if self._gpu is not None and self._gpu.lost is not None:
            raise self._gpu.loss_error()

    def close(self) -> None:
        """Release the GPU memory of the method, whose program's weights stay, and of all forks that came from it.

        A fork closes alone. In a process forked off nothing happens: the memory is the parent's.
        """
        if not self._process.is_current:
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

    def recover(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress) -> None:
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


def _log_ready(plan: Plan, adapter: str, seconds: float) -> None:
    """A method can be called. One that only holds a number, such as get_vocab_size, is not worth a line."""
    if not plan.graph.steps or not logger.isEnabledFor(logging.INFO):
        return
    need = memory_needs(plan)
    kinds = ", ".join(f"{kind} {nbytes}" for kind, nbytes in need.kinds.items() if nbytes)
    logger.info(
        "%s is ready on %s: %d calls in %d submits, %d of them on the CPU, %d kernels, %d bytes (%s), in %.3f s",
        quoted_name(plan.graph.name),
        adapter,
        len(plan.graph.steps),
        len(plan.flow.segments),
        sum(plan.cpu_calls.values()),
        len(plan.kernels),
        need.total,
        kinds,
        seconds,
    )
