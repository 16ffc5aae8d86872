"""Read a plan and its schedules from a folder. The folder may be hostile: everything is checked.

Calls index, bind, copy and evaluate the contents. So every number is compared with the count it refers to,
every range with its buffer or file, and every name contains only printable characters.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from ..budgets import limit, spend
from ..container import MappedFile
from ..errors import Error, FormatError, InputError, UnsupportedError
from ..graph import MAX_NAME_CHARS, Call, Graph, Null, Origin, TensorSpec, Value
from ..lowering import stored_bytes
from ..wgsl import Kernel
from .memory import Buffer, BufferFill, padded
from .plan import Plan, bytes_at_bound
from .plan_writer import DOCUMENT, FORMAT, VERSION, PathLike, features_of, kernel_file
from .schedule_json import ScheduleReader, block_from_json
from .schedules import Key, Schedule, ScheduleStore
from .segments import Flow, FlowBlock, HostCalls, PlanSegment
from .validate import refuse_wrong
from .value_json import (
    Files,
    call_from_json,
    check_format,
    constant_from_json,
    dtype_from_json,
    json_bool,
    json_field,
    json_int,
    json_ints,
    json_list,
    json_numbered,
    json_str,
    value_from_json,
)

SUBMIT = "webpte.saved"  # replaces all calls of a segment in a loaded graph
_KINDS = ("constant", "state", "activation")
_BINDINGS = 1000  # maximum of a group in WebGPU
_LABEL = 1000
_WORKGROUP = 1 << 16


class LoadedPlan(NamedTuple):
    """A plan with its schedules, the files of its constants, and the fingerprint of its state."""

    scheduler: ScheduleStore
    files: tuple[MappedFile, ...]
    features: tuple[str, ...]
    fingerprint: str


def load_plan(folder: PathLike, data: Iterable[PathLike] = (), cpu_kernels: Container[str] = ()) -> LoadedPlan:
    """Return a plan that `save_plan` wrote. Its files are in `data`, in its folder or beside that."""
    source = PlanFolder(folder, data)
    try:
        return read_plan(source, cpu_kernels)
    except BaseException:
        for file in source.mapped:
            file.close()
        raise


def read_plan(source: PlanFiles, cpu_kernels: Container[str] = ()) -> LoadedPlan:
    """Return a plan from any source. Every defect raises a FormatError that names the source."""
    name = source.name
    try:
        return _PlanReader(source, _document(name, source.document()), cpu_kernels).opened()
    except (Error, MemoryError) as error:
        if isinstance(error, FormatError) and not str(error).startswith(name):
            raise FormatError(f"{name}: the plan is damaged: {error}", code=error.reason) from error
        raise
    except Exception as error:
        raise FormatError(
            f"{name}: the plan is damaged: {type(error).__name__}: {str(error)[:200]}", code="damaged"
        ) from error


def _document(name: str, text: str) -> Any:
    data = json.loads(text)
    check_format(name, data, FORMAT, VERSION, "Method.save of the program")
    return data


class _PlanReader:
    """Reads and checks one document."""

    def __init__(self, source: PlanFiles, data: Any, cpu_kernels: Container[str]) -> None:
        self.source = source
        self.data = data
        self.calls = [call_from_json(item) for item in json_list(json_field(data, "cpu_calls"), "cpu_calls")]
        self.name = json_str(json_field(data, "name"), "name")
        missing = sorted({call.name for call in self.calls if call.name not in cpu_kernels})
        if missing:
            raise UnsupportedError(
                f"{self.name} needs CPU kernels that this machine does not have: {', '.join(missing)}",
                missing,
                code="no_cpu_kernel",
            )

    def opened(self) -> LoadedPlan:
        self.files = Files(list(self._files()))
        self.values = self._values()
        texts = list(self._texts())
        flow, graph = self._flow_and_graph()
        refuse_wrong(replace(graph, steps=tuple(self.calls)), in_order=False)  # which imports no op if there is none
        kernels = [self._kernel(item, wgsl) for item, wgsl in zip(self.data["kernels"], texts, strict=True)]
        plan, schedules = self._plan_and_schedules(graph, flow, kernels)
        self._compare("limits", plan.limits)
        self._compare("features", features_of(texts))
        scheduler = ScheduleStore(plan, max_schedules=len(schedules))
        for key, schedule in schedules:
            scheduler.add(key, schedule)
        fingerprint = json_str(json_field(self.data, "fingerprint"), "fingerprint", 64)
        return LoadedPlan(scheduler, tuple(self.source.mapped), tuple(features_of(texts)), fingerprint)

    def _plan_and_schedules(
        self, graph: Graph, flow: Flow, kernels: Sequence[Kernel]
    ) -> tuple[Plan, list[tuple[Key, Schedule]]]:
        data = self.data
        blocks = [block_from_json(item) for item in json_list(json_field(data, "parameters"), "parameters")]
        buffers = tuple(self._buffer(item) for item in json_list(json_field(data, "buffers"), "buffers"))
        value_buffers = self._value_buffers(graph, flow, buffers)
        first = len(graph.values)  # dispatches bind buffers; here each buffer is one tensor
        reading = ScheduleReader(
            graph=graph,
            segments=flow.segments,
            buffers=buffers,
            value_buffers=value_buffers,
            stand_ins=first,
            kernels=kernels,
            blocks=blocks,
        )
        schedules = [reading.schedule(item) for item in json_list(json_field(data, "schedules"), "schedules")]
        bindings = frozenset(b for _, schedule in schedules for d in schedule.dispatches for b in d.bindings)
        plan = Plan(
            graph=graph,
            flow=flow,
            buffers=buffers,
            buffer_of=value_buffers | {first + number: number for number in range(len(buffers))},
            uploads={segment: self._uploads(number, graph) for number, segment in enumerate(flow.segments)},
            unmodified_uploads=frozenset(self._ids("unmodified_uploads")),
            kernels=tuple(kernels),
            parameter_blocks=len(blocks),
            dynamic_dims=self._dynamic(graph),
            passes={},
            aliases={},
            materialized={},
            scratch={},
            checks={v: json_str(text, "a check") for v, text in self._by_value("checks")},
            bindings=bindings,
            binding_limit=max((binding.nbytes for binding in bindings), default=0),
            subgroup=json_int(json_field(data, "min_subgroup_size"), "min_subgroup_size", high=_WORKGROUP),
        )
        return plan, schedules

    def _compare(self, name: str, expected: object) -> None:
        """Check that the totals in the document agree with its parts."""
        if json_field(self.data, name) != expected:
            raise FormatError(f"{name}: expected {expected}, got {ascii(self.data[name])[:200]}", code="contradiction")

    # -- files ---------------------------------------------------------------------------------------------------------

    def _files(self) -> Iterator[MappedFile]:
        for item in json_list(json_field(self.data, "files"), "files"):
            name = json_str(json_field(item, "name"), "the name of a file", 255)
            size = json_int(json_field(item, "bytes"), "the size of a file", 1)
            if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name or ":" in name:
                raise FormatError(f"{name!a} is not a file name", code="file_name")
            yield self.source.constants(name, size, json_field(item, "sha256"))

    def _texts(self) -> Iterator[str]:
        items = json_list(json_field(self.data, "kernels"), "kernels")
        spend("kernels", len(items), self.name)
        for number, item in enumerate(items):
            wgsl = self.source.text(number, item)
            if hashlib.sha256(wgsl.encode()).hexdigest() != json_field(item, "sha256"):
                raise FormatError(f"{kernel_file(number)} does not match its hash", code="hash_mismatch")
            check_kernel_text(wgsl, f"{self.name}: {kernel_file(number)}")
            yield wgsl

    def _kernel(self, item: Any, wgsl: str) -> Kernel:
        reads, writes = (json_int(json_field(item, name), name, high=_BINDINGS) for name in ("reads", "writes"))
        label = json_str(json_field(item, "label"), "the label of a kernel", _LABEL)
        return Kernel(
            home="",
            template=label,
            flags=(),
            params="",
            workgroup=json_int(json_field(item, "workgroup"), "workgroup", 1, _WORKGROUP),
            reads=reads,
            writes=writes,
            text=wgsl,
        )

    # -- the method ----------------------------------------------------------------------------------------------------

    def _by_value(self, name: str) -> Iterator[tuple[int, Any]]:
        """Return the items of an object whose names are ids of existing values."""
        yield from json_numbered(json_field(self.data, name), name, len(self.values) - 1).items()

    def _ids(self, name: str, data: Any = None) -> tuple[int, ...]:
        """Return a list of ids of existing values."""
        return json_ints(json_field(self.data if data is None else data, name), name, high=len(self.values) - 1)

    def _values(self) -> tuple[Value, ...]:
        items = json_numbered(json_field(self.data, "values"), "values", limit("values") - 1)
        values: list[Value] = [Null()] * (1 + max(items, default=-1))
        for value_id, item in items.items():
            values[value_id] = value_from_json(item, self.files)
        return tuple(values)

    def _flow_and_graph(self) -> tuple[Flow, Graph]:
        described = json_list(json_field(self.data, "segments"), "segments")
        # The number distinguishes segments with equal fields, such as those of two branches.
        segments = [self._segment(len(self.calls) + number, item) for number, item in enumerate(described)]
        blocks = [self._block(item, segments) for item in json_list(json_field(self.data, "blocks"), "blocks")]
        listed = [stage for block in blocks for stage in block.stages if isinstance(stage, PlanSegment)]
        if listed != segments:
            raise FormatError(f"expected the blocks to list the {len(segments)} segments in order", code="block_order")
        state = frozenset(self._ids("state"))
        flow = Flow(tuple(blocks), frozenset(), state, frozenset(), frozenset(self._ids("on_host")), state)
        submits = [Call(SUBMIT, (), (), Origin(number)) for number in range(len(segments))]
        inputs, outputs = self._ids("inputs"), self._ids("outputs")
        names = {v: json_str(name, "the name of a value", MAX_NAME_CHARS) for v, name in self._by_value("names")}
        graph = Graph(self.name, self.values, (*self.calls, *submits), inputs, outputs, names=names)
        for value_id in (
            *state,
            *flow.on_host,
            *(v for s in segments for v in (*s.tensors, *s.readbacks, *s.host_reads)),
        ):
            graph.tensor(value_id)
        return flow, graph

    def _segment(self, step: int, item: Any) -> PlanSegment:
        lists = [self._ids(name, item) for name in ("tensors", "scalars", "readbacks", "host_reads", "updates")]
        return PlanSegment((step,), *lists)

    def _block(self, item: Any, segments: Sequence[PlanSegment]) -> FlowBlock:
        stages: list[PlanSegment | HostCalls] = []
        for stage in json_list(json_field(item, "stages"), "stages"):
            if isinstance(stage, dict) and "cpu_calls" in stage:
                stages.append(HostCalls(json_ints(stage["cpu_calls"], "a CPU call", high=len(self.calls) - 1)))
            else:
                stages.append(segments[json_int(json_field(stage, "submit"), "submit", high=len(segments) - 1)])
        condition, target = json_field(item, "condition"), json_field(item, "target")
        if condition is not None:
            json_int(condition, "the condition of a block", high=len(self.values) - 1)
            json_int(target, "the target of a block", high=len(self.data["blocks"]) - 1)
        return FlowBlock(tuple(stages), condition, target if condition is not None else None)

    def _uploads(self, number: int, graph: Graph) -> tuple[int, ...]:
        written = {*graph.inputs, *(out for call in self.calls for out in call.outs)}
        uploads = self._ids("uploads", self.data["segments"][number])
        if unknown := sorted(set(uploads) - written):
            raise FormatError(f"values {unknown} are uploaded, but neither inputs nor results of CPU kernels")
        return uploads

    def _dynamic(self, graph: Graph) -> dict[int, tuple[bool, ...]]:
        dynamic = {
            v: tuple(json_bool(flag, "dynamic") for flag in json_list(flags, "dynamic", len(graph.tensor(v).dims)))
            for v, flags in self._by_value("dynamic")
        }
        inputs, outputs = (
            {v for v in ids if isinstance(graph.values[v], TensorSpec)} for ids in (graph.inputs, graph.outputs)
        )
        if not inputs <= set(dynamic) <= inputs | outputs:
            raise FormatError("dynamic: expected the tensors among the inputs, and none but inputs and outputs")
        return dynamic

    # -- memory --------------------------------------------------------------------------------------------------------

    def _buffer(self, item: Any) -> Buffer:
        nbytes, kind = json_int(json_field(item, "bytes"), "the size of a buffer", 4), json_field(item, "kind")
        if kind not in _KINDS or nbytes % 4:
            raise FormatError(f"{ascii(kind)[:20]} of {nbytes} bytes is not a valid buffer", code="buffer_kind")
        fill = json_field(item, "fill")
        if fill is None and kind == "constant":
            raise FormatError("a constant buffer has no data")
        return Buffer(nbytes, kind, (), None if fill is None else self._fill(fill, nbytes))

    def _fill(self, data: Any, nbytes: int) -> BufferFill:
        fill = BufferFill(constant_from_json(data, self.files), dtype_from_json(json_field(data, "dtype")))
        count = fill.constant.nbytes // fill.constant.dtype.itemsize
        if fill.constant.dtype.numpy is None or fill.dtype.numpy is None:
            raise FormatError(f"constant {fill.constant.name} has a dtype that devices do not support")
        if padded_words(stored_bytes(fill.dtype, (count,))) > nbytes:
            raise FormatError(
                f"constant {fill.constant.name} of {count} elements overflows a buffer of {nbytes} bytes",
                code="data_too_large",
            )
        return fill

    def _value_buffers(self, graph: Graph, flow: Flow, buffers: Sequence[Buffer]) -> dict[int, int]:
        """Return the buffer of each value that is copied to or from the device, after a check of its size."""
        value_buffers = {
            v: json_int(at, f"the buffer of value {v}", high=len(buffers) - 1)
            for v, at in self._by_value("value_buffers")
        }
        uploaded = {v for number in range(len(flow.segments)) for v in self._uploads(number, graph)}
        copied = uploaded.union(*(segment.readbacks for segment in flow.segments))
        if missing := sorted(copied - value_buffers.keys()):
            raise FormatError(
                f"values {missing} are copied to or from the device, but have no buffer", code="unplaced_value"
            )
        changed = {v for v in uploaded | flow.state if v in value_buffers}
        for value_id in sorted(changed):  # a view that is only read back may have a bound that it never reaches
            if padded(bytes_at_bound(graph, value_id)) > buffers[value_buffers[value_id]].nbytes:
                raise FormatError(
                    f"value {value_id} {graph.tensor(value_id)} overflows buffer {value_buffers[value_id]}"
                )
        if wrong := sorted(v for v in changed if buffers[value_buffers[v]].kind == "constant"):
            raise FormatError(f"values {wrong} would overwrite constants")
        if wrong := sorted(v for v in flow.state if v in value_buffers and buffers[value_buffers[v]].kind != "state"):
            raise FormatError(f"values {wrong} are state, but their buffers are not")
        return value_buffers


def padded_words(nbytes: int) -> int:
    return -(-nbytes // 4) * 4


class PlanFiles(Protocol):
    """The files of a plan. `read_plan` checks their contents."""

    @property
    def name(self) -> str:
        """Return the name in messages."""

    @property
    def mapped(self) -> list[MappedFile]:
        """Return the files that must stay mapped while the plan is used."""

    def document(self) -> str: ...

    def text(self, number: int, kernel: Any) -> str:
        """Return the WGSL of a kernel, which `kernel` describes."""

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        """Return the file of this size and hash."""


class PlanFolder:
    """A folder that `save_plan` wrote. The files of constants are in `data`, in the folder or beside it."""

    def __init__(self, folder: PathLike, data: Iterable[PathLike] = ()) -> None:
        self.name = os.fspath(folder)
        self.mapped: list[MappedFile] = []
        self._candidates = [os.fspath(path) for path in data]

    def document(self) -> str:
        try:
            file = MappedFile(os.path.join(self.name, DOCUMENT))
        except FormatError as error:
            raise InputError(f"{self.name}: cannot read the plan: {error}") from error
        with file:
            return contents(file, "plan bytes")

    def text(self, number: int, kernel: Any) -> str:
        with MappedFile(os.path.join(self.name, kernel_file(number))) as file:
            return contents(file, "kernel text")

    def constants(self, name: str, size: int, sha256: Any) -> MappedFile:
        beside = [os.path.join(at, name) for at in (self.name, os.path.dirname(os.path.abspath(self.name)))]
        candidates = []
        for path in (*self._candidates, *filter(os.path.exists, beside)):
            file = self._map(path)
            if file.size == size and file.sha256() == sha256:
                return file
            candidates.append(f"{path} of {file.size} bytes" + (" with other contents" if file.size == size else ""))
        raise InputError(
            f"{self.name}: expected the plan's constants in {name} of {size} bytes, "
            f"got {', '.join(candidates) or 'no file'}. "
            "Put that file into the plan's folder, or name it: open_plan(folder, data=[path]).",
            code="missing_file",
        )

    def _map(self, path: str) -> MappedFile:
        for file in self.mapped:
            if file.path == path:
                return file
        try:
            self.mapped.append(MappedFile(path))
        except FormatError as error:
            raise InputError(f"{self.name}: {error}", code=error.reason) from error
        return self.mapped[-1]


def contents(file: MappedFile, budget: str) -> str:
    """Return the contents of a mapped file as a string."""
    spend(budget, file.size, file.path)
    return str(file.view(0, file.size), "ascii")


MAX_NESTING = 64  # brackets that are open at once
MAX_STATEMENT = 4096  # characters: each could be an operator that nests
MAX_BRANCHES = 256  # `else` of a kernel: each nests in the one before
_BRACKETS = re.compile(r"[(\[{]|[)\]}]")
_COMMENT = re.compile(r"//[^\n\v\f\r]*")
_ENDS = re.compile(r"[;{}]")


def check_kernel_text(text: str, where: str) -> None:
    """Raise FormatError if a kernel of an untrusted plan is too long, or nests too deeply for a shader compiler.

    Compilers walk expressions, types and blocks by recursion. A text that nests thousands of levels overflows the stack
    of this process, which raises no exception. Kernels that webpte renders nest 10 levels, and their longest statement
    has about 550 characters.
    """
    spend("kernel text", len(text), where)
    if "/*" in text:
        raise FormatError(f"{where}: expected a kernel without /* comments */, which nest", code="kernel")
    text = _COMMENT.sub("", text)
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    longest = max(map(len, _ENDS.split(text)))
    branches = text.count("else")
    for count, max_count, unit in (
        (deepest, MAX_NESTING, "brackets open at once"),
        (longest, MAX_STATEMENT, "characters in a statement"),
        (branches, MAX_BRANCHES, "branches"),
    ):
        if count > max_count:
            raise FormatError(f"{where}: a kernel has {count} {unit}; at most {max_count} are allowed", code="kernel")
