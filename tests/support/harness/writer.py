"""Writes .pte and .ptd files and Vulkan delegate blobs from Python values, with no torch and no exporter.

It is independent of what it tests: flatbuffers are made by the ``flatbuffers`` package, which ``webpte`` does not use.
The package's own writer is not used here, since reader and writer could share an error that no test would then find.
It validates nothing, so that broken files can be written too. Values are the dataclasses of ``webpte.container``::

    values = [
        VkTensor(DType.FLOAT32, (5, 7)),               # 0: input
        VkTensor(DType.FLOAT32, (7,), constant_id=0),  # 1: weight
        VkInt(1),                                      # 2: alpha
        VkTensor(DType.FLOAT32, (5, 7)),               # 3: output
    ]
    calls = [("aten.add.Tensor", (0, 1, 2, 3))]
    simple_pte("add.pte", values, calls, inputs=[0], outputs=[3], constants=[np.arange(7, dtype="f4")])

Data is bytes, an array, or ``Stream(size, chunks)`` for what should never be in memory as a whole.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.support.harness.flat_builder import (
    Builder,
    Data,
    Offset,
    Segments,
    Stream,
    align,
    data_chunks,
    data_size,
    splice,
)
from webpte import container as c

__all__ = [
    "ALONE",
    "Data",
    "DelegateBlob",
    "Method",
    "Named",
    "Stream",
    "ptd_bytes",
    "ptd_file",
    "pte_bytes",
    "pte_file",
    "simple_pte",
    "span_of",
    "vk_blob",
]

ALONE = (1, -1)  # planned memory that no other tensor has; two in one place are a view and its base

Path = str | os.PathLike[str]
Call = c.VkCall | tuple[str, Sequence[int]]
# Any: mypy takes a list of several kinds of value for a list of objects.
VkValues = Sequence[Any]
EValues = Sequence[Any]


# --- .pte -------------------------------------------------------------------------------------------------------------


@dataclass
class DelegateBlob:
    """A delegate to write."""

    blob: bytes
    backend: str = "VulkanBackend"
    compile_specs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class Method:
    """A method to write. The data of a ``TensorValue`` is a span: see :func:`span_of`."""

    name: str = "forward"
    values: EValues = ()
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    instructions: Sequence[c.Instruction] = ()
    delegates: Sequence[DelegateBlob] = ()
    chains: int = 1


def span_of(data: bytes | np.ndarray) -> c.Span:
    """Bytes as a span, for ``TensorValue(data=...)``."""
    raw = b"".join(data_chunks(data))
    return c.Span(c.MappedFile.from_bytes("memory", raw or b"\0"), 0, len(raw))


def simple_pte(
    path: Path,
    values: VkValues,
    calls: Sequence[Call],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[Data] = (),
    *,
    where: str = "named",
    long_ints: bool = False,
    dynamic: bool = False,
    compile_specs: Mapping[str, bytes] | None = None,
    **options: Any,
) -> dict[str, Data]:
    """A program whose one method, ``forward``, is one delegate. Gives its constants by key.

    ``where`` is the place of the constants: ``"named"`` data of the .pte, as an export has them; ``"inline"`` in the
    blob; ``"external"``, to be written with :func:`ptd_file` from the result. ``long_ints`` declares INT32 inputs and
    outputs as INT64 outside the delegate, as exports do; ``dynamic`` makes their shapes upper bounds. ``options`` are
    those of :func:`pte_parts`.
    """
    keys = [_key(index, data) for index, data in enumerate(constants)]
    named = [c.VkConstant(None, key, data_size(data)) for key, data in zip(keys, constants, strict=True)]
    blob = vk_blob(values, calls, inputs, outputs, constants if where == "inline" else named)
    borders = [_border_value(values[i], long_ints, dynamic) for i in [*inputs, *outputs]]
    ids = tuple(range(len(borders)))
    method = Method(
        values=borders,
        inputs=ids[: len(inputs)],
        outputs=ids[len(inputs) :],
        instructions=[c.DelegateCall(0, ids)],
        delegates=[DelegateBlob(blob, compile_specs=compile_specs or {})],
    )
    keyed = dict(zip(keys, constants, strict=True))
    pte_file(path, [method], named_data=keyed if where == "named" else {}, **options)
    return keyed


def pte_file(path: Path, methods: Sequence[Method], **options: Any) -> None:
    """Write a program. Options are those of :func:`pte_parts`."""
    _write(path, pte_parts(methods, **options))


def pte_bytes(methods: Sequence[Method], **options: Any) -> bytes:
    """Return a program in memory. Options are those of :func:`pte_parts`."""
    return b"".join(pte_parts(methods, **options))


def pte_parts(
    methods: Sequence[Method],
    *,
    named_data: Mapping[str, Data] | None = None,
    extended_header: bool | int = True,
    inline_delegates: bool = False,
    inline_constants: bool = False,
    version: int = 0,
) -> Iterator[bytes]:
    """The pieces of a program file, in order.

    ``extended_header`` is its length, 24 or 32: ``True`` is 32, ``False`` leaves it out, which suits a file that needs
    no segments. ``inline_constants`` keeps constants in the flatbuffer, as files did until September 2024. Keys whose
    data is the same object share a segment.
    """
    tensors = [v for m in methods for v in m.values if isinstance(v, c.TensorValue)]
    constants = [v for v in tensors if v.data and not v.planned]
    initial = [v for v in tensors if v.data and v.planned]
    blobs = [d.blob for m in methods for d in m.delegates]
    numbers = {id(v): 1 + index for group in (constants, initial) for index, v in enumerate(group)}
    b, segments = Builder(), Segments(alignment=128)
    constant_buffer = _constant_buffer(b, constants) if inline_constants else None
    constant_segment = None if inline_constants else _region(b, segments, constants)
    mutable_segments = b.tables([_region(b, segments, initial)]) if initial else None
    inline = b.tables([b.table(b.blob(blob)) for blob in blobs if inline_delegates])
    places = list(range(len(blobs))) if inline_delegates else [segments.add(blob) for blob in blobs]
    plans = b.tables([_plan(b, m, numbers, places, inline_delegates) for m in methods])
    named = b.tables([b.table(b.string(k), ("I", segments.add(v))) for k, v in (named_data or {}).items()])
    parts = (plans, constant_buffer, inline, segments.table(b), constant_segment, mutable_segments, named)
    flat = b.done(b.table(("I", version), *parts), b"ET12")
    if not extended_header:
        yield flat
        return
    length, size = 32 if extended_header is True else extended_header, len(flat) + 32
    header = struct.pack("<4sIQQQ", b"eh00", length, size, align(size, 128), segments.size)
    yield splice(flat, header[:length].ljust(32, b"\0"))
    yield bytes(align(size, 128) - size)
    yield from segments.chunks()


def _key(index: int, data: Data) -> str:
    """Return the hash of the content, as the exporter does; a stream is not read."""
    return f"stream{index}" if isinstance(data, Stream) else hashlib.sha256(b"".join(data_chunks(data))).hexdigest()


def _placed(value: c.EValue, index: int) -> c.EValue:
    if isinstance(value, c.TensorValue) and value.place == ALONE:
        return replace(value, place=(1, 64 * index))
    return value


def _border_value(value: c.VkValue, long_ints: bool, dynamic: bool) -> c.EValue:
    if not isinstance(value, c.VkTensor):
        return c.IntValue(0)
    dtype = value.staging_dtype or value.dtype
    if long_ints and dtype is c.DType.INT32:
        dtype = c.DType.INT64
    return c.TensorValue(dtype, value.dims, tuple(range(len(value.dims))), dynamic=dynamic, place=ALONE)


def _region(b: Builder, segments: Segments, tensors: Sequence[c.TensorValue]) -> Offset:
    """Tensors packed into one new segment, as ``SubsegmentOffsets``; number 0 is not a tensor."""
    packed, offsets = bytearray(), [0]
    for tensor in tensors:
        packed.extend(bytes(align(len(packed), 16) - len(packed)))
        offsets.append(len(packed))
        packed.extend(tensor.data.view() if tensor.data else b"")
    return b.table(("I", segments.add(bytes(packed))), b.scalars("Q", offsets))


def _constant_buffer(b: Builder, tensors: Sequence[c.TensorValue]) -> Offset:
    blobs = [b"", *(bytes(tensor.data.view()) for tensor in tensors if tensor.data)]
    return b.tables([b.table(b.blob(blob)) for blob in blobs])


def _plan(b: Builder, method: Method, numbers: dict[int, int], places: list[int], inline: bool) -> Offset:
    """Return one ``ExecutionPlan``; takes from ``places`` those of its delegates."""
    ops = list(dict.fromkeys(i.op for i in method.instructions if isinstance(i, c.KernelCall)))
    instructions = b.tables([_instruction(b, i, ops) for i in method.instructions])
    chain = b.table(None, None, instructions)
    return b.table(
        b.string(method.name),
        None,
        b.tables([_evalue(b, _placed(v, i), numbers.get(id(v), 0)) for i, v in enumerate(method.values)]),
        b.scalars("i", method.inputs),
        b.scalars("i", method.outputs),
        b.tables([chain] * method.chains),
        b.tables([b.table(*(b.string(part) for part in op.partition(".")[::2])) for op in ops]),
        b.tables([_delegate(b, d, places.pop(0), inline) for d in method.delegates]),
        b.scalars("q", (0, _planned_bytes(method))),
    )


def _planned_bytes(method: Method) -> int:
    """Return the size of the memory in which the method's tensors are, which ExecuTorch's runtime allocates."""
    tensors = [v for i, value in enumerate(method.values) if isinstance(v := _placed(value, i), c.TensorValue)]
    largest = max((v.place[1] + math.prod(v.sizes) * 8 for v in tensors if v.place is not None), default=0)
    return min(largest, 2**63 - 1)  # some tests write impossible sizes


def _delegate(b: Builder, delegate: DelegateBlob, place: int, inline: bool) -> Offset:
    specs = [b.table(b.string(key), b.blob(value)) for key, value in delegate.compile_specs.items()]
    processed = b.table(("b", 0 if inline else 1), ("I", place))
    return b.table(b.string(delegate.backend), processed, b.tables(specs))


def _instruction(b: Builder, instruction: c.Instruction, ops: list[str]) -> Offset:
    match instruction:
        case c.KernelCall(op, args):
            kind, member = 1, b.table(("i", ops.index(op)), b.scalars("i", args))
        case c.DelegateCall(delegate, args):
            kind, member = 2, b.table(("i", delegate), b.scalars("i", args))
        case c.MoveCall(source, target):
            kind, member = 3, b.table(("i", source), ("i", target))
        case c.JumpFalseCall(condition, target):
            kind, member = 4, b.table(("i", condition), ("i", target))
        case c.FreeCall(value):
            kind, member = 5, b.table(("i", value))
    return b.table(("B", kind), member)


def _evalue(b: Builder, value: c.EValue, number: int) -> Offset:
    match value:
        case c.NullValue():
            kind, member = 1, b.table()
        case c.IntValue(content):
            kind, member = 2, b.table(("q", content))
        case c.BoolValue(content):
            kind, member = 3, b.table(("?", content))
        case c.DoubleValue(content):
            kind, member = 4, b.table(("d", content))
        case c.TensorValue():
            kind, member = 5, _tensor(b, value, number)
        case c.StringValue(text):
            kind, member = 6, b.table(b.string(text))
        case c.IntListValue(ids):
            kind, member = 7, b.table(b.scalars("q", ids))
        case c.DoubleListValue(items):
            kind, member = 8, b.table(b.scalars("d", items))
        case c.BoolListValue(items):
            kind, member = 9, b.table(b.scalars("?", items))
        case c.TensorListValue(ids):
            kind, member = 10, b.table(b.scalars("i", ids))
        case c.OptionalTensorListValue(optional):
            kind, member = 11, b.table(b.scalars("i", (-1 if i is None else i for i in optional)))
    return b.table(("B", kind), member)


def _tensor(b: Builder, value: c.TensorValue, number: int) -> Offset:
    name = value.name if value.external_name is None else value.external_name
    extra = b.table(None, b.string(name), ("b", int(value.external_name is not None))) if name is not None else None
    return b.table(
        ("b", value.dtype.scalar_type),
        None,
        b.scalars("i", value.sizes),
        b.scalars("B", value.dim_order),
        None,
        ("I", number),
        b.table(("I", value.place[0]), ("I", value.place[1])) if value.place is not None else None,
        None,
        ("b", int(value.dynamic)),
        extra,
    )


# --- .ptd -------------------------------------------------------------------------------------------------------------


@dataclass
class Named:
    """An entry of a .ptd file that describes its tensor."""

    data: Data
    dtype: c.DType
    sizes: Sequence[int]
    dim_order: Sequence[int] | None = None


def ptd_file(path: Path, entries: Mapping[str, Data | Named]) -> None:
    """Write a tensor file."""
    _write(path, ptd_parts(entries))


def ptd_bytes(entries: Mapping[str, Data | Named]) -> bytes:
    """Return a tensor file in memory."""
    return b"".join(ptd_parts(entries))


def ptd_parts(entries: Mapping[str, Data | Named]) -> Iterator[bytes]:
    """Yield the pieces of a tensor file, in order."""
    b, segments, named = Builder(), Segments(alignment=16), []
    for key, entry in entries.items():
        layout = None
        if isinstance(entry, Named):
            order = range(len(entry.sizes)) if entry.dim_order is None else entry.dim_order
            layout = b.table(("b", entry.dtype.scalar_type), b.scalars("i", entry.sizes), b.scalars("B", order))
        index = segments.add(entry.data if isinstance(entry, Named) else entry)
        named.append(b.table(b.string(key), ("I", index), layout))
    flat = b.done(b.table(("I", 0), segments.table(b), b.tables(named)), b"FT01")
    end = len(flat) + 40
    yield splice(flat, struct.pack("<4sIQQQQ", b"FH01", 40, 48, end - 48, align(end, 128), segments.size))
    yield bytes(align(end, 128) - end)
    yield from segments.chunks()


# --- Vulkan delegate blobs --------------------------------------------------------------------------------------------


def vk_blob(
    values: VkValues,
    calls: Sequence[Call],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[Data | c.VkConstant] = (),
) -> bytes:
    """A VH00 blob with its VK00 graph. A constant is data, kept in the blob, or a ``VkConstant`` that has a key."""
    b, raw, entries = Builder(), bytearray(), []
    for constant in constants:
        if isinstance(constant, c.VkConstant):
            key = None if constant.key is None else b.string(constant.key)
            entries.append(b.table(("Q", 2**64 - 1), ("Q", constant.length), key))
        else:
            raw.extend(bytes(align(len(raw), 16) - len(raw)))
            entries.append(b.table(("Q", len(raw)), ("Q", data_size(constant))))
            raw.extend(b"".join(data_chunks(constant)))
    full = [
        call if isinstance(call, c.VkCall) else c.VkCall(i, call[0], tuple(call[1])) for i, call in enumerate(calls)
    ]
    root = b.table(
        b.string("0"),
        b.tables([b.table(("I", call.node_id), b.string(call.name), b.scalars("i", call.args)) for call in full]),
        b.tables([_vk_value(b, value) for value in values]),
        b.scalars("I", inputs),
        b.scalars("I", outputs),
        b.tables(entries),
    )
    flat = b.done(root, b"VK00")
    end = align(32 + len(flat), 16)
    header = struct.pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(flat), end, len(raw))
    return header + flat.ljust(end - 32, b"\0") + raw


def _vk_value(b: Builder, value: c.VkValue) -> Offset:
    match value:
        case c.VkNull():
            kind, member = 1, b.table()
        case c.VkInt(content):
            kind, member = 2, b.table(("q", content))
        case c.VkDouble(content):
            kind, member = 3, b.table(("d", content))
        case c.VkBool(content):
            kind, member = 4, b.table(("?", content))
        case c.VkTensor(dtype, dims, constant_id, mem_obj_id, staging):
            ids = ("i", constant_id), ("i", mem_obj_id)
            staged = None if staging is None else ("b", staging.vulkan)
            kind, member = 5, b.table(("b", dtype.vulkan), b.scalars("I", dims), *ids, None, None, staged)
        case c.VkIntList(items):
            kind, member = 6, b.table(b.scalars("q", items))
        case c.VkDoubleList(items):
            kind, member = 7, b.table(b.scalars("d", items))
        case c.VkBoolList(items):
            kind, member = 8, b.table(b.scalars("?", items))
        case c.VkValueList(items):
            kind, member = 9, b.table(b.scalars("i", items))
        case c.VkString(text):
            kind, member = 10, b.table(b.string(text))
        case c.VkSymInt(content):
            kind, member = 11, b.table(("i", content))
    return b.table(("B", kind), member)


def _write(path: Path, parts: Iterable[bytes]) -> None:
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)
