"""Programs, and what programs and bundles have in common: devices, closing, and recovery after a loss."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, overload

from ..container import MappedFile, MethodPlan, ProgramFile, Span, TensorFile
from ..container.flat import quoted_name
from ..deferred import show_in_notebook
from ..device import (
    Gpu,
    Memory,
    MemoryNeeds,
    WeightBuffers,
    acquire,
    adapter_caps,
    exact_products,
    memory_needs,
    program_memory,
)
from ..errors import ClosedError, Error, InputError
from ..fusion import PASSES
from ..graph import Graph, TensorSpec, build_graph
from ..lowering import mutated_positions
from ..plan import Plan, Planner, draft, make_planner
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..text import sanitize_line, size, table
from ..wgsl import Caps
from . import arguments
from .checks import (
    OneProcess,
    ProcessGuard,
    check_bool,
    check_caps,
    check_method_name,
    check_optional_callable,
    check_seconds,
)
from .kernels import CpuKernels
from .method import Method, recover_methods
from .state import SharedState
from .tuning import TuningResult, best_variants, read_tuning, tune_plan, write_tuning


class DeviceResources(OneProcess):
    """The methods that share files, and the weights on each device they run on.

    `memory` limits the bytes that all programs of this process allocate on a device; see `load`.
    """

    def __init__(self, path: str, files: Sequence[MappedFile], memory: int | None) -> None:
        self.path = path  #: of the file or folder; a name in angle brackets for bytes and open files
        self._files = files
        self._memory = memory
        self._methods: dict[Hashable, Method] = {}
        self._devices: list[tuple[Gpu, WeightBuffers]] = []
        self._closed = False
        self._process = ProcessGuard(path)
        self._lock = threading.RLock()  # taken before any lock of a method, and those before a device's

    def _method_of(self, key: Hashable, make: Callable[[], Method]) -> Method:
        """Return the method of a key, created at its first use and again after it was closed."""
        method = self._methods.get(key)
        if method is None or method.closed:
            self._methods = {other: one for other, one in self._methods.items() if not one.closed}
            method = self._methods[key] = make()
        return method

    def recover(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> bool:
        """Open another device after DeviceLost, and load everything again from the mapped file.

        Existing methods and forks work again, with their initial state; `Method.restore` restores a snapshot. Return
        False if no device was lost. A recovery that fails, or is interrupted, may be repeated.
        """
        progress = cancellable(progress, cancel)
        with self._locked():
            self._check_open()
            lost = [pair for pair in self._devices if not pair[0].alive()]
            self._devices = [pair for pair in self._devices if pair not in lost]
            for gpu, weights in lost:
                weights.close()
                gpu.release()
            return recover_methods([*self._methods.values()], self._device, progress) or bool(lost)

    def close(self) -> None:
        """Release every GPU object and the mapped files. Safe to call twice.

        Waits for calls in other threads. In a child of `os.fork()` nothing happens: the parent owns all of it.
        """
        if not self._process.is_current:
            return
        with self._lock:
            self._closed = True
            for method in self._methods.values():
                method.close()
            self._methods.clear()
            while self._devices:
                gpu, weights = self._devices.pop()
                weights.close()
                gpu.release()
            for file in self._files:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _locked(self) -> threading.RLock:
        self._process.check()
        return self._lock

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.path} is closed")

    def _device(self, plan: Plan) -> tuple[Gpu, WeightBuffers]:
        """Return a device for the plan: one that is in use already if its limits suffice."""
        for gpu, weights in self._devices:
            gpu.check()
            if gpu.satisfies(plan.limits):
                return gpu, weights
        gpu = acquire(plan.limits)
        self._devices.append((gpu, WeightBuffers(gpu, self._memory)))
        return self._devices[-1]


Rewrite = Callable[[Graph], Graph]
Tune = Literal["cached", "auto", "off"]
AUTO_SECONDS = 5.0
MAX_LISTED_METHODS = 20  # in a repr
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanOptions:
    """The options of planning a program's methods."""

    fallback: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    passes: tuple[str, ...] = tuple(PASSES)
    tune: Tune = "cached"
    memory: int | None = None
    exact: bool = False


def find_data(key: str, file: ProgramFile, tensors: Sequence[TensorFile]) -> Span | None:
    """Return named data, from the program or else from the first .ptd that has it."""
    span = file.named_data.get(key)
    if span is not None:
        return span
    for extra in tensors:
        entry = extra.entries.get(key)
        if entry is not None:
            return entry.span
    return None


