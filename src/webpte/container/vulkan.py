"""The blob of a Vulkan delegate: a VH00 header, a VK00 graph, then raw bytes of constants.

Slots are those of ExecuTorch's ``backends/vulkan/serialization/schema.fbs``. Storage types and memory layouts are not
read: constants are dense and row-major whatever they say, and a buffer backend has no use for textures.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from

from ..errors import FormatError
from .dtypes import DType
from .files import Span
from .flat import Flat, Table
from .layout import count_bytes, read_dtype, read_sizes

_HEADER_SIZE = 30
_NAMED = 2**64 - 1  # the offset of a constant that is not in the blob
_UNSET = 127


@dataclass(frozen=True, slots=True)
class VkNull:
    """None."""


@dataclass(frozen=True, slots=True)
class VkInt:
    """An integer. The exporter merges equal numbers, so an operator's float may be one of these."""

    value: int


@dataclass(frozen=True, slots=True)
class VkDouble:
    """A floating point number. The exporter merges equal numbers, so an operator's integer may be one of these."""

    value: float


@dataclass(frozen=True, slots=True)
class VkBool:
    """A boolean."""

    value: bool


@dataclass(frozen=True, slots=True)
class VkString:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class VkTensor:
    """A tensor, at its largest shape."""

    dtype: DType
    dims: tuple[int, ...]
    constant_id: int = -1  # index of its data among the graph's constants, -1 for none
    mem_obj_id: int = -1  # tensors with the same number may share memory, -1 for none
    staging_dtype: DType | None = None  # how it crosses the border of the delegate, if not as ``dtype``


@dataclass(frozen=True, slots=True)
class VkIntList:
    """Integers, literally."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkDoubleList:
    """Floating point numbers, literally."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VkBoolList:
    """Booleans, literally."""

    values: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class VkValueList:
    """Values by id: an argument that is a list, or the outputs of an operator that has several."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkSymInt:
    """An integer that is known only when the graph runs."""

    value: int = 0


VkValue = (
    VkNull
    | VkInt
    | VkDouble
    | VkBool
    | VkString
    | VkTensor
    | VkIntList
    | VkDoubleList
    | VkBoolList
    | VkValueList
    | VkSymInt
)


@dataclass(frozen=True, slots=True)
class VkCall:
    """One operator; ``args`` are all of its schema's arguments, then its output."""

    node_id: int
    name: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkConstant:
    """Data of a tensor: a range of the blob, or else the key of named data."""

    span: Span | None
    key: str | None
    length: int


