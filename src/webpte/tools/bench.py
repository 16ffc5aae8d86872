"""How fast a program is here: loading, calls by size or tokens by context, memory, and the host's share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from ..device import adapter_caps
from ..errors import DeviceError, Error, InputError, UnsupportedError
from ..fusion.llm_rewrites import TOKEN, with_sampler
from ..graph import DType, Graph, TensorSpec
from ..llm.engine.scheduler import MAX_STEPS_PER_SUBMIT, STREAM_SECONDS
from ..llm.sampling import RowSamplingParams, pack
from ..lowering import mutated_positions
from ..progress import OnProgress, Progress, ignore
from ..runtime import ArgumentInfo, Method, Program, load
from .doctor import machine
from .inputs import make_inputs
from .timing import Stages, spread, timed

FRACTIONS = (8, 4, 2, 1)  # of the bound
SHORTEST = 16  # tokens
PATIENCE = 20  # budgets that one prompt may take; longer ones are left out
MOST_CALLS = 200
Shapes = tuple[tuple[int, ...] | None, ...]
GREEDY = pack([RowSamplingParams()])


def measure(call: Callable[[], Any], budget: float) -> dict[str, Any]:
    """Times of a call for as many seconds as the budget has. The first one prepares for its shape and is told apart."""
    first, _ = timed(call)
    times: list[float] = [first] if first > budget else []
    while not times or (sum(times) < budget and len(times) < MOST_CALLS):
        times.append(timed(call)[0])
    return {**(spread(times) or {}), "first": first}


# -- programs of any kind ----------------------------------------------------------------------------------------------


def size_points(method: Method, budget: float, progress: OnProgress) -> list[dict[str, Any]]:
    """Calls at parts of the bound, in every dim that may vary. Sizes that the program refuses are left out."""
    points = []
    sizes = _sizes(method)
    for number, shapes in enumerate(sizes):
        progress(Progress("measure", number, len(sizes), "points"))
        with suppress(Error):
            took = measure(partial(method.run, _arguments(method, shapes)), budget)
            points.append({"shapes": [shape for shape in shapes if shape is not None], **took})
    progress(Progress("measure", len(sizes), len(sizes), "points"))
    return points


def _sizes(method: Method) -> list[Shapes]:
    """Shapes of all inputs, growing."""
    return list(dict.fromkeys(tuple(_shrunk(info, part) for info in method.inputs) for part in FRACTIONS))


def _shrunk(info: ArgumentInfo, part: int) -> tuple[int, ...] | None:
    if info.bound is None or info.dynamic is None:
        return None
    return tuple(max(1, size // part) if may else size for size, may in zip(info.bound, info.dynamic, strict=True))


def _arguments(method: Method, shapes: Shapes) -> list[Any]:
    """Made up, as `webpte run` does: random, and 0 where a single integer is wanted."""
    given = [item.value for item in make_inputs(method.inputs)]
    return [value if shape is None else np.resize(value, shape) for value, shape in zip(given, shapes, strict=True)]


# -- language models ---------------------------------------------------------------------------------------------------


def prefill_points(
    method: Method, capacity: int, budget: float, progress: OnProgress
) -> tuple[list[dict[str, Any]], list[int]]:
    """Prompts of growing length, in pieces where they exceed the program's bound; and the lengths left out."""
    chunk = (method.inputs[0].bound or (1, 1))[1]
    growing = (*_grown(SHORTEST, chunk, 2), *_grown(chunk, capacity, 2), capacity - 1)
    lengths = sorted({n for n in growing if 0 < n < capacity})
    points: list[dict[str, Any]] = []
    for number, length in enumerate(lengths):
        progress(Progress("prefill", number, len(lengths), "points"))
        if points and points[-1]["median"] * length / points[-1]["tokens"] > PATIENCE * budget:
            break
        took = measure(partial(_prefill, method, length, chunk), budget)
        points.append({"tokens": length, **took, "tokens_per_second": length / took["median"]})
    progress(Progress("prefill", len(lengths), len(lengths), "points"))
    return points, lengths[len(points) :]


