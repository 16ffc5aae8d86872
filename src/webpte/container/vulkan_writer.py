"""Write the blob of a Vulkan delegate: the inverse of :func:`parse_vulkan`."""

from __future__ import annotations

from struct import pack

from .flat_writer import ScalarField, TableFields, flatbuffer, number, table, tables, union, vector
from .vulkan import (
    HEADER_SIZE,
    NAMED_OFFSET,
    UNSET_DTYPE,
    VkBool,
    VkBoolList,
    VkConstant,
    VkDouble,
    VkDoubleList,
    VkGraph,
    VkInt,
    VkIntList,
    VkNull,
    VkString,
    VkSymInt,
    VkTensor,
    VkValue,
    VkValueList,
)
from .writer import TENSOR_ALIGNMENT, align

_FLATBUFFER_OFFSET = align(HEADER_SIZE, TENSOR_ALIGNMENT)


def vulkan_blob(graph: VkGraph) -> bytes:
    """Return the bytes of a delegate of the backend ``VulkanBackend``. Constants that have a span are inside it."""
    raw = bytearray()
    constants = [_constant(constant, raw) for constant in graph.constants]
    root = table(
        graph.version,
        tables(table(number("I", call.node_id), call.name, vector("i", call.args)) for call in graph.calls),
        tables(_value(value) for value in graph.values),
        vector("I", graph.inputs),
        vector("I", graph.outputs),
        tables(constants),
        tables([]),
    )
    flat = flatbuffer(root, b"VK00")
    raw_at = align(_FLATBUFFER_OFFSET + len(flat), TENSOR_ALIGNMENT)
    header = pack("<4x4sHIIIQ", b"VH00", HEADER_SIZE, _FLATBUFFER_OFFSET, len(flat), raw_at, len(raw))
    return header.ljust(_FLATBUFFER_OFFSET, b"\0") + bytes(flat).ljust(raw_at - _FLATBUFFER_OFFSET, b"\0") + raw


def _constant(constant: VkConstant, raw: bytearray) -> TableFields:
    """Return the entry of a constant; append its data if it is kept in the blob."""
    if constant.span is None:
        return table(number("Q", NAMED_OFFSET), number("Q", constant.length), constant.key)
    raw.extend(bytes(-len(raw) % TENSOR_ALIGNMENT))
    offset = len(raw)
    raw.extend(constant.span.view())
    return table(number("Q", offset), number("Q", constant.length))


def _value(value: VkValue) -> TableFields:
    match value:
        case VkNull():
            return union(1)
        case VkInt(content):
            return union(2, number("q", content))
        case VkDouble(content):
            return union(3, ScalarField("d", content))  # -0.0 equals the default
        case VkBool(content):
            return union(4, number("?", content))
        case VkTensor(dtype, dims, constant_id, mem_obj_id, staging):
            return union(
                5,
                number("b", dtype.vulkan or 0),
                vector("I", dims),
                number("i", constant_id),
                number("i", mem_obj_id),
                None,
                None,
                number("b", UNSET_DTYPE if staging is None else staging.vulkan or 0, UNSET_DTYPE),
            )
        case VkIntList(items):
            return union(6, vector("q", items))
        case VkDoubleList(numbers):
            return union(7, vector("d", numbers))
        case VkBoolList(flags):
            return union(8, vector("?", flags))
        case VkValueList(ids):
            return union(9, vector("i", ids))
        case VkString(text):
            return union(10, text)
        case VkSymInt(content):
            return union(11, number("i", content))
