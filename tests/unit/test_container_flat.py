"""The verifying flatbuffer reader, against the flatbuffers package and against broken bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.flat_builder import Builder, Field
from tests.support.harness.work import counted_calls
from webpte.container import MappedFile, Span
from webpte.container.flat import MAX_WORK_PER_BYTE, FlatBuffer, FlatTable, quoted_name
from webpte.errors import FormatError


def open_flat(data: bytes) -> FlatTable:
    return FlatBuffer(Span(MappedFile.from_bytes("f.bin", data), 0, len(data))).root("root", b"TE", "a test file")


def built(make: Callable[[Builder], list[Field]]) -> FlatTable:
    b = Builder()
    return open_flat(b.done(b.table(*make(b)), b"TEST"))


@pytest.mark.parametrize(
    ("code", "method", "values"),
    [
        ("B", "u8", [0, 255]),
        ("b", "i8", [-128, 127]),
        ("I", "u32", [0, 2**32 - 1]),
        ("i", "i32", [-(2**31), 2**31 - 1]),
        ("Q", "u64", [0, 2**64 - 1]),
        ("q", "i64", [-(2**63), 2**63 - 1]),
        ("d", "f64", [-0.1, float("inf")]),
        ("?", "bool_", [True, False]),
    ],
)
def test_scalars_round_trip(code: str, method: str, values: list[Any]) -> None:
    table = built(lambda b: [("B", 3), *((code, value) for value in values)])
    assert [getattr(table, method)(1 + i, "x") for i in range(2)] == values
    assert type(getattr(table, method)(1, "x")) is type(values[0])
    assert getattr(table, method)(3, "absent", 5) == 5


def test_vectors_strings_and_tables_round_trip() -> None:
    table = built(
        lambda b: [
            b.scalars("q", [1, -2]),
            b.scalars("d", [0.5]),
            b.scalars("?", [True, False]),
            b.string("é"),
            b.blob(b"abc"),
            b.tables([b.table(("i", i)) for i in (5, 7)]),
            ("B", 9),
            b.table(("i", 11)),
            b.scalars("I", []),
        ]
    )
    assert table.ints(0, "x", "q") == (1, -2)
    assert table.floats(1, "x") == (0.5,)
    assert table.bools(2, "x") == (True, False)
    assert table.string(3, "x") == table.text(3, "x") == "é"
    assert (span := table.blob(4, "x")) is not None and bytes(span.view()) == table.data(4, "x") == b"abc"
    assert [child.i32(0, "x") for child in table.tables(5, "x")] == [5, 7] and table.count(5, "x") == 2
    kind, member = table.union(6, "x")
    assert (kind, member.i32(0, "x")) == (9, 11)
    assert table.ints(8, "x", "I") == ()


def test_absent_things() -> None:
    table = built(lambda b: [None])
    assert table.ints(0, "x", "i") == table.floats(1, "x") == table.bools(1, "x") == ()
    assert table.string(1, "x") is None and table.blob(1, "x") is None and table.table(1, "x") is None
    assert list(table.tables(1, "x")) == [] and table.data(1, "x") == b"" and table.count(1, "x") == 0
    with raises(FormatError, "f.bin", "root.key", code="missing_field"):
        table.text(0, "key")
    with raises(FormatError, "root.val", "kind 0", code="missing_field"):
        table.union(0, "val")


def test_union_without_its_value() -> None:
    with raises(FormatError, "root.val", "kind 4", code="missing_field"):
        built(lambda b: [("B", 4)]).union(0, "val")


def test_indices_are_checked_at_both_ends() -> None:
    table = built(lambda b: [("i", 3), b.scalars("i", [2, 0, -1, 3])])
    assert table.index(0, "x", 4, "value") == 3
    assert table.indices(1, "x", 4, "value", lowest=-1) == (2, 0, -1, 3)
    with raises(FormatError, "root.x", "value 3 ", "are 3", code="index_out_of_range"):
        table.index(0, "x", 3, "value")
    with raises(FormatError, "value -1 ", "are 4", code="index_out_of_range"):
        table.indices(1, "x", 4, "value")
    with raises(FormatError, "value 3 ", "are 3", code="index_out_of_range"):
        table.indices(1, "x", 3, "value", lowest=-1)


def test_errors_name_the_path_and_the_place_in_the_file() -> None:
    b = Builder()
    flat = b.done(b.table(b.tables([b.table(), b.table(b.table(("i", 9)))])), b"TEST")
    file = MappedFile.from_bytes("f.bin", bytes(1000) + flat)
    second = list(FlatBuffer(Span(file, 1000, len(flat))).root("root", b"TEST", "a test").tables(0, "plans"))[1]
    child = second.table(0, "inner")
    assert child is not None and child.path == "root.plans[1].inner"
    with raises(FormatError, "f.bin: root.plans[1].inner.x", "value 9 ", code="index_out_of_range") as caught:
        child.index(0, "x", 3, "value")
    position = int(str(caught.value).split("at byte ")[1].split(":")[0])
    vtable = position - struct.unpack_from("<i", file.view(position, 4))[0]
    assert bytes(file.view(vtable, 6)) == struct.pack("<HHH", 6, 8, 4)


# A table with one field, a vector of two bytes and a zero, in 32 bytes; each case breaks one number in it.
def packed(**broken: int) -> bytes:
    n = dict(root=16, vtable=6, table=8, field=4, back=8, forward=4, count=2, last=0) | broken
    parts = [
        n["root"],
        b"TEST",
        n["vtable"],
        n["table"],
        n["field"],
        n["back"],
        n["forward"],
        n["count"],
        b"ab",
        n["last"],
    ]
    return struct.pack("<I4sHHHxxiII2sBx", *parts)


def test_flat_reader_reads_valid_table() -> None:
    table = open_flat(packed())
    assert table.string(0, "x") == "ab" and table.ints(0, "x", "B") == (97, 98)


def test_flat_reader_vtable_at_end_is_valid() -> None:
    table = open_flat(struct.pack("<I4siHH", 8, b"TEST", -4, 4, 4))
    assert table.u8(0, "x", 7) == 7


@pytest.mark.parametrize(
    ("broken", "code", "expected"),
    [
        (dict(root=29), "table_out_of_bounds", ["byte 29:", "32 bytes"]),
        (dict(root=2**32 - 1), "table_out_of_bounds", ["byte 4294967295:"]),
        (dict(back=17), "vtable_out_of_bounds", ["byte 16:", "at -1,", "32 bytes"]),
        (dict(back=-13), "vtable_out_of_bounds", ["at 29,"]),
        (dict(back=-(2**31)), "vtable_out_of_bounds", ["at 2147483664,"]),
        (dict(back=0), "vtable_size", [" 0 bytes", "16 of 32"]),  # the table as its own vtable
        (dict(vtable=2), "vtable_size", [" 2 bytes", "8 of 32"]),
        (dict(vtable=7), "vtable_size", [" 7 bytes"]),
        (dict(vtable=26), "vtable_size", [" 26 bytes", "8 of 32"]),
        (dict(table=3), "table_size", [" 3 bytes", "16 of 32"]),
        (dict(table=17), "table_size", [" 17 bytes", "16 of 32"]),
        (dict(field=3), "field_out_of_bounds", ["root.x", "byte 16:", "4 bytes at 3 ", "8 bytes"]),
        (dict(field=5), "field_out_of_bounds", ["4 bytes at 5 ", "8 bytes"]),
        (dict(field=65535), "field_out_of_bounds", ["4 bytes at 65535 "]),
        (dict(forward=0), "offset_out_of_bounds", [" 20,"]),
        (dict(forward=9), "offset_out_of_bounds", [" 29,", "32 bytes"]),
        (dict(forward=2**32 - 1), "offset_out_of_bounds", [" 4294967315,"]),
        (dict(count=5), "vector_out_of_bounds", [" 5 elements", "1 bytes", "4 bytes"]),
        (dict(count=2**32 - 1), "vector_out_of_bounds", [" 4294967295 elements", "1 bytes", "4 bytes"]),
        (dict(count=4), "unterminated_string", [" 4 bytes"]),
        (dict(last=1), "unterminated_string", [" 2 bytes"]),
    ],
)
def test_flat_reader_wrong_number_is_refused(broken: dict[str, int], code: str, expected: list[str]) -> None:
    with raises(FormatError, *expected, code=code):
        open_flat(packed(**broken)).string(0, "x")


def test_flat_reader_invalid_utf8_is_refused() -> None:
    with raises(FormatError, "root.x", "2 bytes", code="invalid_utf8"):
        open_flat(packed().replace(b"ab", b"\xff\xfe")).string(0, "x")


def test_wide_elements_count_in_full() -> None:
    with raises(FormatError, "2 elements", "8 bytes", "4 bytes", code="vector_out_of_bounds"):
        open_flat(packed()).ints(0, "x", "q")
    with raises(FormatError, "2 elements", "4 bytes", code="vector_out_of_bounds"):
        next(open_flat(packed()).tables(0, "x"))


@pytest.mark.parametrize(
    "data", [b"\x10", b"\x10\0\0\0TES", packed().replace(b"TEST", b"ET12"), b"version https://git-lfs"]
)
def test_flat_reader_bad_magic_shows_bytes(data: bytes) -> None:
    with raises(FormatError, "f.bin: root", "'TE'", "byte 4", repr(data[:16]), code="bad_magic"):
        open_flat(data)


def nested(width: int) -> bytes:
    """Three levels of vectors, each of ``width`` times the same table: width**3 tables in a few bytes."""
    b = Builder()
    table = b.table(("q", 1))
    for _ in range(3):
        table = b.table(b.tables([table] * width))
    return b.done(table, b"TEST")


def walk(table: FlatTable) -> int:
    return 1 + sum(walk(child) for child in table.tables(0, "x")) if table.path.count(".") < 3 else 1


def test_shared_tables_within_the_budget_are_read() -> None:
    assert walk(open_flat(nested(2))) == 1 + 2 + 4 + 8


def test_shared_tables_cannot_multiply_the_work() -> None:
    data = nested(1000)  # a thousand million tables in 12 kB
    with counted_calls(10 * MAX_WORK_PER_BYTE * len(data)), raises(FormatError, "f.bin", code="overlap"):
        walk(open_flat(data))


@pytest.mark.parametrize("read", ["string", "data", "ints"])
def test_shared_bytes_cannot_multiply_the_work(read: str) -> None:
    b = Builder()
    item = b.table(b.string("x" * 5000))
    data = b.done(b.table(b.tables([item] * 1000)), b"TEST")
    total = 0
    with raises(FormatError, MAX_WORK_PER_BYTE * len(data), code="overlap"):
        for child in open_flat(data).tables(0, "items"):
            total += len(child.ints(0, "x", "B") if read == "ints" else getattr(child, read)(0, "x"))
    assert 0 < total <= MAX_WORK_PER_BYTE * len(data)


def test_names_are_shown_safely() -> None:
    assert quoted_name("a\nb") == r"'a\nb'"
    assert len(quoted_name("x" * 10**6)) < 100
