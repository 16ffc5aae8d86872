"""Vulkan delegate blobs."""

from __future__ import annotations

import math
import struct

import pytest

from tests.support.harness.container_samples import VK_CALLS, VK_VALUES, sample_blob
from tests.support.harness.errors import raises
from tests.support.harness.flat_builder import Builder, Field
from tests.support.harness.writer import vk_blob
from webpte import container as c
from webpte.container import DType, MappedFile, Span, parse_vulkan
from webpte.errors import FormatError

BEFORE = 3  # bytes ahead of the blob in its file, so that a position in the one is not one in the other


def parse(blob: bytes) -> c.VkGraph:
    return parse_vulkan(Span(MappedFile.from_bytes("m.pte", bytes(BEFORE) + blob), BEFORE, len(blob)))


def raw_blob(*fields: Field, b: Builder) -> bytes:
    """Return a blob around any root table."""
    flat = b.done(b.table(*fields), b"VK00")
    return struct.pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(flat), 32 + len(flat), 0) + flat


def raw_value(kind: int, *fields: Field) -> bytes:
    b = Builder()
    return raw_blob(None, None, b.tables([b.table(("B", kind), b.table(*fields))]), b=b)


def test_vulkan_blob_round_trips() -> None:
    graph = parse(sample_blob())
    assert graph.version == "0"
    assert graph.values == tuple(VK_VALUES)
    assert graph.calls == tuple(VK_CALLS)
    assert (graph.inputs, graph.outputs) == ((0, 12), (11,))
    inside, named = graph.constants
    assert inside.span is not None and bytes(inside.span.view()) == b"\x7f"
    assert (inside.key, inside.length) == (None, 1)
    assert (named.span, named.key, named.length) == (None, "weight", 28)


def test_constants_in_the_blob_are_ranges_of_its_file() -> None:
    tensors = [c.VkTensor(DType.INT8, (n,), constant_id=i) for i, n in enumerate((5, 0, 7))]
    graph = parse(vk_blob(tensors, [], [], [], [b"a" * 5, b"", b"c" * 7]))
    spans = [constant.span for constant in graph.constants]
    assert [bytes(span.view()) for span in spans if span] == [b"a" * 5, b"", b"c" * 7]


def test_nan_survives() -> None:
    (value,) = parse(vk_blob([c.VkDouble(math.nan)], [], [], [])).values
    assert isinstance(value, c.VkDouble) and math.isnan(value.value)


def test_absent_ids_are_zero_and_negative_ids_are_none() -> None:
    b = Builder()
    tensors = [b.table(("b", 5)), b.table(("b", 5), None, ("i", -7), ("i", -9)), b.table(("b", 5), None, None, None)]
    values = b.tables([b.table(("B", 5), tensor) for tensor in tensors])
    constants = b.tables([b.table(("Q", 2**64 - 1), ("Q", 4), b.string("k"))])
    graph = parse(raw_blob(None, None, values, None, None, constants, b=b))
    zero, none, default = graph.values
    assert zero == default == c.VkTensor(DType.FLOAT32, (), constant_id=0, mem_obj_id=0)
    assert none == c.VkTensor(DType.FLOAT32, (), constant_id=-1, mem_obj_id=-1)


@pytest.mark.parametrize(("code", "dtype"), [(None, None), (127, None), (5, DType.FLOAT32)])
def test_staging_type(code: int | None, dtype: DType | None) -> None:
    staging: Field = None if code is None else ("b", code)
    (value,) = parse(raw_value(5, ("b", 4), None, ("i", -1), ("i", -1), None, None, staging)).values
    assert isinstance(value, c.VkTensor) and value.staging_dtype is dtype


TENSOR = c.VkTensor(DType.FLOAT32, (3,))