def decode_points(method: Method, capacity: int, budget: float, progress: OnProgress) -> list[dict[str, Any]]:
    """One token behind a context of growing length, alone and several to a submit, as `generate` paces itself."""
    contexts = sorted(
        {n for n in (*_grown(SHORTEST, capacity, 4), capacity - MAX_STEPS_PER_SUBMIT) if 0 < n < capacity}
    )
    points: list[dict[str, Any]] = []
    for number, context in enumerate(contexts):
        progress(Progress("decode", number, len(contexts), "points"))
        took = measure(partial(method.run, _step([1], context), outputs=(TOKEN,)), budget)
        count = max(1, min(int(STREAM_SECONDS / took["median"]), MAX_STEPS_PER_SUBMIT, capacity - context))
        paced = took["median"]
        if count > 1:
            steps = [_step([1], context + i) for i in range(count)]
            paced = measure(partial(method.run_steps, steps, {TOKEN: 0}, (TOKEN,)), budget)["median"] / count
        rates = {"tokens_per_second": 1 / took["median"], "paced_tokens_per_second": 1 / paced}
        points.append({"context": context, **took, **rates, "per_submit": count})
    progress(Progress("decode", len(contexts), len(contexts), "points"))
    return points


def _grown(first: int, end: int, factor: int) -> list[int]:
    """first, first * factor, ... below the end."""
    found = []
    while first < end:
        found.append(first)
        first *= factor
    return found


def _prefill(method: Method, length: int, chunk: int) -> None:
    for start in range(0, length, chunk):
        count = min(chunk, length - start)
        wanted = (TOKEN,) if start + count == length else ()
        method.run(_step([1] * count, start), outputs=wanted)


def _step(tokens: Sequence[int], position: int) -> tuple[Any, ...]:
    """The inputs of a model with the sampler behind it. What tokens they are does not matter for the time."""
    return (np.array([tokens], np.int64), np.array([position], np.int64), 0, *GREEDY)


# -- the host ----------------------------------------------------------------------------------------------------------


def host_share(method: Method, budget: float, speaks: bool = False) -> dict[str, Any]:
    """What the host does in one small call while it does not wait, and per dispatch: medians over several calls."""
    call = partial(method.run, _step([1], 0), outputs=(TOKEN,)) if speaks else _smallest_call(method)
    call()
    counters = method.counters
    before = counters.snapshot()
    calls: list[tuple[float, float]] = []  # seconds, of which waiting
    while not calls or (sum(took for took, _ in calls) < budget and len(calls) < MOST_CALLS):
        waited = counters.wait_seconds
        took, _ = timed(call)
        calls.append((took, counters.wait_seconds - waited))
    done = counters.since(before)
    dispatches = done.dispatches // len(calls)
    busy = float(np.median([took - waited for took, waited in calls]))
    return {
        "dispatches": dispatches,
        "submits": done.submits // len(calls),
        "call": float(np.median([took for took, _ in calls])),
        "busy": busy,
        "per_dispatch": busy / dispatches if dispatches else None,
    }


def _smallest_call(method: Method) -> Callable[[], Any]:
    """A call at the smallest of the sizes that the program takes. The bound is one of them."""
    for shapes in _sizes(method):
        call = partial(method.run, _arguments(method, shapes))
        with suppress(Error):
            call()
            return call
    return call


PathLike = str | os.PathLike[str]
MEANING = {
    "cold": "first in this process; the driver may have kept kernels it compiled before",
    "warm": "again in the same process, with everything released in between",
}


