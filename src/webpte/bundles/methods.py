"""A method in a bundle: its plan for each kind of device that a page may find, all over the same weights.

Weights are converted for the device and written to shards: files of at most 16 MiB that are named by their hash.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..device.weights import device_pieces, storage_dtype
from ..errors import InputError, ShapeError, UnsupportedError
from ..graph import Constant, DType, Graph, SymBool, SymFloat, TensorSpec
from ..plan import BufferFill, Plan, Planner
from ..plan.plan_writer import plan_document
from ..plan.segments import PlanSegment
from ..progress import OnProgress, Progress, ignore
from ..runtime import Program
from ..runtime.arguments import argument_names, zeros_like_input
from ..runtime.converter import ArgumentConverter
from ..runtime.program import Rewrite
from ..wgsl import INTEL_MATRIX, MATRIX_SHAPES, Caps, matrices_of, matrix_feature, render
from .site import Site, without_comments

MAX_SHARD_BYTES = 16 << 20  # bytes of a shard: a page verifies one as a whole, and holds no more than two
ALIGNMENT = 16  # of what begins in a shard


class Shard(NamedTuple):
    sha256: str
    nbytes: int


class Shards:
    """Constants, one after the other. A constant that many plans name is there once.

    `write` takes the bytes of a shard that is full, and gives its hash.
    """

    def __init__(self, write: Callable[[bytes], str]) -> None:
        self._write = write
        self._shards: list[Shard] = []
        self._open = bytearray()
        self._places: dict[object, list[list[int]]] = {}

    def place(self, constant: Constant, dtype: DType) -> list[list[int]]:
        """Return spans of [shard, offset, bytes]. The last one is padded with zeros to a multiple of 4 bytes."""
        key = (constant.identity, dtype)
        if key not in self._places:
            spans: list[list[int]] = []
            self._places[key] = spans
            self._open += bytes(-len(self._open) % ALIGNMENT)
            for _, piece in device_pieces(BufferFill(constant, dtype)):
                self._append(memoryview(piece).cast("B"), spans)
            spans[-1][2] -= sum(size for _, _, size in spans) - device_bytes(constant, dtype)
        return self._places[key]

    def _append(self, data: memoryview, spans: list[list[int]]) -> None:
        while data:
            if len(self._open) == MAX_SHARD_BYTES:
                self.close()
            taken = data[: MAX_SHARD_BYTES - len(self._open)]
            here = [len(self._shards), len(self._open), len(taken)]
            if spans and spans[-1][0] == here[0] and spans[-1][1] + spans[-1][2] == here[1]:
                spans[-1][2] += here[2]
            else:
                spans.append(here)
            self._open += taken
            data = data[len(taken) :]

    def close(self) -> None:
        """Write what is not written yet."""
        if self._open:
            data = bytes(self._open)
            self._shards.append(Shard(self._write(data), len(data)))
            self._open = bytearray()

    def __getitem__(self, number: int) -> Shard:
        return self._shards[number]


def device_bytes(constant: Constant, dtype: DType) -> int:
    """Return the bytes of a constant on the device, without padding."""
    return constant.nbytes // constant.dtype.itemsize * storage_dtype(dtype).itemsize


class ShardSources:
    """The shards that one plan names, by number; see plan.value_json.Sources."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.numbers: dict[int, int] = {}  # of a shard in the plan

    def constant(self, constant: Constant, dtype: DType) -> dict[str, Any]:
        spans = self._shards.place(constant, dtype)
        numbered = [[self.numbers.setdefault(shard, len(self.numbers)), *rest] for shard, *rest in spans]
        return {"name": "", "stored_dtype": _stored(dtype), "spans": numbered}

    def listed(self) -> list[dict[str, Any]]:
        shards = [self._shards[number] for number in self.numbers]
        return [{"name": f"{shard.sha256}.bin", "bytes": shard.nbytes, "sha256": shard.sha256} for shard in shards]


def _stored(dtype: DType) -> str:
    """Return the dtype that a device stores: bools, and f16 on a device without f16, take a word."""
    stored = storage_dtype(dtype)
    if dtype.numpy == stored:
        return dtype.short
    return next(other.short for other in DType if other.numpy == stored)


# A browser grants more than the standard's limits only to those who ask, and not everywhere: plans ask for no more.
# Subgroups have 32 invocations or more on the GPUs of nearly everyone, and 4 in software that does them at all.
TARGETS = (
    Caps(features=frozenset({"subgroup"}), subgroup=32, adapter="a GPU with subgroups"),
    Caps(adapter="any GPU"),
    Caps(kind="cpu", features=frozenset({"subgroup"}), subgroup=4, adapter="a software device with subgroups"),
    Caps(kind="cpu", adapter="any software device"),
)
HALVES = frozenset({"shader-f16"})
# Intel's GPUs have subgroups of 8 to 32 invocations.
MATRIX_TARGETS = tuple(
    Caps(
        features=HALVES | {"subgroup", matrix_feature(*shape)},
        subgroup=8 if shape == INTEL_MATRIX else 32,
        adapter=f"a GPU with matrix units of {' x '.join(map(str, shape))}",
    )
    for shape in MATRIX_SHAPES
)


