"""The kernels of a program on a GPU that is not there: plans, and how often a phase runs each kernel."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import webpte
from webpte.bundles.methods import only_segment, zeros
from webpte.bundles.program_kinds import _call as engine_call
from webpte.errors import ShapeError, UnsupportedError
from webpte.fusion.batching import TOKENS, with_sampled_slots
from webpte.fusion.llm_rewrites import SAMPLING_WORDS
from webpte.graph import TensorSpec
from webpte.llm.loading import default_caches
from webpte.lowering import Dispatch
from webpte.plan import Planner
from webpte.runtime import Program
from webpte.runtime.converter import ArgumentConverter
from webpte.wgsl import Caps, Kernel

from .models import LANGUAGE_MODELS, cnn, language_model, minilm, whisper

PREFILL_TOKENS = 255
PROGRAMS: dict[str, Callable[[], Path]] = {
    **{name: functools.partial(language_model, name) for name in LANGUAGE_MODELS},
    "minilm": minilm,
    "cnn-f32": functools.partial(cnn, "cnn-f32"),
    "cnn-int8": functools.partial(cnn, "cnn-int8"),
    "whisper-tiny": whisper,
}


@dataclass
class Use:
    """How a phase runs a kernel."""

    dispatches: int = 0
    workgroups: int = 0


@dataclass
class Phases:
    """What a program runs: its kernels, and the uses of each by phase. `layers` is (exported, real)."""

    uses: dict[Kernel, dict[str, Use]] = field(default_factory=dict)
    layers: tuple[int, int] = (1, 1)

    def add(self, phase: str, dispatches: Sequence[Dispatch]) -> None:
        """Count dispatches. One that occurs once per exported layer occurs once per layer of the real model."""
        exported, real = self.layers
        for (kernel, grid), count in Counter((d.kernel, d.grid) for d in dispatches).items():
            each, others = divmod(count, exported)
            use = self.uses.setdefault(kernel, {}).setdefault(phase, Use())
            use.dispatches += each * real + others
            use.workgroups += (each * real + others) * grid[0] * grid[1] * grid[2]


def program_path(name: str) -> Path:
    """Return the file of a program, given by a name of PROGRAMS or by its path."""
    return PROGRAMS[name]() if name in PROGRAMS else Path(name)


def phases(name: str, path: Path, caps: Caps) -> Phases:
    """Plan a program for a device, and return what its phases run.

    A language model has the phases `decode` and `prefill`, as the engine of `webpte.llm` runs it, and `forward 1` and
    `forward 255`, as its method runs. If the engine cannot batch it, it runs the method. Every other method has a phase
    for its largest and its smallest shapes.
    """
    model = LANGUAGE_MODELS.get(name)
    layers = (1, 1) if model is None else (int(model.config["num_hidden_layers"]), model.layers)
    result = Phases(layers=layers)
    with webpte.load(path, tune="off") as program:
        for method in program.method_names:
            if not program.graph(method).steps:
                continue
            planner = program.planner(method, caps)
            if method == "forward" and _is_language(program):
                _add_language(result, program, planner, caps)
            else:
                _add_extents(result, method, planner)
    return result


def _is_language(program: Program) -> bool:
    return "use_kv_cache" in program.method_names


def _add_language(result: Phases, program: Program, planner: Planner, caps: Caps) -> None:
    graph = planner.plan.graph
    rows = min(PREFILL_TOKENS, graph.tensor(graph.inputs[TOKENS]).dims[1])
    method = {}
    for tokens in (1, rows):
        shapes = [(1, tokens), *(_dims(graph.values[i]) for i in graph.inputs[1:])]
        method[tokens] = _dispatches(planner, zeros(graph, shapes))
    try:
        caches = default_caches(caps.kind, caps.features)
        slotted = program.planner("forward", caps, functools.partial(with_sampled_slots, slots=1, caches=caches))
    except UnsupportedError:  # the engine runs one sequence at a time, with the method itself
        result.add("decode", method[1])
        result.add("prefill", method[rows])
        return
    words = len(SAMPLING_WORDS)
    result.add("decode", _dispatches(slotted, engine_call(1, 1, 1, words, 0)))
    result.add("prefill", _dispatches(slotted, engine_call(rows, 0, 1, words, 0)))
    for tokens, dispatches in method.items():
        result.add(f"forward {tokens}", dispatches)


def _dims(value: object) -> tuple[int, ...]:
    return value.dims if isinstance(value, TensorSpec) else ()


def _add_extents(result: Phases, method: str, planner: Planner) -> None:
    graph = planner.plan.graph
    for phase, dims in zip((method, f"{method}, smallest"), planner.plan.extents(), strict=False):
        with contextlib.suppress(ShapeError):  # the smallest shapes are a guess: a file has no lower bounds
            result.add(phase, _dispatches(planner, zeros(graph, [dims.get(i, ()) for i in graph.inputs])))


def _dispatches(planner: Planner, call: Sequence[Any]) -> list[Dispatch]:
    """Return the dispatches of a call. If it needs several submits, all of them at the bounds of their inputs."""
    try:
        segment = only_segment(planner)
    except UnsupportedError:
        return [dispatch for schedule in planner.lower({}) for dispatch in schedule.dispatches]
    live = ArgumentConverter(planner).bind_inputs(call)
    graph = planner.plan.graph
    for value in segment.host_reads:
        spec = graph.tensor(value)
        if spec.constant is not None:
            live.arrays[value] = spec.constant.array(spec.dims)
    return planner.prepare(segment, live)[0].dispatches


# ---------------------------------------------------------------- work of a kernel

# Multiply-adds of an invocation in one iteration of the innermost loop, by template.
_MULTIPLY_ADDS: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "q4/linear_q4_lanes.wgsl": lambda f: f["weights"] * f["tile"] * f["columns"] * f["words"] * 32 // f["bits"],
    "q4/linear_q4_shared.wgsl": lambda f: f["own"] * f["own"] * 4,
    "q4/linear_q4_halves.wgsl": lambda f: f["own"] * f["own"] * 4,
    "q4/linear_q4_packed.wgsl": lambda f: 4 * 4 * 8,
    "matmul/matmul_shared.wgsl": lambda f: f["own"] * f["own"] * 4,
    "matmul/matmul_lanes.wgsl": lambda f: f["rows"] * f["columns"] * f["a_width"],
    "q8/q8ta_linear.wgsl": lambda f: f["tile"] * 4 * 4,
}


def multiply_adds(kernel: Kernel) -> int | None:
    """Return the multiply-adds of an iteration of a matrix kernel's innermost loop: weights times rows of the input.

    None if the kernel is not a matrix product, or not in the table.
    """
    work = _MULTIPLY_ADDS.get(kernel.template)
    return None if work is None else work(dict(kernel.flags))
