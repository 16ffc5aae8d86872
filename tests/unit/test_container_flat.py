"""The verifying flatbuffer reader, against the flatbuffers package and against broken bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.harness.flat_builder import Builder, Field
from tests.support.harness.work import counted_calls
from webpte.container import MappedFile, Span
from webpte.container.flat import WORK_PER_BYTE, Flat, Table, shown
from webpte.errors import FormatError


def open_flat(data: bytes) -> Table:
    return Flat(Span(MappedFile.from_bytes("f.bin", data), 0, len(data))).root("root", b"TE", "a test file")


def built(make: Callable[[Builder], list[Field]]) -> Table:
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
    with pytest.raises(FormatError, match=r"f\.bin: root\.key at byte \d+: missing"):
        table.text(0, "key")
    with pytest.raises(FormatError, match=r"root\.val at byte .*: union of kind 0 without a value"):
        table.union(0, "val")


def test_union_without_its_value() -> None:
    with pytest.raises(FormatError, match="union of kind 4 without a value"):
        built(lambda b: [("B", 4)]).union(0, "val")


def test_indices_are_checked_at_both_ends() -> None:
    table = built(lambda b: [("i", 3), b.scalars("i", [2, 0, -1, 3])])
    assert table.index(0, "x", 4, "value") == 3
    assert table.indices(1, "x", 4, "value", lowest=-1) == (2, 0, -1, 3)
    with pytest.raises(FormatError, match=r"root\.x at byte .*: value 3 is out of range, there are 3"):
        table.index(0, "x", 3, "value")
    with pytest.raises(FormatError, match="value -1 is out of range, there are 4"):
        table.indices(1, "x", 4, "value")
    with pytest.raises(FormatError, match="value 3 is out of range, there are 3"):
        table.indices(1, "x", 3, "value", lowest=-1)


def test_errors_name_the_path_and_the_place_in_the_file() -> None:
    b = Builder()
    flat = b.done(b.table(b.tables([b.table(), b.table(b.table(("i", 9)))])), b"TEST")
    file = MappedFile.from_bytes("f.bin", bytes(1000) + flat)
    second = list(Flat(Span(file, 1000, len(flat))).root("root", b"TEST", "a test").tables(0, "plans"))[1]
    child = second.table(0, "inner")
    assert child is not None and child.path == "root.plans[1].inner"
    with pytest.raises(FormatError, match=r"^f\.bin: root\.plans\[1\]\.inner\.x at byte 1\d\d\d: value 9 ") as caught:
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


def test_the_packed_table_is_sound() -> None:
    table = open_flat(packed())
    assert table.string(0, "x") == "ab" and table.ints(0, "x", "B") == (97, 98)


def test_a_vtable_may_be_the_last_thing() -> None:
    table = open_flat(struct.pack("<I4siHH", 8, b"TEST", -4, 4, 4))
    assert table.u8(0, "x", 7) == 7


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (dict(root=29), "root at byte 29: a table starts where the flatbuffer ends, after 32 bytes"),
        (dict(root=2**32 - 1), "a table starts where"),
        (dict(back=17), "root at byte 16: vtable at -1, outside the flatbuffer of 32 bytes"),
        (dict(back=-13), "vtable at 29, outside"),
        (dict(back=-(2**31)), "vtable at 2147483664, outside"),
        (dict(back=0), "vtable of 0 bytes at 16 of 32"),  # the table as its own vtable
        (dict(vtable=2), "vtable of 2 bytes at 8 of 32"),
        (dict(vtable=7), "vtable of 7 bytes"),
        (dict(vtable=26), "vtable of 26 bytes at 8 of 32"),
        (dict(table=3), "table of 3 bytes at 16 of 32"),
        (dict(table=17), "table of 17 bytes at 16 of 32"),
        (dict(field=3), r"root\.x at byte 16: field of 4 bytes at 3 of a table of 8 bytes"),
        (dict(field=5), "field of 4 bytes at 5 of a table of 8 bytes"),
        (dict(field=65535), "field of 4 bytes at 65535"),
        (dict(forward=0), "points to 20, outside the flatbuffer"),
        (dict(forward=9), "points to 29, outside the flatbuffer of 32 bytes"),
        (dict(forward=2**32 - 1), "points to 4294967315, outside"),
        (dict(count=5), "vector of 5 elements of 1 bytes where 4 bytes are left"),
        (dict(count=2**32 - 1), "vector of 4294967295 elements of 1 bytes where 4 bytes are left"),
        (dict(count=4), "string of 4 bytes without a final zero"),
        (dict(last=1), "string of 2 bytes without a final zero"),
    ],
)
def test_a_broken_number_is_refused(broken: dict[str, int], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        open_flat(packed(**broken)).string(0, "x")


def test_a_string_must_be_utf8() -> None:
    with pytest.raises(FormatError, match="string of 2 bytes is not UTF-8: invalid start byte"):
        open_flat(packed().replace(b"ab", b"\xff\xfe")).string(0, "x")


def test_wide_elements_count_in_full() -> None:
    with pytest.raises(FormatError, match="vector of 2 elements of 8 bytes where 4 bytes are left"):
        open_flat(packed()).ints(0, "x", "q")
    with pytest.raises(FormatError, match="vector of 2 elements of 4 bytes where 4 bytes are left"):
        next(open_flat(packed()).tables(0, "x"))


@pytest.mark.parametrize(
    "data", [b"\x10", b"\x10\0\0\0TES", packed().replace(b"TEST", b"ET12"), b"version https://git-lfs"]
)
def test_a_foreign_file_is_shown(data: bytes) -> None:
    with pytest.raises(
        FormatError, match=r"f\.bin: root at byte 0: not a test file: 'TE' expected at byte 4 of b'"
    ) as e:
        open_flat(data)
    assert repr(data[:16]) in str(e.value)


def nested(width: int) -> bytes:
    """Three levels of vectors, each of ``width`` times the same table: width**3 tables in a few bytes."""
    b = Builder()
    table = b.table(("q", 1))
    for _ in range(3):
        table = b.table(b.tables([table] * width))
    return b.done(table, b"TEST")


def walk(table: Table) -> int:
    return 1 + sum(walk(child) for child in table.tables(0, "x")) if table.path.count(".") < 3 else 1


def test_shared_tables_within_the_budget_are_read() -> None:
    assert walk(open_flat(nested(2))) == 1 + 2 + 4 + 8


def test_shared_tables_cannot_multiply_the_work() -> None:
    data = nested(1000)  # a thousand million tables in 12 kB
    overlap = r"its parts overlap: reading it takes more than \d+ bytes of work"
    with counted_calls(10 * WORK_PER_BYTE * len(data)), pytest.raises(FormatError, match=overlap):
        walk(open_flat(data))


@pytest.mark.parametrize("read", ["string", "data", "ints"])
def test_shared_bytes_cannot_multiply_the_work(read: str) -> None:
    b = Builder()
    item = b.table(b.string("x" * 5000))
    data = b.done(b.table(b.tables([item] * 1000)), b"TEST")
    total = 0
    with pytest.raises(FormatError, match="its parts overlap"):
        for child in open_flat(data).tables(0, "items"):
            total += len(child.ints(0, "x", "B") if read == "ints" else getattr(child, read)(0, "x"))
    assert 0 < total <= WORK_PER_BYTE * len(data)


def test_names_are_shown_safely() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 10**6)) < 100
