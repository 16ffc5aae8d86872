"""Measure a program on this machine: loading, calls by size or tokens by context, memory, host time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any, Literal, TypedDict

import numpy as np

from ..debug.doctor import Machine, machine
from ..debug.inputs import make_inputs
from ..debug.run import Spread, Stages, spread, timed
from ..device import adapter_caps
from ..errors import DeviceError, Error, InputError, UnsupportedError
from ..fusion.llm_rewrites import TOKEN, with_sampler
from ..graph import DType, Graph, TensorSpec
from ..llm.engine.scheduler import MAX_STEPS_PER_SUBMIT, STREAM_SECONDS
from ..llm.sampling import RowSamplingParams, pack
from ..lowering import mutated_positions
from ..partial_files import not_writable
from ..progress import OnProgress, Progress, ignore
from ..runtime import ArgumentInfo, Method, Program, load_program
from ..runtime.checks import check_method_name
from ..typing import PathLike

FRACTIONS = (8, 4, 2, 1)  # of the bound
MIN_TOKENS = 16  # of a prompt or context
MAX_BUDGETS = 20  # that one call may take; longer prompts are not measured, longer calls are measured once
MIN_CALLS = 3  # of a point, so that one stalled call is not the median
MAX_CALLS = 200  # of a point
Shapes = tuple[tuple[int, ...] | None, ...]
GREEDY = pack([RowSamplingParams()])


class PointTimes(Spread):
    """Durations of one point, in seconds."""

    first: Annotated[float, "the first call, which prepares"]


class SizePoint(PointTimes):
    """Calls at one size."""

    shapes: list[list[int]]


class PrefillPoint(PointTimes):
    """Prompts of one length."""

    tokens: int
    tokens_per_second: float


class DecodePoint(PointTimes):
    """One token after a context."""

    context: Annotated[int, "tokens before it"]
    tokens_per_second: float
    paced_tokens_per_second: Annotated[float, "with several tokens per submit"]
    per_submit: int


class LoadTimes(TypedDict):
    """Durations of loading by stage, and total."""

    cold: Annotated[dict[str, float], "by stage, and total"]
    warm: dict[str, float]
    meaning: dict[str, str]


class HostShare(TypedDict):
    """Host time of a small call."""

    dispatches: int
    submits: int
    call: Annotated[float, "a small call"]
    busy: Annotated[float, "the host's part of it"]
    per_dispatch: float | None


class BenchPoints(TypedDict):
    """The measured points. What belongs to the other kind of program is None."""

    kind: Annotated[
        Literal["program", "language model"],
        "a language model has capacity, prefill and decode, a program sizes; the others are null",
    ]
    sizes: list[SizePoint] | None
    capacity: Annotated[int | None, "tokens that the cache holds"]
    prefill: list[PrefillPoint] | None
    prefill_left_out: Annotated[list[int] | None, "lengths that would have taken too long"]
    decode: list[DecodePoint] | None


class ProgramBench(BenchPoints):
    """The measurements of a program, without the machine."""

    file: str
    bytes: int
    method: str
    load: LoadTimes
    memory: Annotated[dict[str, int], "bytes by kind: constant, state, activation, readback"]
    host: HostShare


class BenchReport(ProgramBench):
    """The measurements of a program on a machine."""

    machine: Machine


def measure(call: Callable[[], Any], budget: float) -> PointTimes:
    """Measure a call for `budget` seconds, at least MIN_CALLS times. The first call compiles and is reported apart.

    A call that takes more than MAX_BUDGETS budgets is measured once.
    """
    first, _ = timed(call)
    times: list[float] = [first] if first > MAX_BUDGETS * budget else []
    min_calls = 1 if times else MIN_CALLS
    while len(times) < min_calls or (sum(times) < budget and len(times) < MAX_CALLS):
        times.append(timed(call)[0])
    return {**spread(times), "first": first}


# -- programs of any kind ----------------------------------------------------------------------------------------------


def size_points(method: Method, budget: float, progress: OnProgress) -> list[SizePoint]:
    """Measure calls at fractions of the bound in every dynamic dim. Sizes that the program rejects are skipped."""
    points: list[SizePoint] = []
    sizes = _sizes(method)
    for number, shapes in enumerate(sizes):
        progress(Progress("measure", number, len(sizes), "points"))
        with suppress(Error):
            times = measure(partial(method.run, _arguments(method, shapes)), budget)
            points.append({"shapes": [list(shape) for shape in shapes if shape is not None], **times})
    progress(Progress("measure", len(sizes), len(sizes), "points"))
    return points


def _sizes(method: Method) -> list[Shapes]:
    """Return shapes of all inputs, in increasing size."""
    return list(dict.fromkeys(tuple(_shrunk(info, part) for info in method.inputs) for part in FRACTIONS))


def _shrunk(info: ArgumentInfo, part: int) -> tuple[int, ...] | None:
    if info.bound is None or info.dynamic is None:
        return None
    return tuple(max(1, size // part) if may else size for size, may in zip(info.bound, info.dynamic, strict=True))


def _arguments(method: Method, shapes: Shapes) -> list[Any]:
    """Return random inputs of these shapes. A single integer is 0."""
    values = [item.value for item in make_inputs(method.inputs)]
    return [value if shape is None else np.resize(value, shape) for value, shape in zip(values, shapes, strict=True)]


# -- language models ---------------------------------------------------------------------------------------------------


def prefill_points(
    method: Method, capacity: int, budget: float, progress: OnProgress
) -> tuple[list[PrefillPoint], list[int]]:
    """Measure prompts of increasing length, in chunks of the program's bound. Return them and the skipped lengths."""
    chunk = (method.inputs[0].bound or (1, 1))[1]
    candidates = (*_powers(MIN_TOKENS, chunk, 2), *_powers(chunk, capacity, 2), capacity - 1)
    lengths = sorted({n for n in candidates if 0 < n < capacity})
    points: list[PrefillPoint] = []
    for number, length in enumerate(lengths):
        progress(Progress("prefill", number, len(lengths), "points"))
        if points and points[-1]["median"] * length / points[-1]["tokens"] > MAX_BUDGETS * budget:
            break
        times = measure(partial(_prefill, method, length, chunk), budget)
        points.append({"tokens": length, **times, "tokens_per_second": length / times["median"]})
    progress(Progress("prefill", len(lengths), len(lengths), "points"))
    return points, lengths[len(points) :]


