"""Damaged files: whatever the bytes, the answer is a FormatError or facts that hold, and it comes soon."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.harness.container_samples import facts, read_all, sample_blob, sample_ptd, sample_pte
from tests.support.harness.errors import raises
from tests.support.harness.flat_builder import Builder
from tests.support.harness.work import counted_calls
from tests.support.harness.writer import DelegateBlob, Method, pte_bytes
from webpte import container as c
from webpte.errors import FormatError


def read_blob(data: bytes) -> Any:
    return facts(c.parse_vulkan(c.Span(c.MappedFile.from_bytes("m.pte", data), 0, len(data))))


def read_ptd(data: bytes) -> Any:
    return facts(c.parse_tensors(c.MappedFile.from_bytes("w.ptd", data)))


SAMPLES: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "pte": (sample_pte(), read_all),
    "pte-header-24": (sample_pte(extended_header=24), read_all),
    "pte-inline": (sample_pte(inline_delegates=True, inline_constants=True), read_all),
    "ptd": (sample_ptd(), read_ptd),
    "blob": (sample_blob(), read_blob),
}
each_sample = pytest.mark.parametrize("name", SAMPLES)


@each_sample
def test_container_truncated_file_is_refused(name: str) -> None:
    data, read = SAMPLES[name]
    read(data)
    for length in range(1, len(data)):
        with pytest.raises(FormatError):
            read(data[:length])


def test_container_truncated_file_without_header_is_refused_or_read() -> None:
    methods = [Method(values=[c.IntValue(5), c.StringValue("x")], delegates=[DelegateBlob(sample_blob())])]
    data = pte_bytes(methods, extended_header=False, inline_delegates=True)
    whole = read_all(data)
    for length in range(1, len(data)):
        with contextlib.suppress(FormatError):
            assert read_all(data[:length]) == whole


@each_sample
def test_trailing_bytes_change_nothing(name: str) -> None:
    data, read = SAMPLES[name]
    assert read(data + bytes(977)) == read(data)


@pytest.mark.parametrize("name", ["pte", "ptd", "blob"])
@pytest.mark.parametrize("flip", [0xFF, 0x81])
def test_container_damaged_byte_reads_or_raises_format_error(name: str, flip: int) -> None:
    data, read = SAMPLES[name]
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        try:
            read(bytes(damaged))
        except FormatError as error:
            refused += 1
            assert len(str(error)) < 1000
    assert 0 < refused < len(data)


NUMBERS = st.sampled_from([0, 1, 2, 4, 16, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF])
EDITS = st.lists(st.tuples(st.integers(0, 10**6), NUMBERS | st.integers(0, 2**32 - 1)), min_size=1, max_size=12)


@each_sample
@given(edits=EDITS)
def test_words_may_be_damaged(name: str, edits: list[tuple[int, int]]) -> None:
    data, read = SAMPLES[name]
    damaged = bytearray(data)
    for position, word in edits:
        struct.pack_into("<I", damaged, position % (len(data) // 4) * 4, word)
    with contextlib.suppress(FormatError):
        read(bytes(damaged))


@each_sample
@given(cut=st.integers(0, 10**6), length=st.integers(0, 64), filler=st.binary(max_size=64))
def test_pieces_may_be_replaced(name: str, cut: int, length: int, filler: bytes) -> None:
    data, read = SAMPLES[name]
    start = cut % len(data)
    with contextlib.suppress(FormatError):
        read(data[:start] + filler + data[start + length :] or b"\0")


@given(start=st.binary(min_size=1, max_size=200), magic=st.sampled_from([b"ET12", b"ET12eh00", b"FT01FH01", b"VH00"]))
def test_noise_is_refused(start: bytes, magic: bytes) -> None:
    for read in (read_all, read_ptd, read_blob):
        with pytest.raises(FormatError):
            read(start[:4].ljust(4, b"\0") + magic + start[4:])


def test_shared_values_cannot_multiply_the_work() -> None:
    """A list of 4000 numbers, mentioned as 100000 values of a graph: 400 million numbers in half a megabyte."""
    b = Builder()
    value = b.table(("B", 6), b.table(b.scalars("q", range(4000))))
    flat = b.done(b.table(None, None, b.tables([value] * 100_000)), b"VK00")
    blob = struct.pack("<4x4sHIIIQ2x", b"VH00", 30, 32, len(flat), 32 + len(flat), 0) + flat
    _refused_soon(lambda: read_blob(blob), len(blob))


def test_shared_compile_specs_cannot_multiply_memory() -> None:
    b = Builder()
    specs = b.tables([b.table(b.string("k"), b.blob(bytes(100_000)))])
    processed = b.table(("b", 0), ("I", 0))
    delegate = b.table(b.string("X"), processed, specs)
    plan = b.table(b.string("forward"), *[None] * 6, b.tables([delegate] * 10_000))
    data = b.done(b.table(None, b.tables([plan]), None, b.tables([b.table(b.blob(b"x"))])), b"ET12")
    _refused_soon(lambda: read_all(data), len(data))


def _refused_soon(read: Callable[[], Any], size: int) -> None:
    tracemalloc.start()
    try:
        with counted_calls(10 * size), raises(FormatError, code="overlap"):
            read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * size
