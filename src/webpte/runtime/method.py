"""Methods: the objects that callers run."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

import numpy as np

from ..container.flat import quoted_name
from ..device import (
    Counters,
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
from ..typing import PathLike
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
from .checks import OneProcess, ProcessGuard, check_callable, check_list, check_path, check_shapes, wrong_argument
from .executor import Executor, lower_shapes
from .kernels import CpuKernels
from .state import MethodState, StateShare, read_state, write_state
from .steps import StepRunner, StepsInFlight
from .wide_calls import WideCalls

logger = logging.getLogger(__name__)
A = TypeVar("A", bound=np.ndarray[Any, Any])


class Method(OneProcess):
    """A loaded method: call it with arrays, get arrays back. State such as a KV cache persists between calls."""

    recoveries: int
    """How often the device was lost and the state was initialized again: see `Program.recover`."""

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
        self._scheduler = scheduler
        self.plan = scheduler.plan  #: how it runs
        plan = self.plan
        self.recoveries = 0
        self._kernels = kernels
        self._fingerprint = fingerprint
        self._process = ProcessGuard(f"method {plan.graph.name}")
        self._closed = False
        self._executor: Executor = Executor(scheduler, kernels, lazy=lazy) if parent is None else parent._executor
        self._calls: WideCalls = WideCalls(self._executor, kernels) if parent is None else parent._calls
        self._is_fork = parent is not None
        # Forks of forks too. A fork that is no longer referenced is collected, with its memory.
        self._forks: weakref.WeakSet[Method] = weakref.WeakSet() if parent is None else parent._forks
        # The executor serves one call at a time.
        self._lock: threading.RLock = parent._lock if parent else shared.whole.lock if shared else threading.RLock()
        self._step_runner: StepRunner = (
            parent._step_runner if parent else StepRunner(self._executor, self._calls.run, self._lock)
        )
        self._shared = shared  # None for a fork, which owns all its state
        self._gpu: Gpu | None = None
        self._weights: WeightBuffers | None = None
        self._session: Session | None = None
        self._state: MethodState
        started = time.perf_counter()
        if gpu is not None and weights is not None:
            self._start(gpu, weights, progress, filled=parent is None)  # a fork copies its parent's state
        else:  # nothing runs on a device
            self._state = MethodState(plan, None)
        if parent is None:
            _log_ready(plan, self.adapter, time.perf_counter() - started)

    def _start(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress, *, filled: bool = True) -> None:
        """Allocate memory on a device. `filled` state is initialized from the file."""
        self._session = self._executor.open(gpu, weights, progress, filled=filled)
        self._state = MethodState(self.plan, self._session)
        self._gpu, self._weights = gpu, weights
        if not self._is_fork:  # a fork creates its bind groups when it first runs: many never do, or at one shape
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
        """Return the counters of the device this method runs on, for all its users together."""
        return self._gpu.counters if self._gpu is not None else Counters()

    @property
    def adapter(self) -> str:
        """Return the name of the adapter this method runs on."""
        return self._gpu.caps.adapter if self._gpu is not None else Caps().adapter

    @property
    def planner(self) -> Planner:
        """Return the planner, which lowers the method for new shapes. A saved plan has none."""
        if not isinstance(self._scheduler, Planner):
            raise InputError(
                f"{self.name} runs from saved schedules: it has no graph to plan from",
                code="no_graph",
            )
        return self._scheduler

    @property
    def closed(self) -> bool:
        """Return whether the method was closed."""
        return self._closed

    @property
    def lowerings(self) -> int:
        """Return the number of lowerings that have run, at load and in calls."""
        return self._scheduler.runs if isinstance(self._scheduler, Planner) else 0

    def __call__(self, /, *args: Input, **named: Input) -> Value:
        """Run the method with inputs by position or by name. Return the output, or a tuple of several outputs."""
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
        """Run the method and return its outputs as a tuple. `args` are its inputs in order, or by name.

        `outputs` selects the outputs to read back and return, by position or by name. `into` are arrays of the same
        shapes and dtypes to write them into; they are returned. `strict=True` refuses a method that would run CPU
        kernels.
        """
        executor = self._executor
        if type(args) is not tuple and type(args) is not list:
            args = ordered_inputs(self.name, self.inputs, args)
        value_ids = self.plan.graph.outputs if outputs is None else executor.converter.output_ids(outputs)
        if strict is not False:
            check_strict(self.plan, strict)
        targets = () if into is None else output_targets(self.plan.graph, into, value_ids)
        with self._locked():
            self._make_ready()
            results = self._calls.run(self._state, args, value_ids, targets, strict=strict)
        return results if into is None else tuple(into)

    def run_steps(
        self, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        """Run the method once for each step, in one submit if possible, and return the results of each.

        `feed` maps an output to the input that it becomes in the next step; of that input only the shape in `steps`
        counts. So a generated token returns to the model without a copy to the host. Steps that cannot share a submit
        run one by one, with the same results.
        """
        return self.start_steps(steps, feed, outputs).results()

    def start_steps(
        self, steps: Sequence[Sequence[Any]], feed: Mapping[int, int], outputs: Sequence[int]
    ) -> StepsInFlight:
        """Start the steps of `run_steps`, and return an object whose `results()` waits for them."""
        if not isinstance(feed, Mapping):
            raise wrong_argument("feed", "a mapping of outputs to inputs, such as {0: 0}", feed)
        if type(steps) not in (list, tuple):
            steps = check_list(steps, "steps", "calls, each a list of inputs", "[[x], [y]]")
        if not {*map(type, steps)} <= {list, tuple}:
            steps = [ordered_inputs(self.name, self.inputs, args, "steps") for args in steps]
        with self._locked():
            self._make_ready()
            return self._step_runner.start(self._state, steps, feed, outputs)

    def follow_steps(self, before: StepsInFlight, steps: Sequence[Sequence[Any]]) -> StepsInFlight | None:
        """Start further steps after those in flight, whose feeds and outputs they have, and whose results they are fed.

        Nothing waits for the results of `before`. Return None if they are not on the device any more, or if the steps
        cannot share a submit: then start them with what `before` returns.
        """
        if not isinstance(before, StepsInFlight):
            raise wrong_argument("before", "what start_steps or follow_steps returned", before)
        steps = check_list(steps, "steps", "calls, each a list of inputs", "[[x], [y]]")
        with self._locked():
            self._make_ready()
            return self._step_runner.follow(self._state, before, steps)

    def reset(self) -> None:
        """Set the method's state (KV caches, mutable buffers) to its initial value in the file."""
        with self.exclusive() as state:
            state.reset()

    def fork(self) -> Method:
        """Return the same method with its own state, a copy of the current one. Weights and plan are shared."""
        with self._locked():
            self._make_ready()
            other = Method(self._scheduler, self._gpu, self._weights, self._kernels, self._fingerprint, parent=self)
            other._state.copy(self._state)
            self._forks.add(other)
            return other

    def snapshot(self, path: PathLike, note: bytes = b"") -> None:
        """Write the state to a file that `restore` of the same program accepts, in this process or another."""
        where = check_path(path, "path")
        if not isinstance(note, bytes):
            raise wrong_argument("note", "bytes to store with the state", note)
        with self.exclusive() as state:
            pieces = state.read()
        write_state(where, self._fingerprint(), pieces, note)

    def restore(self, path: PathLike, accept: Callable[[bytes], None] = lambda note: None) -> bytes:
        """Read the state from a file that `snapshot` wrote for the same program, and return its note.

        The whole file is checked before the state changes. `accept` is then called with the note, and may raise.
        """
        where = check_path(path, "path")
        check_callable(accept, "accept", "the note of the snapshot")
        with self.exclusive() as state:
            pieces, note = read_state(where, self._fingerprint(), state.sizes())
            accept(note)
            state.write(pieces)
            return note

    def fingerprint(self) -> str:
        """Return the hash of program, method and weights that a snapshot of this method carries."""
        return self._fingerprint()

    def save(self, folder: PathLike, shapes: Iterable[Sequence[Sequence[int]]] = ()) -> None:
        """Write the plan into a folder, with the schedules of the last 64 shapes called: `webpte.open_plan` runs it.

        `shapes` adds schedules, each by the dims of every input (`()` for a number). A method of several submits must
        have been called at its shapes instead. Shaders are those for this device; constants stay in the program's
        files.
        """
        from ..plan.plan_writer import save_plan  # few methods are saved

        where, named = check_path(folder, "folder"), check_shapes(shapes, "shapes")
        with self._locked():
            self._check_open()
            self._scheduler.make_room(len(named))
            for dims in named:
                lower_shapes(self._executor, self._state, dims)
            save_plan(self._scheduler, where, self._fingerprint())

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
    def exclusive(self) -> Iterator[MethodState]:
        """Hold the method over several calls: those of other threads, of forks too, wait. Yield its state."""
        with self._locked():
            self._make_ready()
            yield self._state

    def observed(self, observer: Observer) -> AbstractContextManager[None]:
        """Call the methods of an observer during the calls inside the context. Those of other threads wait."""
        if not isinstance(observer, Observer):
            raise wrong_argument("observer", "a webpte.device.Observer", observer)
        return self._observe(observer)

    @contextmanager
    def _observe(self, observer: Observer) -> Iterator[None]:
        executor = self._executor
        with self._locked():
            before, executor.observer = executor.observer, observer
            try:
                yield
            finally:
                executor.observer = before

    def _locked(self) -> threading.RLock:
        """Return the lock of the method and its forks. Raise ForkedError in a child process."""
        self._process.check()
        return self._lock

    def _make_ready(self) -> None:
        """Check that the method can be used, and fetch the latest shared state. Call it before using the state."""
        self._check_open()
        if self._shared is not None:
            self._shared.synchronize(self._state)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"method {self.name} is closed")
        if self._gpu is not None and self._gpu.lost is not None:
            raise self._gpu.loss_error()

    def close(self) -> None:
        """Release the GPU memory of the method and of its forks; the weights belong to the program.

        Closing a fork releases only its own. In a child of `os.fork()` nothing happens: the parent owns the memory.
        """
        if not self._process.is_current:
            return
        with self._lock:
            for method in (self,) if self._is_fork else (self, *self._forks):
                method._closed = True
                method._drop_session()
            if not self._is_fork:
                self._calls.close()
                self._executor.close()

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if self._shared is not None:
            self._shared.forget(self._state)
        if session is not None:
            session.close()

    def _recover(self, gpu: Gpu, weights: WeightBuffers, progress: OnProgress) -> None:
        """Allocate this method and its forks on another device if they were released."""
        with self._lock:
            for method in self._stranded():
                if method._session is None:
                    method._start(gpu, weights, progress)

    def _release_lost(self) -> None:
        """Release what this method and its forks had on a lost device, so that it does not count as allocated."""
        with self._lock:
            for method in self._stranded():
                method.recoveries += 1
                method._drop_session()
            self._calls.close()
            self._executor.release_lost()

    def _stranded(self) -> list[Method]:
        """Return those of this method and its forks whose device is lost."""
        with self._lock:
            return [m for m in (self, *self._forks) if not m._closed and m._gpu is not None and not m._gpu.alive()]


