"""Mapped files, spans of them, and element types."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.errors import raises
from webpte.container import DType, MappedFile, Span
from webpte.errors import ClosedError, FormatError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    result = tmp_path / "model.pte"
    result.write_bytes(bytes(range(101)))
    return result


def test_view_is_the_file_without_a_copy(path: Path) -> None:
    with MappedFile(path) as file:
        assert (file.path, file.size) == (str(path), 101)
        view = file.view(7, 3)
        assert bytes(view) == b"\x07\x08\x09"
        assert view.readonly and np.frombuffer(view, np.uint8).base is not None
        assert bytes(file.view(101, 0)) == b""


@pytest.mark.parametrize(("offset", "size"), [(-1, 2), (0, 102), (101, 1), (7, -1), (2**70, 1)])
def test_view_outside_the_file_is_refused(path: Path, offset: int, size: int) -> None:
    with (
        MappedFile(path) as file,
        raises(FormatError, "model.pte", f"bytes {offset} to {offset + size} ", "101 bytes", code="out_of_bounds"),
    ):
        file.view(offset, size)


def test_close_is_final_and_idempotent(path: Path) -> None:
    file = MappedFile(path)
    span = Span(file, 0, 5)
    file.close()
    file.close()
    assert file.closed and "closed" in repr(file)
    with raises(ClosedError, "model.pte"):
        span.view()


def test_mapped_file_view_survives_close_then_unmaps(path: Path) -> None:
    file = MappedFile(path)
    view = file.view(0, 101)
    file.close()
    assert bytes(view[:3]) == b"\x00\x01\x02"
    if os.path.exists("/proc/self/maps"):
        assert _mapped(path)
        view.release()
        gc.collect()
        assert not _mapped(path)


def _mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_close_unmaps_at_once(path: Path) -> None:
    file = MappedFile(path)
    file.view(0, 4)
    if os.path.exists("/proc/self/maps"):
        assert _mapped(path)
        file.close()
        assert not _mapped(path)


@pytest.mark.parametrize("size", [101, 40, 4096])
def test_mapped_file_written_in_place_is_refused(path: Path, size: int) -> None:
    """One that shrinks would end the process, one of the same size would give other weights in silence."""
    with MappedFile(path) as file:
        span = Span(file, 90, 5)
        os.truncate(path, size)
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))  # clocks may be coarse
        with raises(FormatError, "model.pte", "101 bytes", f" {size}.", code="file_changed"):
            span.view()


@pytest.mark.parametrize("how", ["renamed over", "removed"])
def test_mapped_file_replaced_on_disk_keeps_old_bytes(path: Path, how: str) -> None:
    with MappedFile(path) as file:
        if how == "removed":
            path.unlink()
        else:
            (path.parent / "new").write_bytes(b"other")
            os.replace(path.parent / "new", path)
        assert bytes(file.view(90, 3)) == bytes([90, 91, 92])


def test_mapped_file_unmappable_path_states_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.pte").touch()
    with raises(FormatError, "empty.pte", code="empty_file"):
        MappedFile(tmp_path / "empty.pte")
    with raises(FormatError, "absent.pte", os.strerror(errno.ENOENT), code="unreadable"):
        MappedFile(tmp_path / "absent.pte")
    with raises(FormatError, tmp_path, code="not_regular_file"):
        MappedFile(tmp_path)
    with raises(FormatError, "a\0b", code="unreadable"):
        MappedFile("a\0b")
    with raises(FormatError, "nothing", code="empty_file"):
        MappedFile.from_bytes("nothing", b"")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_mapped_file_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with raises(FormatError, tmp_path / "pipe", code="not_regular_file"):
        MappedFile(tmp_path / "pipe")


def test_span_compares_by_file_and_range() -> None:
    a, b = (MappedFile.from_bytes("x", bytes(range(11))) for _ in range(2))
    assert Span(a, 2, 5) == Span(a, 2, 5) and hash(Span(a, 2, 5)) == hash(Span(a, 2, 5))
    assert Span(a, 2, 5) != Span(b, 2, 5) and Span(a, 2, 5) != Span(a, 2, 4)
    assert bytes(Span(a, 2, 5).sub(1, 3).view()) == bytes([3, 4, 5])
    assert Span(a, 2, 5).sub(5, 0).offset == 7


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, 6), (5, 1), (2, -1)])
def test_span_cannot_leave_its_parent(offset: int, size: int) -> None:
    parent = Span(MappedFile.from_bytes("x", bytes(11)), 2, 5)
    with raises(FormatError, f"bytes {offset} to {offset + size} ", "5 bytes", "byte 2", code="out_of_bounds"):
        parent.sub(offset, size)
    with raises(FormatError, f"bytes {2 + offset} to {102 + offset + size} ", "11 bytes", code="out_of_bounds"):
        Span(parent.file, 2 + offset, size + 100)


def test_mapped_file_from_bytes_is_read_only() -> None:
    assert MappedFile.from_bytes("x", bytearray(5)).view(0, 5).readonly


def test_dtype_codes_equal_schemas() -> None:
    scalar = {0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 15: "bf16"}
    scalar |= {27: "u16", 28: "u32", 29: "u64"}
    vulkan = {0: "bool", 1: "u8", 2: "i8", 3: "i32", 4: "f16", 5: "f32", 6: "f64", 7: "i64"}
    assert {code: DType.from_scalar_type(code).short for code in scalar} == scalar
    assert {code: DType.from_vulkan(code).short for code in vulkan} == vulkan
    assert {d.short for d in DType} == {*scalar.values(), "f16w"}  # the last one is in no file


def test_dtype_agrees_with_numpy() -> None:
    for dtype in DType:
        if dtype.numpy is not None:
            assert dtype.numpy.itemsize == dtype.itemsize
            assert np.dtype(dtype.name.lower().removeprefix("wide_")) == dtype.numpy
    assert DType.BFLOAT16.numpy is None and DType.BFLOAT16.itemsize == 2


@pytest.mark.parametrize("code", [-1, 8, 12, 127])
def test_unknown_dtype_is_refused_with_the_known_ones(code: int) -> None:
    with raises(FormatError, f"type {code}.", "0 u8, ", code="unknown_dtype"):
        DType.from_scalar_type(code)
    with raises(FormatError, f"type {code}.", "0 bool, ", code="unknown_dtype"):
        DType.from_vulkan(code)
