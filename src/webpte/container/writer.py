"""Write .pte programs, .ptd tensors and Vulkan delegate blobs: the inverse of the parsers.

A file has the layout that ExecuTorch 1.x writes: the flatbuffer, then segments at multiples of `SEGMENT_ALIGNMENT`
in the order constants, initial values, delegates, named data. Equal ranges become one segment. Data is viewed when it
is written, one range at a time, so a program may be larger than the memory (:meth:`Span.computed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack_into
from typing import BinaryIO

from ..errors import InputError
from .files import Span
from .flat import MAX_NAME_CHARS, quoted_name
from .flat_writer import (
    FieldValue,
    ScalarField,
    TableFields,
    TableVector,
    flatbuffer,
    number,
    table,
    tables,
    union,
    vector,
)
from .program import (
    Delegate,
    DelegateCall,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MethodPlan,
    MoveCall,
    ProgramFile,
)
from .tensor_data import NamedTensor, TensorFile
from .values import (
    BoolListValue,
    BoolValue,
    DoubleListValue,
    DoubleValue,
    EValue,
    IntListValue,
    IntValue,
    NullValue,
    OptionalTensorListValue,
    StringValue,
    TensorListValue,
    TensorValue,
)

SEGMENT_ALIGNMENT = 128  # of segments of a .pte file, and of the first one
TENSOR_ALIGNMENT = 16  # of tensors inside a segment, and of segments of a .ptd file
_PTE_HEADER = 40  # bytes after the identifier: 32 of the header, padded so that the tables are at a multiple of 16
_PTD_HEADER = 40


def write_program(file: BinaryIO, program: ProgramFile) -> None:
    """Write a .pte file. ``program.path`` is not used."""
    _check_names("method", [method.name for method in program.methods])
    _check_names("named data", program.named_data)
    values = [value for method in program.methods for value in method.values if isinstance(value, TensorValue)]
    constants, initial = _TensorRegion(), _TensorRegion()
    for value in values:
        _check_tensor(value)
        if value.data is not None:
            (initial if value.planned else constants).add(value.data)
    segments = _Segments(SEGMENT_ALIGNMENT)
    constant_segment = constants.table(segments)
    mutable_segments = tables([initial.table(segments)]) if initial.numbers else None
    plans = [_plan(method, segments, constants, initial) for method in program.methods]
    named = [table(key, number("I", segments.add([span], span))) for key, span in program.named_data.items()]
    root = table(
        number("I", program.version),
        tables(plans),
        tables([]),
        tables([]),
        segments.table(),
        constant_segment,
        mutable_segments,
        tables(named) if named else None,
    )
    if not segments.size:  # a file without data has no header
        file.write(flatbuffer(root, b"ET12"))
        return
    flat = flatbuffer(root, b"ET12", _PTE_HEADER)
    base = align(len(flat), SEGMENT_ALIGNMENT)
    pack_into("<4sIQQQ", flat, 8, b"eh00", 32, len(flat), base, segments.size)
    file.write(flat.ljust(base, b"\0"))
    segments.write(file)


def write_tensors(file: BinaryIO, tensors: TensorFile) -> None:
    """Write a .ptd file. ``tensors.path`` is not used."""
    _check_names("tensor", tensors.entries)
    segments = _Segments(TENSOR_ALIGNMENT)
    named = [
        table(key, number("I", segments.add([entry.span], entry.span)), _layout(entry))
        for key, entry in tensors.entries.items()
    ]
    flat = flatbuffer(table(None, segments.table(), tables(named)), b"FT01", _PTD_HEADER)
    start = 8 + _PTD_HEADER
    base = align(len(flat), SEGMENT_ALIGNMENT)
    pack_into("<4sIQQQQ", flat, 8, b"FH01", 40, start, len(flat) - start, base, segments.size)
    file.write(flat.ljust(base, b"\0"))
    segments.write(file)


def _layout(entry: NamedTensor) -> TableFields | None:
    if entry.dtype is None or entry.sizes is None:
        return None
    order = entry.dim_order if entry.dim_order is not None else range(len(entry.sizes))
    return table(number("b", entry.dtype.scalar_type or 0), vector("i", entry.sizes), vector("B", order))


class _Segments:
    """The data after a flatbuffer."""

    def __init__(self, alignment: int) -> None:
        self.size = 0
        self._alignment = alignment
        self._entries: list[tuple[int, int, Sequence[Span]]] = []
        self._known: dict[Span, int] = {}

    def add(self, parts: Sequence[Span], key: Span | None = None) -> int:
        """Return the index of a segment of these ranges, each aligned as a tensor. Equal keys share a segment."""
        if key is not None and key in self._known:
            return self._known[key]
        offset, size = align(self.size, self._alignment), 0
        for part in parts:
            size = align(size, TENSOR_ALIGNMENT) + part.size
        self.size = offset + size
        self._entries.append((offset, size, parts))
        if key is not None:
            self._known[key] = len(self._entries) - 1
        return len(self._entries) - 1

    def table(self) -> TableVector:
        return tables(table(number("Q", offset), number("Q", size)) for offset, size, _ in self._entries)

    def write(self, file: BinaryIO) -> None:
        position = 0
        for offset, _, parts in self._entries:
            file.write(bytes(offset - position))
            position = offset
            for part in parts:
                padding = -(position - offset) % TENSOR_ALIGNMENT
                file.write(bytes(padding))
                file.write(part.view())
                position += padding + part.size


class _TensorRegion:
    """Tensors in one segment. Tensors are numbered from 1: number 0 means no data."""

    def __init__(self) -> None:
        self.numbers: dict[Span, int] = {}
        self._offsets = [0]
        self._end = 0

    def add(self, span: Span) -> None:
        if span not in self.numbers:
            self.numbers[span] = len(self._offsets)
            self._offsets.append(align(self._end, TENSOR_ALIGNMENT))
            self._end = self._offsets[-1] + span.size

    def table(self, segments: _Segments) -> TableFields:
        return table(number("I", segments.add(list(self.numbers))), vector("Q", self._offsets))


def _plan(method: MethodPlan, segments: _Segments, constants: _TensorRegion, initial: _TensorRegion) -> TableFields:
    ops = list(dict.fromkeys(step.op for step in method.instructions if isinstance(step, KernelCall)))
    chain = table(vector("i", ()), vector("i", ()), tables(_instruction(step, ops) for step in method.instructions))
    return table(
        method.name,
        table("", ""),  # the pytrees of inputs and outputs, which only Python callers of an exported program know
        tables(_value(value, constants, initial) for value in method.values),
        vector("i", method.inputs),
        vector("i", method.outputs),
        tables([chain]),
        tables(table(*op.partition(".")[::2]) for op in ops),
        tables(_delegate(delegate, segments) for delegate in method.delegates),
        vector("q", _pool_sizes(method)),
    )


def _pool_sizes(method: MethodPlan) -> list[int]:
    """Return the bytes of each memory pool that tensors are planned in. Pool 0 does not exist."""
    ends: dict[int, int] = {}
    for value in method.values:
        if isinstance(value, TensorValue) and value.place is not None:
            pool, offset = value.place
            ends[pool] = max(ends.get(pool, 0), offset + value.nbytes)
    return [align(ends.get(pool, 0), TENSOR_ALIGNMENT) for pool in range(max(ends, default=0) + 1)]


def _delegate(delegate: Delegate, segments: _Segments) -> TableFields:
    _check_names("compile spec", delegate.compile_specs)
    blob = table(number("b", 1), number("I", segments.add([delegate.blob], delegate.blob)))
    return table(delegate.backend, blob, tables(table(key, data) for key, data in delegate.compile_specs.items()))


def _instruction(step: Instruction, ops: list[str]) -> TableFields:
    match step:
        case KernelCall(op, args):
            return union(1, number("i", ops.index(op)), vector("i", args))
        case DelegateCall(delegate, args):
            return union(2, number("i", delegate), vector("i", args))
        case MoveCall(source, target):
            return union(3, number("i", source), number("i", target))
        case JumpFalseCall(condition, target):
            return union(4, number("i", condition), number("i", target))
        case FreeCall(value):
            return union(5, number("i", value))


def _value(value: EValue, constants: _TensorRegion, initial: _TensorRegion) -> TableFields:
    match value:
        case NullValue():
            return union(1)
        case IntValue(content):
            return union(2, number("q", content))
        case BoolValue(content):
            return union(3, number("?", content))
        case DoubleValue(content):
            return union(4, ScalarField("d", content))  # -0.0 equals the default
        case TensorValue():
            return union(5, *_tensor(value, initial if value.planned else constants))
        case StringValue(text):
            return union(6, text)
        case IntListValue(ids):
            return union(7, vector("q", ids))
        case DoubleListValue(values):
            return union(8, vector("d", values))
        case BoolListValue(flags):
            return union(9, vector("?", flags))
        case TensorListValue(ids):
            return union(10, vector("i", ids))
        case OptionalTensorListValue(optional):
            return union(11, vector("i", (-1 if index is None else index for index in optional)))


def _tensor(value: TensorValue, region: _TensorRegion) -> tuple[FieldValue, ...]:
    external = value.external_name is not None
    name = value.external_name if external else value.name
    return (
        number("b", value.dtype.scalar_type or 0),
        None,
        vector("i", value.sizes),
        vector("B", value.dim_order),
        None,
        number("I", 0 if value.data is None else region.numbers[value.data]),
        None if value.place is None else _place(*value.place),
        None,
        number("b", value.dynamic),
        None if name is None else table(None, name, number("b", external)),
    )


def _place(pool: int, offset: int) -> TableFields:
    return table(number("I", pool), number("I", offset & 0xFFFFFFFF), number("I", offset >> 32))


# -- rules of ExecuTorch's runtime that the types do not express -------------------------------------------------------


def _check_names(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or len(name) > MAX_NAME_CHARS or not name.isprintable() or name in seen:
            raise InputError(
                argument=what,
                expected=f"different names of 1 to {MAX_NAME_CHARS} printable characters",
                got=quoted_name(name),
                code="invalid_name",
            )
        seen.add(name)


def _check_tensor(value: TensorValue) -> None:
    """Check what the runtime refuses when it loads a method."""
    where = f"tensor {quoted_name(value.name or '')}"
    if value.data is not None and value.data.size != value.nbytes:
        raise InputError(
            argument=where, expected=f"{value.nbytes} bytes of data", got=value.data.size, code="data_size"
        )
    if sorted(value.dim_order) != list(range(len(value.sizes))):
        raise InputError(
            argument=where, expected=f"an order of {len(value.sizes)} dimensions", got=value.dim_order, code="dim_order"
        )
    if value.place is not None and (value.place[0] < 1 or value.place[1] % TENSOR_ALIGNMENT):
        raise InputError(
            argument=where,
            expected=f"memory in pool 1 or above, at a multiple of {TENSOR_ALIGNMENT} bytes",
            got=value.place,
            code="memory_place",
        )


def align(position: int, to: int) -> int:
    """Return the next multiple of ``to``."""
    return -(-position // to) * to
