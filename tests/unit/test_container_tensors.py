"""Tensor files (.ptd)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.support.harness.container_samples import facts, sample_ptd, sample_pte
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


def test_the_name_of_an_external_tensor_finds_it() -> None:
    program = c.parse_program(MappedFile.from_bytes("m.pte", sample_pte()))
    (value,) = [v for v in program.methods[0].values if isinstance(v, c.TensorValue) and v.external_name]
    entry = parse(sample_ptd()).entries[str(value.external_name)]
    assert (entry.dtype, entry.sizes, entry.span.size) == (value.dtype, value.sizes, value.nbytes)


def test_a_tensor_is_no_larger_than_it_says() -> None:
    entry = parse(ptd_bytes({"x": Named(bytes(range(13)), DType.INT16, (5,))})).entries["x"]
    assert bytes(entry.span.view()) == bytes(range(10))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            Named(bytes(9), DType.INT16, (5,)),
            r"named_data\[0\] at byte \d+: tensor 'x' needs 10 bytes, its segment has 9",
        ),
        (Named(bytes(9), DType.INT16, (-5,)), "negative size in"),
        (Named(bytes(9), DType.INT8, (3, 3), (0, 2)), "is not an order of 2 dimensions"),
    ],
)
def test_a_broken_entry_is_refused(entry: Named, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(ptd_bytes({"x": entry}))


@pytest.mark.parametrize(
    ("position", "code", "value", "message"),
    [
        (
            4,
            "4s",
            b"ET12",
            r"w\.ptd: is an ExecuTorch program \(\.pte\), not an ExecuTorch tensor file \(\.ptd\)",
        ),
        (8, "4s", b"FH00", "'FH01' at byte 8 of b"),
        (12, "<I", 39, "is truncated or damaged: header of 39 bytes, expected 40"),
        (16, "<Q", 47, "flatbuffer takes bytes 47 to"),
        (24, "<Q", 10**6, r"flatbuffer takes bytes 48 to 1000048, the file has \d+; copy or download it again"),
        (24, "<Q", 0, "tensors at byte"),
        (32, "<Q", 49, "segments at byte 49 begin inside the flatbuffer"),
        (40, "<Q", 10**6, "is truncated: its header places segments at bytes"),
    ],
)
def test_a_broken_header_is_refused(position: int, code: str, value: int | bytes, message: str) -> None:
    data = bytearray(sample_ptd())
    struct.pack_into(code, data, position, value)
    with pytest.raises(FormatError, match=message):
        parse(bytes(data))