Call = Sequence[Any]  # arguments of a method
Shapes = Sequence[Sequence[int]]  # the dims of each of its inputs; () for a number


def planned(program: Program, name: str, caps: Caps, calls: Iterable[Call], rewrite: Rewrite | None = None) -> Planner:
    """Return a planner that has the schedules of the calls."""
    return with_schedules(program.planner(name, caps, rewrite), calls)


def planned_at(program: Program, name: str, caps: Caps, shapes: Sequence[Shapes]) -> Planner:
    """Return a planner that has the schedules of all calls of these shapes, for any data."""
    return for_any_data(with_schedules(program.planner(name, caps), [zeros(program.graph(name), s) for s in shapes]))


def with_schedules(planner: Planner, calls: Iterable[Call]) -> Planner:
    segment = only_segment(planner)
    converter = ArgumentConverter(planner)
    arguments = list(calls)
    planner.make_room(len(arguments))
    for call in arguments:
        live = converter.bind_inputs(call)
        live.arrays.update({v: _constant(planner, v) for v in segment.host_reads})
        planner.prepare(segment, live)
    return planner


def for_any_data(planner: Planner) -> Planner:
    """Return the planner. Raise UnsupportedError if its schedules depend on input data."""
    terms = {str(term) for _, schedule in planner.known() for term, _ in schedule.specializations}
    if terms:
        graph = planner.plan.graph
        inputs = ", ".join(f"input {number} is %{value}" for number, value in enumerate(graph.inputs))
        raise UnsupportedError(
            f"{graph.name}: the kernels to run depend on input data: {', '.join(sorted(terms))}, where {inputs}",
            sorted(terms),
            code="data_dependent",
            hint="A bundle has one schedule for each shape. Pass sizes as input shapes, not as numbers.",
        )
    return planner


def extents(program: Program, name: str) -> list[Shapes]:
    """Return the largest input shapes, and the smallest if the program accepts them."""
    plan = program.plan(name, Caps())
    largest, *smaller = [[bound.get(i, ()) for i in plan.graph.inputs] for bound in plan.extents()]
    extremes: list[Shapes] = [largest]
    for shapes in smaller:
        with contextlib.suppress(ShapeError):
            planned_at(program, name, Caps(), [shapes])
            extremes.append(shapes)
    return extremes


def zeros(graph: Graph, shapes: Shapes) -> Call:
    """Return arguments of these shapes. Only their shapes are used."""
    if len(shapes) != len(graph.inputs):
        raise InputError(
            f"{graph.name}: expected {len(graph.inputs)} shapes, one for each input, got {len(shapes)}",
            code="input_count",
        )
    return [zeros_like_input(graph.values[i], tuple(dims)) for i, dims in zip(graph.inputs, shapes, strict=True)]


def only_segment(planner: Planner) -> PlanSegment:
    """Return the segment of a method that consists of one submit."""
    plan = planner.plan
    if plan.cpu_calls:
        listed = ", ".join(f"{name} x{count}" for name, count in sorted(plan.cpu_calls.items()))
        raise UnsupportedError(
            f"{plan.graph.name} calls CPU kernels, which a page does not have: {listed}",
            sorted(plan.cpu_calls),
            code="cpu_kernels",
            hint="Export the program so that the partitioner delegates them. `webpte check` reports why it did not.",
        )
    stages = [stage for block in plan.flow.blocks for stage in block.stages]
    if len(plan.flow.blocks) != 1 or len(stages) != 1 or not isinstance(stages[0], PlanSegment):
        raise UnsupportedError(
            f"{plan.graph.name} needs {len(plan.flow.segments)} submits, because control flow depends on data; "
            "a bundle supports 1",
            code="control_flow",
            hint="Export the program without branches on data, or each branch as a method.",
        )
    return stages[0]


def _constant(planner: Planner, value_id: int) -> np.ndarray[Any, Any]:
    """Return the data of a constant that a lowering inspects."""
    graph = planner.plan.graph
    spec = graph.values[value_id]
    if not isinstance(spec, TensorSpec) or spec.constant is None or value_id in planner.plan.flow.state:
        raise UnsupportedError(
            f"{graph.name}: the kernels to run depend on the data of value {value_id}; a bundle has one schedule "
            "for each shape",
            code="data_dependent",
        )
    return spec.constant.array(spec.dims)


PlanFor = Callable[[Caps], Planner]


class Planned(NamedTuple):
    """A plan for a kind of device, before its shards have names."""

    planner: Planner
    slots: int | None


