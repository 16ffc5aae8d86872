"""Parse the blob of an XNNPACK delegate: an XH00 header, an XN01 graph, and constants by key, by range or inline.

Slots are those of ExecuTorch's ``backends/xnnpack/serialization/runtime_schema.fbs``, which all releases have only
extended. ExecuTorch 0.1 wrote the flatbuffer alone (XN00, constants inside), 0.2 to 0.5 constants after the flatbuffer,
and 0.6 and later keys of named data.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import unpack_from
from types import MappingProxyType

from ..errors import FormatError
from .files import Span
from .flat import FlatBuffer, FlatTable
from .tensor_data import read_sizes

_HEADER_SIZE = 30
_NO_VALUE = 2**32 - 1
_NAMED_OFFSET = 2**64 - 1
_INPUT, _OUTPUT = 1, 2  # flags of a value
_MAX_ITEMS = 16  # in a list of a node: dims of a tensor


class XnnType(enum.Enum):
    """The element type of a value: its code in files, and its bits per element."""

    FP32 = (1, 32)
    FP16 = (2, 16)
    QINT8 = (3, 8)  # one scale and zero point
    QUINT8 = (4, 8)
    QINT32 = (5, 32)  # a bias of statically quantized layers
    QCINT8 = (6, 8)  # one scale per channel
    QCINT32 = (7, 32)
    QCINT4 = (8, 4)
    QDINT8 = (9, 8)  # quantized at run time
    QBINT4 = (10, 4)  # one scale per group of a row
    QPINT8 = (11, 8)
    INT32 = (12, 32)
    PFP32 = (13, 32)
    BF16 = (14, 16)

    def __init__(self, code: int, bits: int) -> None:
        self.code = code
        self.bits = bits


_TYPES = {item.code: item for item in XnnType}


@dataclass(frozen=True, slots=True)
class XnnConstant:
    """Data of a value or of its scales: a range of the blob, or the key of named data."""

    span: Span | None
    key: str | None
    length: int


@dataclass(frozen=True, slots=True)
class XnnQuant:
    """How codes are scaled. Scales are in the blob, or constant number ``scale_data`` (0 for none)."""

    kind: str  # "tensor", "channel", "token" or "group"
    scales: tuple[float, ...] = ()
    zero_point: int = 0
    channel_dim: int = 0
    group_size: int = 0
    scale_data: int = 0
    inner_dims: int = 0  # of "token": dims at the end that share a scale


@dataclass(frozen=True, slots=True)
class XnnValue:
    """A tensor, at its largest shape, in the order of dims that the nodes around it use."""

    type: XnnType
    dims: tuple[int, ...]
    constant: int = 0  # index of its data among the graph's constants, 0 for none
    argument: int | None = None  # its position among the arguments of the delegate's call
    is_input: bool = False
    is_output: bool = False
    quant: XnnQuant | None = None
    quantized_on_entry: bool = False  # in files of 0.1: users read it quantized at run time, per row


@dataclass(frozen=True, slots=True)
class XnnNode:
    """One operator: value ids, numbers and lists by the names of their fields."""

    type: str
    ids: Mapping[str, int]  # an operand that is absent, such as a bias, is not in it
    numbers: Mapping[str, int]
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    factor: float = 0.0  # slope, alpha or the value of a padding
    clamp: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class XnnGraph:
    """The contents of a blob. Ids index ``values``, which are in order of definition, as are the nodes."""

    values: tuple[XnnValue, ...]
    nodes: tuple[XnnNode, ...]
    arguments: int
    constants: tuple[XnnConstant, ...]


# Fields in order of their slots: a value id "%name", a list "name[]", a float "~name", or a number.
_UNARY = "%input %output flags"
_BINARY = "%input1 %input2 %output flags"
_PADS = "pad_top pad_right pad_bottom pad_left"
_CONV = (
    f"{_PADS} kernel_h kernel_w stride_h stride_w dilation_h dilation_w group_in group_out groups adjust_h adjust_w"
    " %input %filter %bias %output flags"
)
_POOL = f"{_PADS} kernel_h kernel_w stride_h stride_w dilation_h dilation_w %input %output flags"
_CAT = "axis %input1 %input2 %input3 %input4 %output flags %input5"
NODE_FIELDS: dict[int, tuple[str, tuple[str, ...]]] = {
    number: (name, tuple(fields.split()))
    for number, (name, fields) in enumerate(
        [
            ("Add", _BINARY),
            ("FullyConnected", "%input %filter %bias %output flags"),
            ("Softmax", _UNARY),
            ("Sigmoid", _UNARY),
            ("StaticTranspose", "num_dims perm[] %input %output flags"),
            ("Clamp", _UNARY),
            ("Conv2d", _CONV),
            ("Div", _BINARY),
            ("StaticResizeBilinear2D", "new_h new_w %input %output flags"),
            ("StaticConstantPad", "pre[] post[] ~value %input %output flags"),
            ("AvgPooling2d", _POOL),
            ("Minimum", _BINARY),
            ("DepthwiseConv2d", _CONV),
            ("MaxPooling2d", _POOL),
            ("Multiply", _BINARY),
            ("Subtract", _BINARY),
            ("Floor", _UNARY),
            ("Convert", _UNARY),
            ("GlobalAvgPooling2d", _UNARY),
            ("StaticReshape", "num_dims shape[] %input %output flags"),
            ("ArgMaxPooling2d", f"{_PADS} kernel_h kernel_w %input %output %output_index flags"),
            ("SquareRoot", _UNARY),
            ("Ceiling", _UNARY),
            ("Hardswish", _UNARY),
            ("LeakyReLU", "~slope %input %output flags"),
            ("Maximum", _BINARY),
            ("Negate", _UNARY),
            ("Square", _UNARY),
            ("ELU", "~alpha %input %output flags"),
            ("Abs", _UNARY),
            ("PReLU", _BINARY),
            ("Concatenate2", _CAT),
            ("Concatenate3", _CAT),
            ("Concatenate4", _CAT),
            ("StaticSlice", "num_dims offsets[] sizes[] %input %output flags"),
            ("ScaledDotProductAttention", "%query %key %value %scale %mask %output flags"),
            ("BatchMatrixMultiply", _BINARY),
            ("Concatenate5", _CAT),
            ("ConvTranspose2d", _CONV),
            ("ReciprocalSquareRoot", _UNARY),
            ("Log", _UNARY),
            ("Gelu", _UNARY),
            ("Tanh", _UNARY),
            ("Exp", _UNARY),
            ("Sin", _UNARY),
            ("Copy", _UNARY),
            ("Cos", _UNARY),
        ],
        start=1,
    )
}


def parse_xnnpack(blob: Span) -> XnnGraph:
    """Parse and check the blob of a delegate of the backend ``XnnpackBackend``."""
    flatbuffer, raw = _read_header(blob)
    root = FlatBuffer(flatbuffer).root("graph", b"XN0", "an XNNPACK delegate graph (XN00 or XN01)")
    count, arguments = root.count(2, "xvalues"), root.u32(3, "num_externs")
    constants = _read_constants(root, raw)
    return XnnGraph(
        values=tuple(
            _read_value(e, number, arguments, constants) for number, e in enumerate(root.tables(2, "xvalues"))
        ),
        nodes=tuple(_read_node(entry, count) for entry in root.tables(1, "xnodes")),
        arguments=arguments,
        constants=constants,
    )


def _read_header(blob: Span) -> tuple[Span, Span]:
    """Return the ranges of the flatbuffer and of the raw bytes. Without a header, the blob is the flatbuffer."""
    start = bytes(blob.sub(0, min(blob.size, _HEADER_SIZE)).view())
    if start[4:8] != b"XH00":
        return blob, blob.sub(blob.size, 0)
    where = f"{blob.file.path}: delegate blob of {blob.size} bytes at byte {blob.offset}"
    if len(start) < _HEADER_SIZE:
        raise FormatError("the header is truncated", argument=where, code="invalid_header")
    length, flat_at, flat_size, raw_at, raw_size = unpack_from("<HIIIQ", start, 8)
    raw_end = raw_at + raw_size
    if length < _HEADER_SIZE or not length <= flat_at < flat_at + flat_size <= raw_at <= raw_end <= blob.size:
        raise FormatError(
            f"expected header, flatbuffer and constants in this order, got a header of {length} bytes, a flatbuffer at"
            f" {flat_at} to {flat_at + flat_size} and constants at {raw_at} to {raw_end}",
            argument=where,
            code="invalid_header",
        )
    return blob.sub(flat_at, flat_size), blob.sub(raw_at, raw_size)


def _read_constants(root: FlatTable, raw: Span) -> tuple[XnnConstant, ...]:
    inline = [entry.blob(0, "storage") for entry in root.tables(6, "constant_buffer")]
    if inline:
        return tuple(XnnConstant(span, None, 0 if span is None else span.size) for span in inline)
    return tuple(_read_constant(entry, raw) for entry in root.tables(8, "constant_data"))


def _read_constant(entry: FlatTable, raw: Span) -> XnnConstant:
    offset, length, key = entry.u64(0, "offset"), entry.u64(1, "size"), entry.label(2, "named_key")
    if key:
        return XnnConstant(None, key, length)
    if offset == _NAMED_OFFSET:  # the first entry, which stands for none
        return XnnConstant(None, None, 0)
    if offset + length > raw.size:
        raise entry.error(
            f"is at bytes {offset} to {offset + length} of the constants, which have {raw.size} bytes",
            code="segment_out_of_bounds",
        )
    return XnnConstant(raw.sub(offset, length), None, length)


def _read_value(entry: FlatTable, number: int, arguments: int, constants: tuple[XnnConstant, ...]) -> XnnValue:
    kind, table = entry.union(0, "xvalue_union")
    quant = None
    if kind == 2:
        quant = _read_quant(table, len(constants))
        tensor = table.table(0, "tensor_value")
        if tensor is None:
            raise table.error("missing", "tensor_value", code="missing_field")
        table = tensor
    elif kind != 1:
        raise entry.error(f"value of unknown kind {kind}. The file may be newer than webpte", code="unknown_kind")
    if (own := table.u32(6, "id_out")) != number:
        raise table.error(f"is {own}, expected {number}, its position", "id_out", code="index_out_of_range")
    code, dims, flags = table.i16(0, "datatype"), read_sizes(table, 2, "dims", "I"), table.u32(5, "flags")
    if (element := _TYPES.get(code)) is None:
        raise table.error(f"unsupported XNNPACK data type {code}", "datatype", code="unknown_dtype")
    constant = table.u32(3, "constant_buffer_idx")
    if constant:
        _check_data(table, element, dims, constant, constants)
    argument = table.u32(4, "external_id")
    external = flags & (_INPUT | _OUTPUT)
    if external and (argument >= arguments or external == _INPUT | _OUTPUT or constant):
        raise table.error(
            f"argument {argument} of {arguments}, with flags {flags} and constant {constant}",
            "external_id",
            code="index_out_of_range",
        )
    return XnnValue(
        type=element,
        dims=dims,
        constant=constant,
        argument=argument if external else None,
        is_input=bool(flags & _INPUT),
        is_output=bool(flags & _OUTPUT),
        quant=quant,
        quantized_on_entry=table.i16(7, "dq_datatype") == XnnType.QINT8.code,
    )


def _check_data(
    table: FlatTable, element: XnnType, dims: tuple[int, ...], constant: int, constants: tuple[XnnConstant, ...]
) -> None:
    if constant >= len(constants):
        raise table.error(
            f"constant {constant} is out of range: there are {len(constants)}",
            "constant_buffer_idx",
            code="index_out_of_range",
        )
    if (needed := count_code_bytes(element, dims)) > (length := constants[constant].length):
        raise table.error(
            f"tensor of {needed} bytes, its constant {constant} has {length}",
            "constant_buffer_idx",
            code="data_too_small",
        )


def count_code_bytes(element: XnnType, dims: tuple[int, ...]) -> int:
    """Return the number of bytes of a dense tensor. Rows of 4-bit codes start at a byte."""
    total = element.bits // 8
    if element.bits == 4:
        dims, total = (*dims[:-1], -(-dims[-1] // 2) if dims else 1), 1
    for dim in dims:
        total *= dim
    return total


def _read_quant(table: FlatTable, constants: int) -> XnnQuant:
    kind, params = table.union(1, "quant_params")
    match kind:
        case 1:
            scales, dim, data = params.floats(0, "scale", "f"), params.i32(1, "channel_dim"), params.u32(2, "scale")
            quant = XnnQuant("channel", scales, channel_dim=dim, scale_data=data)
        case 2:
            quant = XnnQuant("tensor", (params.f32(0, "scale"),), params.i32(1, "zero_point"))
        case 3:
            quant = XnnQuant("token", inner_dims=params.i32(0, "num_nonbatch_dims"))
        case 4:
            scales, dim, data = params.floats(0, "scale", "f"), params.i32(1, "channel_dim"), params.u32(4, "scale")
            quant = XnnQuant("group", scales, channel_dim=dim, group_size=params.i32(2, "group_size"), scale_data=data)
        case _:
            raise table.error(
                f"quantization of unknown kind {kind}. The file may be newer than webpte", code="unknown_kind"
            )
    if quant.scale_data and quant.scale_data >= constants:
        raise params.error(
            f"constant {quant.scale_data} is out of range: there are {constants}",
            "scale_buffer_idx",
            code="index_out_of_range",
        )
    return quant


def _read_node(entry: FlatTable, count: int) -> XnnNode:
    kind, table = entry.union(0, "xnode_union")
    if kind not in NODE_FIELDS:
        raise entry.error(f"node of unknown type {kind}. The file may be newer than webpte", code="unknown_kind")
    name, fields = NODE_FIELDS[kind]
    ids: dict[str, int] = {}
    numbers: dict[str, int] = {}
    lists: dict[str, tuple[int, ...]] = {}
    factor = 0.0
    for slot, item in enumerate(fields):
        if item.startswith("%"):
            value_id = table.u32(slot, item[1:])
            if value_id < count:
                ids[item[1:]] = value_id
            elif value_id != _NO_VALUE:
                raise table.error(
                    f"value {value_id} is out of range: there are {count}", item[1:], code="index_out_of_range"
                )
        elif item.startswith("~"):
            factor = table.f32(slot, item[1:])
        elif item.endswith("[]"):
            lists[item[:-2]] = items = table.ints(slot, item[:-2], "I")
            if len(items) > _MAX_ITEMS:
                raise table.error(
                    f"expected at most {_MAX_ITEMS} items, got {len(items)}", item[:-2], code="too_many_dims"
                )
        else:
            numbers[item] = table.u32(slot, item)
    bounds = entry.table(3, "output_min_max")
    clamp = None if bounds is None else (bounds.f32(0, "output_min"), bounds.f32(1, "output_max"))
    if clamp is not None and not clamp[0] <= clamp[1]:  # false for NaN
        raise entry.error(f"expected limits in order, got {clamp[0]} and {clamp[1]}", "output_min_max", code="limits")
    return XnnNode(name, MappingProxyType(ids), MappingProxyType(numbers), MappingProxyType(lists), factor, clamp)
