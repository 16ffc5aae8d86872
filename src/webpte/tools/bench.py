"""How fast a program is here: loading, calls by size or tokens by context, memory, and the host's share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..device import adapter_caps
from ..errors import DeviceError, InputError, UnsupportedError
from ..fusion.llm_rewrites import with_sampler
from ..graph import DType, Graph, TensorSpec
from ..lowering import mutated_positions
from ..progress import OnProgress, ignore
from ..runtime import Method, Program, load
from .machine import machine
from .points import decode_points, host_share, prefill_points, size_points
from .timing import Stages

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