class MethodSource(DeviceResources):
    """What has methods to run: a `Program`, whose methods are planned here, or a `Bundle`, which was planned before.

    Use it as a context manager, or call `close`, to release GPU memory. Threads may share it, and its methods, which
    run one call at a time. From asyncio, use `asyncio.to_thread`.
    """

    @property
    def method_names(self) -> tuple[str, ...]:
        """Return the names of the methods."""
        raise NotImplementedError

    def method(
        self,
        name: str = "forward",
        rewrite: Rewrite | None = None,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
        *,
        lazy: bool = False,
    ) -> Method:
        """Return a method that is ready to be called; the same object until it is closed."""
        raise NotImplementedError

    def plan(self, name: str = "forward", caps: Caps | None = None, rewrite: Rewrite | None = None) -> Plan:
        """Return how a method runs, on this machine's adapter or on a device of other capabilities."""
        raise NotImplementedError

    @overload
    def memory(self) -> Memory: ...

    @overload
    def memory(self, name: str, rewrite: Rewrite | None = None) -> MemoryNeeds: ...

    def memory(self, name: str | None = None, rewrite: Rewrite | None = None) -> Memory | MemoryNeeds:
        """Return the device memory of all methods together, in bytes by kind, or of one of them. Allocates nothing."""
        if name is not None:
            return memory_needs(self.plan(name, rewrite=rewrite))
        check_optional_callable(rewrite, "rewrite", "the graph, which returns another graph")
        if rewrite is not None:
            raise InputError(
                argument="rewrite",
                expected="None unless a method is named",
                got="a function",
                code="missing_name",
                hint="Name the method: memory(name, rewrite).",
            )
        return program_memory(self.path, {one: self.plan(one) for one in self.method_names})

    def fingerprint(self, name: str) -> str:
        """Return a hash that is equal for the same method of the same files: code and weights."""
        check_method_name(name, self.method_names)
        return hashlib.sha256(f"{name} {self._contents}".encode()).hexdigest()

    def __repr__(self) -> str:
        return "\n  ".join([self._title(), *self._listed_methods().values()])

    def _repr_html_(self) -> str:
        return table(self._title(), self._listed_methods())

    def _title(self) -> str:
        nbytes = size(sum(file.size for file in self._files))
        return f"{type(self).__name__} {sanitize_line(self.path)} ({nbytes}{', closed' if self._closed else ''})"

    def _listed_methods(self) -> dict[str, str]:
        """Return the signatures of the first methods, and the number of the others."""
        names = self.method_names
        rows = {name: self.signature(name) for name in names[:MAX_LISTED_METHODS]}
        return rows | ({"...": f"and {len(names) - len(rows)} more"} if len(names) > len(rows) else {})

    def signature(self, name: str = "forward") -> str:
        """Return a line about a method: its inputs and outputs, if they are known."""
        raise NotImplementedError

    @functools.cached_property
    def _contents(self) -> str:
        """Return a hash of every byte of the files. Only snapshots and saved plans need it."""
        return hashlib.sha256(b"".join(bytes.fromhex(file.sha256()) for file in self._files)).hexdigest()