def recover_methods(
    methods: Iterable[Method], device_for: Callable[[Plan], tuple[Gpu, WeightBuffers]], progress: OnProgress
) -> bool:
    """Allocate the methods and forks whose device was lost on others. Return whether there were any."""
    stranded = [method for method in methods if method._stranded()]
    for method in stranded:
        method._release_lost()
    for method in stranded:
        method._recover(*device_for(method.plan), progress)
    return bool(stranded)


def _log_ready(plan: Plan, adapter: str, seconds: float) -> None:
    """Log that a method can be called, unless it only returns a constant, such as get_vocab_size."""
    if not plan.graph.steps or not logger.isEnabledFor(logging.INFO):
        return
    need = memory_needs(plan)
    kinds = ", ".join(f"{kind} {nbytes}" for kind, nbytes in need.kinds.items() if nbytes)
    logger.info(
        "%(name)s is ready on %(adapter)s: %(calls)d calls in %(submits)d submits, %(cpu)d of them on the CPU, "
        "%(kernels)d kernels, %(bytes)d bytes (%(kinds)s), in %(seconds).3f s",
        {
            "name": quoted_name(plan.graph.name),
            "adapter": adapter,
            "calls": len(plan.graph.steps),
            "submits": len(plan.flow.segments),
            "cpu": sum(plan.cpu_calls.values()),
            "kernels": len(plan.kernels),
            "bytes": need.total,
            "kinds": kinds,
            "seconds": seconds,
        },
    )
