"""A page that measures the visitor's GPU as `webpte bench --report` does: checks, probes and random decoders.

It is a bundle of kind 'check' with more methods and another page.
"""

from __future__ import annotations

import base64
import os
from functools import partial
from pathlib import Path
from typing import Any

from ..debug.doctor import LIMITS
from ..debug.selftest import SELF_TEST_CASES
from ..device.timing import (
    COPY_BYTES,
    FMA_FLOPS_PER_STEP,
    FMA_STEPS,
    FMA_THREADS,
    PEAK_COPY,
    PEAK_FMA,
    PEAK_WORKGROUP,
    PeakCopyParams,
    PeakFmaParams,
)
from ..fusion import PASSES
from ..graph import Graph
from ..measure import bench_model, bench_report
from ..measure.bench_model import (
    GREEDY,
    MAX_PREFILL_TOKENS,
    RandomDecoder,
    decoder_graph,
    prompt,
    step_inputs,
    stored_answers,
)
from ..plan import Planner, make_planner
from ..progress import OnProgress, ignore
from ..runtime.kernels import CpuKernels
from ..wgsl import BROWSER_LIMITS, Caps, Kernel, Uniforms, grid_for, render
from .check import add_checks, own_checks
from .methods import MethodWriter, with_schedules
from .site import Site, without_comments


def bundle_bench(path: str | os.PathLike[str], *, name: str | None = None, progress: OnProgress = ignore) -> Path:
    """Write a page that measures the visitor's GPU, and shows the report to copy and download."""
    decoders = bench_model.DECODERS
    site = Site(path)
    try:
        methods = MethodWriter(site, progress, len(SELF_TEST_CASES) + len(decoders))
        checks, omitted = add_checks(site, methods, list(own_checks()), ignore)
        for decoder in decoders:
            methods.add(_method(decoder), "", partial(_planned, decoder_graph(decoder)))
        parts = {"check": checks, "omitted": omitted, "bench": _bench_part(decoders)}
        site.finish("check", {"name": name or "webpte bench", "methods": methods.written(), **parts}, page="bench")
        return site.path
    finally:
        site.abandon()


def _method(decoder: RandomDecoder) -> str:
    return f"decoder {decoder.width}"


def _planned(graph: Graph, caps: Caps) -> Planner:
    planner = make_planner(graph, caps, CpuKernels(), passes=tuple(PASSES))
    prompts = {len(answer["prompt"]) for answer in stored_answers().values()}
    return with_schedules(planner, [step_inputs([1] * count, 0) for count in sorted({1, MAX_PREFILL_TOKENS, *prompts})])


def _bench_part(decoders: tuple[RandomDecoder, ...]) -> dict[str, Any]:
    """Return what the page needs besides methods."""
    words, adjustments, features = GREEDY
    return {
        "models": [
            {
                "method": _method(decoder),
                "width": decoder.width,
                "layers": decoder.layers,
                "weight_bytes": decoder.weight_bytes,
                "prefill": prompt(decoder, MAX_PREFILL_TOKENS),
                **stored_answers()[decoder.width],
            }
            for decoder in decoders
        ],
        "sampling": [words.tolist(), adjustments, features],
        "limits": list(LIMITS),
        "probes": {
            "copy": _probe(PEAK_COPY, PeakCopyParams(), COPY_BYTES // 16, COPY_BYTES, 2 * COPY_BYTES),
            "fma": _probe(
                PEAK_FMA,
                PeakFmaParams(steps=FMA_STEPS),
                FMA_THREADS,
                FMA_THREADS * 16,
                FMA_THREADS * FMA_STEPS * FMA_FLOPS_PER_STEP,
            ),
            "dispatch": _probe(PEAK_COPY, PeakCopyParams(), PEAK_WORKGROUP, PEAK_WORKGROUP * 16, 1),
        },
        "seconds": {
            "total": bench_report.MAX_SECONDS,
            "point": bench_report.POINT_SECONDS,
            "slow_call": bench_report.SLOW_CALL_SECONDS,
            "single_call": bench_report.SINGLE_CALL_SECONDS,
        },
        "calls": [bench_report.MIN_CALLS, bench_report.MAX_CALLS],
    }


def _probe(kernel: Kernel, params: Uniforms, threads: int, nbytes: int, work: int) -> dict[str, Any]:
    """Return a dispatch from one buffer to another: `work` is its bytes or operations."""
    return {
        "wgsl": without_comments(render(kernel)),
        "uniforms": base64.b64encode(params.pack(threads)).decode("ascii"),
        "grid": list(grid_for(threads, kernel.workgroup, BROWSER_LIMITS["max-compute-workgroups-per-dimension"])),
        "bytes": nbytes,
        "work": work,
    }