def decode_points(method: Method, capacity: int, budget: float, progress: OnProgress) -> list[DecodePoint]:
    """Measure one token after contexts of increasing length: one token per submit, and several as `generate` does."""
    contexts = sorted(
        {n for n in (*_powers(MIN_TOKENS, capacity, 4), capacity - MAX_STEPS_PER_SUBMIT) if 0 < n < capacity}
    )
    points: list[DecodePoint] = []
    for number, context in enumerate(contexts):
        progress(Progress("decode", number, len(contexts), "points"))
        times = measure(partial(method.run, _step([1], context), outputs=(TOKEN,)), budget)
        count = max(1, min(int(STREAM_SECONDS / times["median"]), MAX_STEPS_PER_SUBMIT, capacity - context))
        paced = times["median"]
        if count > 1:
            steps = [_step([1], context + i) for i in range(count)]
            paced = measure(partial(method.run_steps, steps, {TOKEN: 0}, (TOKEN,)), budget)["median"] / count
        points.append(
            {
                "context": context,
                **times,
                "tokens_per_second": 1 / times["median"],
                "paced_tokens_per_second": 1 / paced,
                "per_submit": count,
            }
        )
    progress(Progress("decode", len(contexts), len(contexts), "points"))
    return points


def _powers(first: int, end: int, factor: int) -> list[int]:
    """Return first, first * factor, ... below the end."""
    lengths = []
    while first < end:
        lengths.append(first)
        first *= factor
    return lengths


def _prefill(method: Method, length: int, chunk: int) -> None:
    for start in range(0, length, chunk):
        count = min(chunk, length - start)
        outputs = (TOKEN,) if start + count == length else ()
        method.run(_step([1] * count, start), outputs=outputs)