@dataclass(frozen=True, slots=True)
class VkGraph:
    """Everything a blob says. Ids, wherever they occur, index ``values``; ``constant_id`` indexes ``constants``."""

    version: str
    values: tuple[VkValue, ...]
    calls: tuple[VkCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[VkConstant, ...]


def parse_vulkan(blob: Span) -> VkGraph:
    """Read and check the blob of a delegate whose backend is ``VulkanBackend``."""
    flatbuffer, raw = _read_header(blob)
    root = Flat(flatbuffer).root("graph", b"VK", "a Vulkan delegate graph (VK00)")
    count = root.count(2, "values")
    constants = tuple(_read_constant(entry, raw) for entry in root.tables(5, "constants"))
    return VkGraph(
        version=root.string(0, "version") or "",
        values=tuple(_read_value(entry, count, constants) for entry in root.tables(2, "values")),
        calls=tuple(_read_call(entry, count) for entry in root.tables(1, "chain")),
        inputs=root.indices(3, "input_ids", count, "value", code="I"),
        outputs=root.indices(4, "output_ids", count, "value", code="I"),
        constants=constants,
    )


def _read_header(blob: Span) -> tuple[Span, Span]:
    """Where the flatbuffer is, and where the raw bytes are."""
    where = f"{blob.file.path}: delegate blob of {blob.size} bytes at byte {blob.offset}"
    start = bytes(blob.sub(0, min(blob.size, _HEADER_SIZE)).view())
    if len(start) < _HEADER_SIZE or start[4:8] != b"VH00":
        raise FormatError(
            f"{where}: not a Vulkan delegate: 'VH00' expected at byte 4 of {start[:16]!r}", code="bad_magic"
        )
    length, flat_at, flat_size, raw_at, raw_size = unpack_from("<HIIIQ", start, 8)
    raw_end = raw_at + raw_size
    if length < _HEADER_SIZE or not length <= flat_at < flat_at + flat_size <= raw_at <= raw_end <= blob.size:
        raise FormatError(
            f"{where}: header of {length} bytes, flatbuffer at {flat_at} to {flat_at + flat_size}, constants at"
            f" {raw_at} to {raw_end}: these must follow each other inside the blob",
            code="invalid_header",
        )
    return blob.sub(flat_at, flat_size), blob.sub(raw_at, raw_size or blob.size - raw_at)


def _read_constant(entry: Table, raw: Span) -> VkConstant:
    offset, length = entry.u64(0, "offset"), entry.u64(1, "length")
    if offset == _NAMED:
        return VkConstant(None, entry.text(2, "named_key"), length)
    if offset + length > raw.size:
        raise entry.error(
            f"needs bytes {offset} to {offset + length} of the constants, which have {raw.size} bytes",
            code="segment_out_of_bounds",
        )
    return VkConstant(raw.sub(offset, length), None, length)


def _read_call(entry: Table, count: int) -> VkCall:
    return VkCall(entry.u32(0, "node_id"), entry.text(1, "name"), entry.indices(2, "args", count, "value"))


def _read_value(entry: Table, count: int, constants: tuple[VkConstant, ...]) -> VkValue:
    kind, table = entry.union(0, "value")
    match kind:
        case 1:
            return VkNull()
        case 2:
            return VkInt(table.i64(0, "int_val"))
        case 3:
            return VkDouble(table.f64(0, "double_val"))
        case 4:
            return VkBool(table.bool_(0, "bool_val"))
        case 5:
            return _read_tensor(table, constants)
        case 6:
            return VkIntList(table.ints(0, "items", "q"))
        case 7:
            return VkDoubleList(table.floats(0, "items"))
        case 8:
            return VkBoolList(table.bools(0, "items"))
        case 9:
            return VkValueList(table.indices(0, "items", count, "value"))
        case 10:
            return VkString(table.string(0, "string_val") or "")
        case 11:
            return VkSymInt(table.i32(0, "value"))
    raise entry.error(f"value of unknown kind {kind}; the file may be newer than webpte", code="unknown_kind")


def _read_tensor(table: Table, constants: tuple[VkConstant, ...]) -> VkTensor:
    dtype = read_dtype(table, 0, "datatype", DType.from_vulkan)
    dims = read_sizes(table, 1, "dims", "I")
    # The schema's default for both ids is 0, a real id: only the exporter's explicit -1 means none.
    constant_id, mem_obj_id = table.i32(2, "constant_id"), table.i32(3, "mem_obj_id")
    if constant_id >= len(constants):
        raise table.error(
            f"constant {constant_id} is out of range, there are {len(constants)}",
            "constant_id",
            code="index_out_of_range",
        )
    if constant_id >= 0 and (needed := count_bytes(dtype, dims)) > (length := constants[constant_id].length):
        raise table.error(
            f"tensor of {needed} bytes, its constant {constant_id} has {length}", "constant_id", code="data_too_small"
        )
    staging = table.i8(6, "staging_datatype", _UNSET)
    return VkTensor(
        dtype=dtype,
        dims=dims,
        constant_id=max(constant_id, -1),
        mem_obj_id=max(mem_obj_id, -1),
        staging_dtype=None if staging == _UNSET else read_dtype(table, 6, "staging_datatype", DType.from_vulkan),
    )
