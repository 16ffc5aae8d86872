"""Parse the blob of a Vulkan delegate: a VH00 header, a VK00 graph, then raw bytes of constants.

Slots are those of ExecuTorch's ``backends/vulkan/serialization/schema.fbs``. Storage types and memory layouts are not
read: constants are always dense and row-major, and a backend of buffers has no textures.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from

from ..errors import FormatError
from .dtypes import DType
from .files import Span
from .flat import FlatBuffer, FlatTable
from .tensor_data import count_bytes, read_dtype, read_sizes

HEADER_SIZE = 30
NAMED_OFFSET = 2**64 - 1  # of a constant that is not in the blob
UNSET_DTYPE = 127


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
    staging_dtype: DType | None = None  # as input or output of the delegate, if not ``dtype``


@dataclass(frozen=True, slots=True)
class VkIntList:
    """Literal integers."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkDoubleList:
    """Literal floating point numbers."""

    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VkBoolList:
    """Literal booleans."""

    values: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class VkValueList:
    """Values by id: an argument that is a list, or the outputs of an operator that has several."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VkSymInt:
    """An integer that a run of the graph computes."""

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
    """Data of a tensor: a range of the blob, or the key of named data."""

    span: Span | None
    key: str | None
    length: int


@dataclass(frozen=True, slots=True)
class VkGraph:
    """The contents of a blob. Ids, wherever they occur, index ``values``; ``constant_id`` indexes ``constants``."""

    version: str
    values: tuple[VkValue, ...]
    calls: tuple[VkCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[VkConstant, ...]


def parse_vulkan(blob: Span) -> VkGraph:
    """Parse and check the blob of a delegate of the backend ``VulkanBackend``."""
    flatbuffer, raw = _read_header(blob)
    root = FlatBuffer(flatbuffer).root("graph", b"VK", "a Vulkan delegate graph (VK00)")
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
    """Return the ranges of the flatbuffer and of the raw bytes."""
    where = f"{blob.file.path}: delegate blob of {blob.size} bytes at byte {blob.offset}"
    start = bytes(blob.sub(0, min(blob.size, HEADER_SIZE)).view())
    if len(start) < HEADER_SIZE or start[4:8] != b"VH00":
        raise FormatError(
            f"not a Vulkan delegate: expected 'VH00' at byte 4, got {start[:16]!r}", argument=where, code="bad_magic"
        )
    length, flat_at, flat_size, raw_at, raw_size = unpack_from("<HIIIQ", start, 8)
    raw_end = raw_at + raw_size
    if length < HEADER_SIZE or not length <= flat_at < flat_at + flat_size <= raw_at <= raw_end <= blob.size:
        raise FormatError(
            f"expected header, flatbuffer and constants in this order, got a header of {length} bytes, a flatbuffer at"
            f" {flat_at} to {flat_at + flat_size} and constants at {raw_at} to {raw_end}",
            argument=where,
            code="invalid_header",
        )
    return blob.sub(flat_at, flat_size), blob.sub(raw_at, raw_size or blob.size - raw_at)


def _read_constant(entry: FlatTable, raw: Span) -> VkConstant:
    offset, length = entry.u64(0, "offset"), entry.u64(1, "length")
    if offset == NAMED_OFFSET:
        return VkConstant(None, entry.text(2, "named_key"), length)
    if offset + length > raw.size:
        raise entry.error(
            f"is at bytes {offset} to {offset + length} of the constants, which have {raw.size} bytes",
            code="segment_out_of_bounds",
        )
    return VkConstant(raw.sub(offset, length), None, length)


def _read_call(entry: FlatTable, count: int) -> VkCall:
    return VkCall(entry.u32(0, "node_id"), entry.text(1, "name"), entry.indices(2, "args", count, "value"))


def _read_value(entry: FlatTable, count: int, constants: tuple[VkConstant, ...]) -> VkValue:
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
    raise entry.error(f"value of unknown kind {kind}. The file may be newer than webpte", code="unknown_kind")


def _read_tensor(table: FlatTable, constants: tuple[VkConstant, ...]) -> VkTensor:
    dtype = read_dtype(table, 0, "datatype", DType.from_vulkan)
    dims = read_sizes(table, 1, "dims", "I")
    # The schema's default for both ids is 0, a real id: only the exporter's explicit -1 means none.
    constant_id, mem_obj_id = table.i32(2, "constant_id"), table.i32(3, "mem_obj_id")
    if constant_id >= len(constants):
        raise table.error(
            f"constant {constant_id} is out of range: there are {len(constants)}",
            "constant_id",
            code="index_out_of_range",
        )
    if constant_id >= 0 and (needed := count_bytes(dtype, dims)) > (length := constants[constant_id].length):
        raise table.error(
            f"tensor of {needed} bytes, its constant {constant_id} has {length}", "constant_id", code="data_too_small"
        )
    staging = table.i8(6, "staging_datatype", UNSET_DTYPE)
    return VkTensor(
        dtype=dtype,
        dims=dims,
        constant_id=max(constant_id, -1),
        mem_obj_id=max(mem_obj_id, -1),
        staging_dtype=None if staging == UNSET_DTYPE else read_dtype(table, 6, "staging_datatype", DType.from_vulkan),
    )