def bench_file(
    path: PathLike,
    data: Sequence[PathLike] = (),
    *,
    method: str = "forward",
    seconds: float = 1.0,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Measure a method. Each point takes `seconds`, or one call where that is longer."""
    if not seconds > 0:
        raise InputError(f"seconds is {seconds}; a measurement takes time")
    with opened(path, data, method, progress) as (cold, _, _):
        pass
    with opened(path, data, method, progress) as (warm, program, called):
        capacity = context_length(program, called)
        return {
            "file": os.fspath(path),
            "bytes": os.path.getsize(path),
            "method": method,
            "machine": machine(),
            "load": {"cold": cold, "warm": warm, "meaning": MEANING},
            "memory": {**called.plan.bytes_by_kind(), "readback": called.plan.staging_bytes},
            "host": host_share(called, seconds, speaks=capacity is not None),
            **_measured(called, capacity, seconds, progress),
        }


def _measured(called: Method, capacity: int | None, seconds: float, progress: OnProgress) -> dict[str, Any]:
    """A language model has prefill and decode, another program sizes; what the other kind has is None."""
    if capacity is None:
        absent = dict.fromkeys(("capacity", "prefill", "prefill_left_out", "decode"))
        return {"kind": "program", "sizes": size_points(called, seconds, progress), **absent}
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
    """A loaded method and what each stage of loading took. A language model has the sampler that `generate` uses."""
    stages = Stages(progress)
    with suppress(DeviceError):  # a method without calls needs no adapter, and one with calls will say that it does
        adapter_caps()
    with load(path, data, progress=stages) as program:
        called: Method | None = None
        if is_language_model(program.graph(method)):
            with suppress(UnsupportedError):  # it returns no logits: a program like any other
                called = program.method(method, with_sampler, progress=stages)
        called = called or program.method(method, progress=stages)
        stages.end()
        yield {**stages.seconds, "total": stages.total}, program, called


def is_language_model(graph: Graph) -> bool:
    """Whether a graph takes tokens (1, S) and a position, and keeps a cache."""
    specs = [spec for i in graph.inputs if isinstance(spec := graph.values[i], TensorSpec)]
    if len(graph.inputs) != 2 or [spec.host_dtype for spec in specs] != [DType.INT64, DType.INT64]:
        return False
    keeps = any(mutated_positions(call) for call in graph.calls)
    return keeps and len(specs[0].dims) == 2 and specs[0].dims[0] == 1 and specs[1].dims == (1,)


def context_length(program: Program, called: Method) -> int | None:
    """The tokens a language model's cache holds; None for other programs."""
    if not is_language_model(program.graph(called.name)) or len(called.inputs) == 2:  # without the sampler behind it
        return None
    if "get_max_context_len" in program.method_names:
        return int(program.method("get_max_context_len")())
    graph = called.plan.graph
    rows = [graph.tensor(t).dims[1] for b in called.plan.buffers if b.kind == "state" for t in b.tensors]
    return min(rows, default=None)


def require_matplotlib() -> Any:
    """Its Figure class, which draws without a screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("plots need the matplotlib package: pip install matplotlib") from error
    return Figure


def plot_bench(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw a report of `bench_file`: rates by context for a language model, times by size for others."""
    speaks = report["kind"] == "language model"
    figure = require_matplotlib()(figsize=(11, 4.5) if speaks else (7, 4.5), layout="constrained")
    for axes in _plot_rates(figure, report) if speaks else _plot_times(figure, report):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    machine = report["machine"]
    title = f"{os.path.basename(report['file'])} on {machine['adapter']}"
    figure.suptitle(f"{title}\nwebpte {machine['versions']['webpte']}, {machine['date'][:10]}", fontsize=9)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: a kind of file that matplotlib does not write
        raise InputError(f"{os.fspath(path)} cannot be written: {error}") from error


def _plot_rates(figure: Any, report: Mapping[str, Any]) -> list[Any]:
    left, right = figure.subplots(1, 2)
    prefill, decode = report["prefill"], report["decode"]
    left.plot([p["tokens"] for p in prefill], [p["tokens_per_second"] for p in prefill], "o-")
    left.set(title="prefill", xlabel="tokens in the prompt", ylabel="tokens per second")
    contexts = [p["context"] for p in decode]
    right.plot(contexts, [p["tokens_per_second"] for p in decode], "o-", label="one token per submit")
    right.plot(contexts, [p["paced_tokens_per_second"] for p in decode], "s--", label="as generate paces itself")
    right.set(title="decode", xlabel="tokens in the context", ylabel="tokens per second")
    right.legend()
    return [left, right]


def _plot_times(figure: Any, report: Mapping[str, Any]) -> list[Any]:
    axes = figure.subplots()
    elements = [sum(int(np.prod(shape)) for shape in point["shapes"]) for point in report["sizes"]]
    axes.plot(elements, [point["median"] * 1e3 for point in report["sizes"]], "o-")
    axes.set(title="calls", xlabel="elements of all inputs", ylabel="milliseconds, median")
    return [axes]