def _step(tokens: Sequence[int], position: int) -> tuple[Any, ...]:
    """Return the inputs of a model with the sampler. The time does not depend on the tokens."""
    return (np.array([tokens], np.int64), np.array([position], np.int64), 0, *GREEDY)


# -- the host ----------------------------------------------------------------------------------------------------------


def host_share(method: Method, budget: float, language_model: bool = False) -> HostShare:
    """Measure the host time of a small call without waiting, and per dispatch: medians over several calls."""
    call = partial(method.run, _step([1], 0), outputs=(TOKEN,)) if language_model else _smallest_call(method)
    call()
    counters = method.counters
    before = counters.snapshot()
    calls: list[tuple[float, float]] = []  # seconds, of which waiting
    while not calls or (sum(duration for duration, _ in calls) < budget and len(calls) < MAX_CALLS):
        before_wait = counters.wait_seconds
        duration, _ = timed(call)
        calls.append((duration, counters.wait_seconds - before_wait))
    done = counters.since(before)
    dispatches = done.dispatches // len(calls)
    busy = float(np.median([duration - wait for duration, wait in calls]))
    return {
        "dispatches": dispatches,
        "submits": done.submits // len(calls),
        "call": float(np.median([duration for duration, _ in calls])),
        "busy": busy,
        "per_dispatch": busy / dispatches if dispatches else None,
    }


def _smallest_call(method: Method) -> Callable[[], Any]:
    """Return a call at the smallest size that the program accepts. The bound is one of them."""
    for shapes in _sizes(method):
        call = partial(method.run, _arguments(method, shapes))
        with suppress(Error):
            call()
            return call
    return call


MEANING = {
    "cold": "the first load in this process; the driver may have cached compiled kernels",
    "warm": "a second load in the same process, after everything was released",
}


def bench_file(
    path: PathLike,
    data: Sequence[PathLike] = (),
    *,
    method: str = "forward",
    seconds: float = 1.0,
    progress: OnProgress = ignore,
) -> BenchReport:
    """Measure a method on this machine. Each point takes `seconds`, or a few calls if that is longer."""
    measured = bench_program(path, data, method=method, seconds=seconds, progress=progress)
    return {"machine": machine(), **measured}


def bench_program(
    path: PathLike,
    data: Sequence[PathLike] = (),
    *,
    method: str = "forward",
    seconds: float = 1.0,
    progress: OnProgress = ignore,
) -> ProgramBench:
    """Return what `bench_file` measures, without the machine."""
    if not seconds > 0:
        raise InputError(argument="seconds", expected="a number above 0", got=seconds, code="out_of_range")
    with opened(path, data, method, progress) as (cold, _, _):
        pass
    with opened(path, data, method, progress) as (warm, program, called):
        capacity = context_length(program, called)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "method": method,
            "load": {"cold": cold, "warm": warm, "meaning": MEANING},
            "memory": {**called.plan.bytes_by_kind(), "readback": called.plan.staging_bytes},
            "host": host_share(called, seconds, language_model=capacity is not None),
            **_points(called, capacity, seconds, progress),
        }


def _points(called: Method, capacity: int | None, seconds: float, progress: OnProgress) -> BenchPoints:
    """Measure prefill and decode of a language model, or sizes of another program. The others are None."""
    if capacity is None:
        return {
            "kind": "program",
            "sizes": size_points(called, seconds, progress),
            "capacity": None,
            "prefill": None,
            "prefill_left_out": None,
            "decode": None,
        }
    prefill, left_out = prefill_points(called, capacity, seconds, progress)
    return {
        "kind": "language model",
        "sizes": None,
        "capacity": capacity,
        "prefill": prefill,
        "prefill_left_out": left_out,
        "decode": decode_points(called, capacity, seconds, progress),
    }


