"""A method in a bundle: a plan for each kind of device that a page may find, all over the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..graph import DType, Graph, SymBool, SymFloat, TensorSpec
from ..plan import Planner
from ..plan.plan_writer import plan_document
from ..progress import OnProgress, Progress, ignore
from ..wgsl import Caps, render
from .shards import Shards, ShardSources
from .site import Site, without_comments
from .targets import HALVES, TARGETS

PlanFor = Callable[[Caps], Planner]


class Planned(NamedTuple):
    """A plan for a kind of device, before its shards have names."""

    planner: Planner
    slots: int | None


class MethodWriter:
    """The methods of one bundle. Plans are written when all constants of all of them are placed."""

    def __init__(self, site: Site, progress: OnProgress = ignore, count: int = 1) -> None:
        self._site = site
        self._progress = progress
        self._plans = (0, count * len(TARGETS))  # made, of so many
        self.shards = Shards(lambda data: site.add(data, "weights"))
        self._planned: dict[str, list[Planned]] = {}
        self._fingerprints: dict[str, str] = {}

    def add(self, name: str, fingerprint: str, plan_for: PlanFor, slots: int | None = None) -> Planner:
        """Plan a method for every device; the last plan is that for any software."""
        self._fingerprints[name] = fingerprint
        for caps in TARGETS:
            planner = plan_for(caps)
            if _has_wide_halves(planner.plan.graph):  # they take half the memory where a device has f16
                self._place(name, plan_for(replace(caps, features=caps.features | HALVES)), slots)
            self._place(name, planner, slots)
            self._tick()
        return planner

    def _tick(self) -> None:
        made, total = self._plans
        self._plans = (made + 1, total)
        self._progress(Progress("plan", made + 1, total, "plans"))

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
        """What the manifest says of the methods, by name."""
        self.shards.close()
        return {name: self._method(name, plans) for name, plans in self._planned.items()}

    def _method(self, name: str, plans: Sequence[Planned]) -> dict[str, Any]:
        plan = plans[0].planner.plan
        graph = plan.graph
        variants: list[dict[str, Any]] = []
        for planned in plans:
            document, texts = self._document(name, planned)
            needs = {"device": planned.planner.caps.kind, "slots": planned.slots}
            needs |= {part: document[part] for part in ("limits", "features", "subgroup")}
            if all(needs != {part: other[part] for part in needs} for other in variants):  # the first is the better
                variants.append(
                    {**self._written(document, texts), **needs, "bytes": planned.planner.plan.bytes_by_kind()}
                )
        return {
            "inputs": [_border(graph, v, plan.dynamic_dims.get(v)) for v in graph.inputs],
            "outputs": [_border(graph, v, None) for v in graph.outputs],
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
        """The hashes of its files. All texts are in one: they are alike, and packed together take a third."""
        offset = 0
        for kernel, text in zip(document["kernels"], texts, strict=True):
            kernel["text"] = [offset, len(text)]
            offset += len(text)
        return {
            "plan": self._site.add_json(document, "plan"),
            "wgsl": self._site.add(("".join(texts) or "\n").encode("ascii"), "wgsl"),  # no file is empty
            "weights": [file["sha256"] for file in document["files"]],
        }


def _has_wide_halves(graph: Graph) -> bool:
    return any(isinstance(value, TensorSpec) and value.dtype is DType.WIDE_FLOAT16 for value in graph.values)


def _border(graph: Graph, value_id: int, dynamic: tuple[bool, ...] | None) -> dict[str, Any]:
    value = graph.values[value_id]
    if not isinstance(value, TensorSpec):
        return {
            "kind": "symbool" if isinstance(value, SymBool) else "symfloat" if isinstance(value, SymFloat) else "symint"
        }
    flags = dynamic or (value.dynamic,) * len(value.dims)
    return {"kind": "tensor", "dtype": value.host_dtype.short, "dims": list(value.dims), "dynamic": list(flags)}
