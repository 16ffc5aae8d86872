"""Tensor files (.ptd)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.support.harness.container_samples import facts, sample_ptd, sample_pte
from tests.support.harness.errors import raises
from tests.support.harness.writer import Named, ptd_bytes
from webpte import container as c
from webpte.container import DType, MappedFile, parse_tensors
from webpte.errors import FormatError


def parse(data: bytes) -> c.TensorFile:
    return parse_tensors(MappedFile.from_bytes("w.ptd", data))


def test_entries_round_trip() -> None:
    read = parse(sample_ptd())
    assert read.path == "w.ptd" and list(read.entries) == ["emb.weight", "conv", "blob"]
    assert facts(read.entries) == facts(
        {
            "emb.weight": c.NamedTensor(_span(bytes([0, 1, 2])), DType.UINT8, (3,), (0,)),
            "conv": c.NamedTensor(
                _span(np.arange(6, dtype="<f4").tobytes()), DType.FLOAT32, (1, 2, 3, 1), (0, 2, 3, 1)
            ),
            "blob": c.NamedTensor(_span(b"abc")),
        }
    )


def _span(data: bytes) -> c.Span:
    return c.Span(MappedFile.from_bytes("x", data), 0, len(data))


def test_tensor_file_external_name_is_resolved() -> None:
    program = c.parse_program(MappedFile.from_bytes("m.pte", sample_pte()))
    (value,) = [v for v in program.methods[0].values if isinstance(v, c.TensorValue) and v.external_name]
    entry = parse(sample_ptd()).entries[str(value.external_name)]
    assert (entry.dtype, entry.sizes, entry.span.size) == (value.dtype, value.sizes, value.nbytes)


def test_tensor_file_entry_has_declared_size() -> None:
    entry = parse(ptd_bytes({"x": Named(bytes(range(13)), DType.INT16, (5,))})).entries["x"]
    assert bytes(entry.span.view()) == bytes(range(10))


@pytest.mark.parametrize(
    ("entry", "code", "expected"),
    [
        (Named(bytes(9), DType.INT16, (5,)), "data_too_small", ["named_data[0]", "'x'", "10 bytes", " 9"]),
        (Named(bytes(9), DType.INT16, (-5,)), "negative_size", ["named_data[0]", "(-5,)"]),
        (Named(bytes(9), DType.INT8, (3, 3), (0, 2)), "dim_order", ["(0, 2)", "2 dim"]),
    ],
)
def test_tensor_file_invalid_entry_is_refused(entry: Named, code: str, expected: list[str]) -> None:
    with raises(FormatError, *expected, code=code):
        parse(ptd_bytes({"x": entry}))


@pytest.mark.parametrize(
    ("position", "code", "value", "reason", "expected"),
    [
        (4, "4s", b"ET12", "wrong_file_type", ["(.pte)", "(.ptd)"]),
        (8, "4s", b"FH00", "bad_magic", ["'FH01'", "byte 8"]),
        (12, "<I", 39, "truncated", [" 39 bytes"]),
        (16, "<Q", 47, "truncated", ["bytes 47 to"]),
        (24, "<Q", 10**6, "truncated", ["bytes 48 to 1000048", len(sample_ptd())]),
        (24, "<Q", 0, "table_out_of_bounds", []),
        (32, "<Q", 49, "segment_overlap", ["byte 49 "]),
        (40, "<Q", 10**6, "truncated", [f"{len(sample_ptd())} bytes"]),
    ],
)
def test_tensor_file_invalid_header_is_refused(
    position: int, code: str, value: int | bytes, reason: str, expected: list[object]
) -> None:
    data = bytearray(sample_ptd())
    struct.pack_into(code, data, position, value)
    with raises(FormatError, "w.ptd", *expected, code=reason):
        parse(bytes(data))