@contextmanager
def opened(
    path: PathLike, data: Iterable[PathLike], method: str, progress: OnProgress
) -> Iterator[tuple[dict[str, float], Program, Method]]:
    """Load a method; yield the seconds of each stage, the program and the method. A language model gets its sampler."""
    stages = Stages(progress)
    with suppress(DeviceError):  # a method without calls needs no adapter; one with calls raises the error itself
        adapter_caps()
    with load_program(path, data, progress=stages) as program:
        check_method_name(method, program.method_names, "method")
        called: Method | None = None
        if is_language_model(program.graph(method)):
            with suppress(UnsupportedError):  # it returns no logits
                called = program.method(method, with_sampler, progress=stages)
        called = called or program.method(method, progress=stages)
        stages.end()
        yield {**stages.seconds, "total": stages.total}, program, called


def is_language_model(graph: Graph) -> bool:
    """Return whether a graph takes tokens (1, S) and a position, and has a cache."""
    specs = [spec for i in graph.inputs if isinstance(spec := graph.values[i], TensorSpec)]
    if len(graph.inputs) != 2 or [spec.host_dtype for spec in specs] != [DType.INT64, DType.INT64]:
        return False
    has_cache = any(mutated_positions(call) for call in graph.calls)
    return has_cache and len(specs[0].dims) == 2 and specs[0].dims[0] == 1 and specs[1].dims == (1,)


def context_length(program: Program, called: Method) -> int | None:
    """Return the capacity of a language model's cache in tokens; None for other programs."""
    if not is_language_model(program.graph(called.name)) or len(called.inputs) == 2:  # without the sampler
        return None
    if "get_max_context_len" in program.method_names:
        return int(program.method("get_max_context_len")())
    graph = called.plan.graph
    rows = [graph.tensor(t).dims[1] for b in called.plan.buffers if b.kind == "state" for t in b.tensors]
    return min(rows, default=None)


def require_matplotlib() -> Any:
    """Return matplotlib's Figure, which draws without a screen. It is not among our dependencies."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "plots require the matplotlib package", hint="Run: pip install matplotlib", code="missing_package"
        ) from error
    return Figure


def plot_bench(report: BenchReport, path: str | os.PathLike[str]) -> None:
    """Plot a report of `bench_file`: rates by context of a language model, times by size of other programs."""
    language_model = report["kind"] == "language model"
    figure = require_matplotlib()(figsize=(11, 4.5) if language_model else (7, 4.5), layout="constrained")
    for axes in _plot_rates(figure, report) if language_model else _plot_times(figure, report):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    machine = report["machine"]
    title = f"{os.path.basename(report['file'])} on {machine['adapter']}"
    figure.suptitle(f"{title}\nwebpte {machine['versions']['webpte']}, {machine['date'][:10]}", fontsize=9)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise not_writable(path, error) from error
    except ValueError as error:  # a format that matplotlib does not write
        raise InputError(f"cannot write {os.fspath(path)}: {error}", code="unknown_format") from error


def _plot_rates(figure: Any, report: BenchReport) -> list[Any]:
    left, right = figure.subplots(1, 2)
    prefill, decode = report["prefill"] or [], report["decode"] or []
    left.plot([p["tokens"] for p in prefill], [p["tokens_per_second"] for p in prefill], "o-")
    left.set(title="prefill", xlabel="tokens in the prompt", ylabel="tokens per second")
    contexts = [p["context"] for p in decode]
    right.plot(contexts, [p["tokens_per_second"] for p in decode], "o-", label="one token per submit")
    right.plot(contexts, [p["paced_tokens_per_second"] for p in decode], "s--", label="several tokens per submit")
    right.set(title="decode", xlabel="tokens in the context", ylabel="tokens per second")
    right.legend()
    return [left, right]


def _plot_times(figure: Any, report: BenchReport) -> list[Any]:
    axes, points = figure.subplots(), report["sizes"] or []
    elements = [sum(int(np.prod(shape)) for shape in point["shapes"]) for point in points]
    axes.plot(elements, [point["median"] * 1e3 for point in points], "o-")
    axes.set(title="calls", xlabel="elements of all inputs", ylabel="milliseconds, median")
    return [axes]