class MethodWriter:
    """The methods of one bundle. Plans are written when all constants of all of them are placed."""

    def __init__(
        self, site: Site, progress: OnProgress = ignore, count: int = 1, *, matrix_units: bool = False
    ) -> None:
        self._site = site
        self._progress = progress
        self._targets = (*MATRIX_TARGETS, *TARGETS) if matrix_units else TARGETS
        self._plans = (0, count * len(self._targets))  # done, total
        self.shards = Shards(lambda data: site.add(data, "weights"))
        self._planned: dict[str, list[Planned]] = {}
        self._fingerprints: dict[str, str] = {}

    def add(self, name: str, fingerprint: str, plan_for: PlanFor, slots: int | None = None) -> Planner:
        """Plan a method for every device. The last plan runs on any device."""
        self._fingerprints[name] = fingerprint
        for caps in self._targets:
            planner = plan_for(caps)
            if caps in MATRIX_TARGETS and not _has_matrices(planner):
                self._tick()
                continue
            if _has_wide_halves(planner.plan.graph):  # they take half the memory where a device has f16
                self._place(name, plan_for(replace(caps, features=caps.features | HALVES)), slots)
            self._place(name, planner, slots)
            self._tick()
        return planner

    def _tick(self) -> None:
        done, total = self._plans
        self._plans = (done + 1, total)
        self._progress(Progress("plan", done + 1, total, "plans"))

    def _place(self, name: str, planner: Planner, slots: int | None) -> None:
        self._planned.setdefault(name, []).append(Planned(planner, slots))
        graph = planner.plan.graph
        for buffer in planner.plan.buffers:
            if buffer.fill is not None:
                self.shards.place(buffer.fill.constant, buffer.fill.dtype)
        for value in graph.values:
            if isinstance(value, TensorSpec) and value.mutable and value.constant is not None:
                self.shards.place(value.constant, value.constant.dtype)

    def written(self) -> dict[str, Any]:
        """Return the manifest entries of the methods, by name."""
        self.shards.close()
        return {name: self._method(name, plans) for name, plans in self._planned.items()}

    def _method(self, name: str, plans: Sequence[Planned]) -> dict[str, Any]:
        plan = plans[0].planner.plan
        graph = plan.graph
        variants: list[dict[str, Any]] = []
        for planned in plans:
            document, texts = self._document(name, planned)
            needs = {"device": planned.planner.caps.kind, "cache_slots": planned.slots}
            needs |= {part: document[part] for part in ("limits", "features", "min_subgroup_size")}
            if all(needs != {part: other[part] for part in needs} for other in variants):  # the first is the better
                variants.append(
                    {**self._written(document, texts), **needs, "bytes": planned.planner.plan.bytes_by_kind()}
                )
        return {
            "inputs": _border(plan, graph.inputs, "input"),
            "outputs": _border(plan, graph.outputs, "output"),
            "variants": variants,
        }

    def _document(self, name: str, planned: Planned) -> tuple[dict[str, Any], list[str]]:
        return plan_document(
            planned.planner,
            self._fingerprints[name],
            ShardSources(self.shards),
            lambda kernel: without_comments(render(kernel)),
        )

    def _written(self, document: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
        """Return the hashes of the plan's files. All texts are in one file: similar texts compress to a third."""
        offset = 0
        for kernel, text in zip(document["kernels"], texts, strict=True):
            kernel["text"] = [offset, len(text)]
            offset += len(text)
        return {
            "plan": self._site.add_json(document, "plan"),
            "wgsl": self._site.add(("".join(texts) or "\n").encode("ascii"), "wgsl"),  # no file is empty
            "weights": [file["sha256"] for file in document["files"]],
        }


def _has_matrices(planner: Planner) -> bool:
    kernels = {dispatch.kernel for _, schedule in planner.known() for dispatch in schedule.dispatches}
    return any(matrices_of(render(kernel)) is not None for kernel in kernels)


def _has_wide_halves(graph: Graph) -> bool:
    return any(isinstance(value, TensorSpec) and value.dtype is DType.WIDE_FLOAT16 for value in graph.values)


def _border(plan: Plan, ids: Sequence[int], prefix: str) -> list[dict[str, Any]]:
    """Return the names and types of inputs or outputs."""
    described = []
    for value_id, name in zip(ids, argument_names(plan.graph, ids, prefix), strict=True):
        value = plan.graph.values[value_id]
        if isinstance(value, TensorSpec):
            dynamic = plan.dynamic_dims.get(value_id) or (value.dynamic,) * len(value.dims)
            dims = {"dims": list(value.dims), "dynamic": list(dynamic)}
            described.append({"name": name, "kind": "tensor", "dtype": value.host_dtype.short, **dims})
        else:
            kind = "symbool" if isinstance(value, SymBool) else "symfloat" if isinstance(value, SymFloat) else "symint"
            described.append({"name": name, "kind": kind})
    return described