class Program(MethodSource):
    """A loaded .pte file. Use it as a context manager, or call `close`, to release GPU memory.

    Threads may share it, and its methods, which run one call at a time. From asyncio, use `asyncio.to_thread`.
    """

    def __init__(
        self,
        file: ProgramFile,
        tensors: Sequence[TensorFile],
        files: Sequence[MappedFile],
        options: PlanOptions,
    ) -> None:
        super().__init__(file.path, files, options.memory)
        self.file = file  #: what was read from the file, before the graphs were built
        self._tensors = tensors
        self._kernels = CpuKernels()
        self._options = options
        self._graphs: dict[str, Graph] = {m.name: self._build(m) for m in file.methods}
        self._shared = SharedState()
        self._signed: dict[str, str] = {}  # the signatures of methods that were shown

    def _build(self, plan: MethodPlan) -> Graph:
        others = [other for other in self.file.methods if other is not plan]
        return build_graph(plan, self._find, mutated_positions, others=others)

    @property
    def method_names(self) -> tuple[str, ...]:
        return tuple(self._graphs)

    def graph(self, name: str = "forward") -> Graph:
        """Return the graph of a method, as in the file."""
        return self._graphs[check_method_name(name, self.method_names)]

    @property
    def caps(self) -> Caps:
        """Return the capabilities of this machine's adapter, within the limits that the program was loaded with."""
        caps = adapter_caps().within(self._options.limits)
        return exact_products(caps) if self._options.exact else caps

    def plan(self, name: str = "forward", caps: Caps | None = None, rewrite: Rewrite | None = None) -> Plan:
        """Return how a method would run, for this machine's adapter or for other capabilities. `caps` needs no GPU."""
        return self.planner(name, caps, rewrite).plan

    def planner(self, name: str = "forward", caps: Caps | None = None, rewrite: Rewrite | None = None) -> Planner:
        """Return the planner of a method, which has its plan and lowers it for shapes. `caps` needs no GPU."""
        self._process.check()
        graph = self.graph(name)
        check_optional_callable(rewrite, "rewrite", "the graph, which returns another graph")
        check_caps(caps)
        if rewrite is not None:
            graph = rewrite(graph)
        if caps is None:  # a method without calls, such as get_vocab_size, needs no adapter
            caps = self.caps if graph.steps else Caps()
        tuning = {} if self._options.tune == "off" else read_tuning(caps)
        return make_planner(graph, caps, self._kernels, self._options.fallback, self._options.passes, tuning)

    def tune(
        self,
        name: str = "forward",
        rewrite: Rewrite | None = None,
        budget: float | None = None,
        again: bool = False,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
    ) -> TuningResult:
        """Measure the kernels that can serve a method on this machine, and cache the fastest for every later load.

        The default kernel stays unless another one is faster in six of seven rounds and by 5 % in the median. Results
        in the cache are not measured again unless `again`. `budget` limits the seconds; what was not measured within it
        is `unmeasured` of the result.
        """
        progress = cancellable(progress, cancel)
        seconds, measure_all = check_seconds(budget, "budget"), check_bool(again, "again")
        with self._locked():
            self._check_open()
            planner = self.planner(name, rewrite=rewrite)
            caps = self.caps
            known = {} if measure_all else read_tuning(caps)
            for job in [job for job in planner.examples if job.key in known]:
                del planner.examples[job]
            if not planner.examples:
                return TuningResult()
            gpu, weights = self._device(planner.plan)
            started = time.perf_counter()
            result = tune_plan(planner, gpu, weights, seconds, progress)
            _log_tuned(name, len(result), time.perf_counter() - started)
            write_tuning(caps, best_variants(result))
            return result

    def method(
        self,
        name: str = "forward",
        rewrite: Rewrite | None = None,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
        *,
        lazy: bool = False,
    ) -> Method:
        """Return a method that is ready to be called; the same object until it is closed. `rewrite` changes its graph.

        With `lazy`, a kernel is compiled by the first call that uses it.
        """
        progress = cancellable(progress, cancel)
        check_method_name(name, self.method_names)
        check_optional_callable(rewrite, "rewrite", "the graph, which returns another graph")
        check_bool(lazy, "lazy")
        with self._locked():
            self._check_open()
            return self._method_of((name, rewrite), lambda: self._make_method(name, rewrite, progress, lazy))

    def show(self, **options: Any) -> Any:
        """Return its page for a notebook, which runs on the GPU of the reader's browser: `webpte.widget`."""
        return show_in_notebook(self, **options)

    def _make_method(self, name: str, rewrite: Rewrite | None, progress: OnProgress, lazy: bool) -> Method:
        if self._options.tune == "auto":
            self.tune(name, rewrite, AUTO_SECONDS, progress=progress)
        planner = self.planner(name, rewrite=rewrite)
        plan = planner.plan
        _warn_of_fallback(plan)
        shared = self._shared.share_of(plan)
        gpu, weights = self._device(plan) if plan.flow.segments else (None, None)
        return Method(
            planner, gpu, weights, self._kernels, lambda: self.fingerprint(name), progress, shared=shared, lazy=lazy
        )

    def _find(self, key: str) -> Span | None:
        return find_data(key, self.file, self._tensors)

    def signature(self, name: str = "forward") -> str:
        if check_method_name(name, self.method_names) not in self._signed:
            self._signed[name] = arguments.signature(*self._dynamic_dims(name))
        return self._signed[name]

    def _dynamic_dims(self, name: str) -> tuple[Graph, Mapping[int, tuple[bool, ...]]]:
        """Return a graph of a method, and which dims of its inputs and outputs may vary.

        A file states only that a tensor is dynamic, so a plan for any device finds the dims. It takes about 1 ms per
        call of the graph, and is not made if no input is dynamic.
        """
        graph = self._graphs[name]
        inputs = [graph.values[i] for i in graph.inputs]
        if not self._closed and any(isinstance(spec, TensorSpec) and spec.dynamic for spec in inputs):
            with contextlib.suppress(Error):  # a program that cannot run has a signature, too
                plan = draft(graph, Caps(), self._kernels, self._options.fallback, self._options.passes)[0].plan
                return plan.graph, plan.dynamic_dims
        return graph, {}


def _warn_of_fallback(plan: Plan) -> None:
    """Log a warning for calls inside delegates that run on the CPU: the exporter meant them for the device."""
    inside = {name: count for name, count in plan.cpu_calls.items() if "::" not in name}
    if inside:
        listed = ", ".join(f"{quoted_name(name)} x{count}" for name, count in sorted(inside.items()))
        total = sum(inside.values())
        logger.warning(
            "%d calls inside delegates of %s run on the CPU: %s", total, quoted_name(plan.graph.name), listed
        )


def _log_tuned(name: str, measured: int, seconds: float) -> None:
    logger.info("%s: %d jobs measured in %.1f s", quoted_name(name), measured, seconds)


@contextlib.contextmanager
def open_graph(graph: Graph, passes: Sequence[str] = ()) -> Iterator[Method]:
    """Open a method that runs `graph` on this machine's adapter. For graphs that are in no file."""
    kernels = CpuKernels()
    planner = make_planner(graph, adapter_caps(), kernels, passes=passes)
    gpu = acquire(planner.plan.limits)
    weights = WeightBuffers(gpu)
    try:
        method = Method(planner, gpu, weights, kernels)
        try:
            yield method
        finally:
            method.close()
    finally:
        weights.close()
        gpu.release()