@pytest.mark.parametrize(
    ("values", "calls", "inputs", "outputs", "code", "expected"),
    [
        ([TENSOR], [("f", (0, 1))], [], [], "index_out_of_range", ["graph.chain[0].args", "value 1 ", "are 1"]),
        ([TENSOR], [("f", (-1,))], [], [], "index_out_of_range", ["graph.chain[0].args", "value -1 "]),
        ([c.VkValueList((1,))], [], [], [], "index_out_of_range", ["graph.values[0].value.items", "value 1 "]),
        ([c.VkValueList((-1,))], [], [], [], "index_out_of_range", ["value -1 ", "are 1"]),
        ([TENSOR], [], [1], [], "index_out_of_range", ["input_ids", "value 1 "]),
        ([TENSOR], [], [], [2**32 - 1], "index_out_of_range", ["output_ids", "value 4294967295 ", "are 1"]),
        (
            [TENSOR, c.VkTensor(DType.INT8, (), 2)],
            [],
            [],
            [],
            "index_out_of_range",
            ["values[1].value.constant_id", "constant 2 ", "are 2"],
        ),
        ([c.VkTensor(DType.INT8, (5,), 1)], [], [], [], "data_too_small", ["5 bytes", "constant 1 has 4"]),
        ([c.VkTensor(DType.INT8, (2,), 0)], [], [], [], "data_too_small", ["2 bytes", "constant 0 has 1"]),
        ([c.VkTensor(DType.INT8, (1,) * 17)], [], [], [], "too_many_dims", [17, 16]),
        (
            [c.VkTensor(DType.INT8, (2**32 - 1,) * 16, 0)],
            [],
            [],
            [],
            "data_too_small",
            [f"{(2**32 - 1) ** 16} bytes", "constant 0 has 1"],
        ),
    ],
)
def test_vulkan_blob_invalid_graph_is_refused(
    values, calls, inputs, outputs, code: str, expected: list[object]
) -> None:
    with raises(FormatError, *expected, code=code):
        parse(vk_blob(values, calls, inputs, outputs, [b"x", c.VkConstant(None, "k", 4)]))


@pytest.mark.parametrize(
    ("kind", "fields", "code", "expected"),
    [
        (12, [], "unknown_kind", ["graph.values[0]", "kind 12"]),
        (0, [], "missing_field", ["graph.values[0].value", "kind 0"]),
        (5, [("b", 8)], "unknown_dtype", ["graph.values[0].value.datatype", "type 8."]),
        (5, [("b", 127)], "unknown_dtype", ["graph.values[0].value.datatype", "type 127."]),
        (
            5,
            [("b", 5), None, ("i", -1), None, None, None, ("b", 9)],
            "unknown_dtype",
            ["staging_datatype", "type 9."],
        ),
    ],
)
def test_vulkan_blob_invalid_value_is_refused(kind: int, fields: list[Field], code: str, expected: list[str]) -> None:
    with raises(FormatError, *expected, code=code):
        parse(raw_value(kind, *fields))


def test_vulkan_blob_constant_without_place_is_refused() -> None:
    with raises(FormatError, "graph.constants[0].named_key", code="missing_field"):
        parse(vk_blob([], [], [], [], [c.VkConstant(None, None, 4)]))
    b = Builder()
    entry = b.table(("Q", 2**64 - 2), ("Q", 4))
    with raises(FormatError, "constants[0]", 2**64 - 2, 2**64 + 2, "0 bytes", code="segment_out_of_bounds"):
        parse(raw_blob(*[None] * 5, b.tables([entry]), b=b))


@pytest.mark.parametrize(
    ("position", "code", "value"),
    [
        (8, "<H", 29),  # header too short
        (8, "<H", 33),  # header into the flatbuffer
        (10, "<I", 29),  # flatbuffer into the header
        (14, "<I", 0),  # no flatbuffer
        (14, "<I", 2**32 - 1),  # flatbuffer past the end
        (18, "<I", 40),  # constants into the flatbuffer
        (18, "<I", 2**32 - 1),  # constants past the end
        (22, "<Q", 2**64 - 1),
    ],
)
def test_vulkan_blob_invalid_header_is_refused(position: int, code: str, value: int) -> None:
    blob = bytearray(sample_blob())
    struct.pack_into(code, blob, position, value)
    with raises(FormatError, "m.pte", f"{len(blob)} bytes", f"byte {BEFORE}:", code="invalid_header"):
        parse(bytes(blob))


def test_vulkan_blob_header_may_fill_padding() -> None:
    blob = bytearray(sample_blob())
    struct.pack_into("<H", blob, 8, 32)
    assert parse(bytes(blob)).values == tuple(VK_VALUES)


def test_vulkan_blob_zero_constants_size_means_rest() -> None:
    blob = bytearray(sample_blob())
    struct.pack_into("<Q", blob, 22, 0)
    span = parse(bytes(blob)).constants[0].span
    assert span is not None and bytes(span.view()) == b"\x7f"


@pytest.mark.parametrize("blob", [b"", b"opaque", bytes(64), sample_blob()[:29]])
def test_vulkan_blob_other_type_is_refused(blob: bytes) -> None:
    with raises(FormatError, "'VH00'", f"{len(blob)} bytes", code="bad_magic"):
        parse(blob)
