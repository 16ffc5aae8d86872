"""The package's writer of programs, blobs and tensor files: the inverse of the reader, the same bytes every time."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from tests.support.harness.container_samples import facts, sample_ptd, sample_pte
from tests.support.harness.errors import raises
from tests.support.harness.rewriting import archived, contents, rewritten, rewritten_tensors, written
from webpte import container as c
from webpte.container import DType, Span
from webpte.errors import FormatError, InputError


def test_rewritten_program_is_unchanged() -> None:
    again = rewritten(sample_pte(version=3))
    assert contents(again) == contents(sample_pte(version=3))
    assert rewritten(again) == again


def test_archived_exports_are_read_back_unchanged() -> None:
    count = 0
    for name, data in list(archived(".pte"))[::4]:  # tests/contract/test_written_programs.py takes all
        again = rewritten(data)
        assert contents(again) == contents(data), name
        assert rewritten(again) == again, name
        assert len(again) < 1.1 * len(data), name
        count += 1
    assert count > 25


def test_rewritten_tensor_file_is_unchanged() -> None:
    for data in [sample_ptd(), *(data for _, data in archived(".ptd"))]:
        again = rewritten_tensors(data)
        assert _entries(again) == _entries(data)
        assert rewritten_tensors(again) == again


def _entries(data: bytes) -> object:
    return facts(c.parse_tensors(c.MappedFile.from_bytes("x.ptd", data)).entries)


def program(*values: c.EValue, **named: Span) -> c.ProgramFile:
    method = c.MethodPlan("forward", values, (), (), (), ())
    return c.ProgramFile("", 0, (method,), MappingProxyType(named))


def test_segments_begin_at_multiples_of_128_and_equal_ranges_share_one() -> None:
    shared = Span.of("a", b"abc")
    data = written(program(a=shared, b=shared, c=Span.of("c", b"abc"), d=Span.of("d", b"")))
    file = c.MappedFile.from_bytes("x.pte", data)
    named = c.parse_program(file).named_data
    assert {key: bytes(span.view()) for key, span in named.items()} == dict(a=b"abc", b=b"abc", c=b"abc", d=b"")
    assert all(span.offset % 128 == 0 for span in named.values())
    assert named["a"].offset == named["b"].offset != named["c"].offset


def test_tensors_are_aligned_and_their_memory_is_declared() -> None:
    ones = c.TensorValue(DType.UINT8, (3,), (0,), data=Span.of("a", b"\1\1\1"))
    state = c.TensorValue(DType.FLOAT32, (5,), (0,), data=Span.of("s", bytes(20)), place=(2, (1 << 32) + 16))
    read = c.parse_program(c.MappedFile.from_bytes("x", written(program(ones, replace(ones), state)))).methods[0]
    assert facts(read.values) == facts((ones, ones, state))
    spans = [value.data for value in read.values if isinstance(value, c.TensorValue)]
    assert all(span is not None and span.offset % 16 == 0 for span in spans)


def test_computed_data_is_viewed_once_and_only_when_it_is_written(tmp_path: Path) -> None:
    events: list[str] = []

    def compute(name: str) -> Span:
        def view() -> memoryview:
            events.append(name)
            return np.full(1000, len(events), "<f4").data.cast("B")

        return Span.computed(name, 4000, view)

    model = program(first=compute("first"), second=compute("second"))
    assert events == []
    with open(tmp_path / "m.pte", "wb") as file:
        c.write_program(file, model)
    assert events == ["first", "second"]
    with c.MappedFile(tmp_path / "m.pte") as mapped:
        named = c.parse_program(mapped).named_data
        assert [np.frombuffer(span.view(), "<f4")[7] for span in named.values()] == [1, 2]


def test_computed_data_of_another_size_is_refused() -> None:
    short = Span.computed("weight", 8, lambda: memoryview(b"1234"))
    with raises(FormatError, 8, 4, code="computed_size"):
        c.write_program(io.BytesIO(), program(weight=short))


TENSOR = c.TensorValue(DType.FLOAT32, (2, 3), (0, 1))


@pytest.mark.parametrize(
    ("value", "code", "numbers"),
    [
        (replace(TENSOR, data=Span.of("x", bytes(23))), "data_size", ("24", "23")),
        (replace(TENSOR, dim_order=(0, 0)), "dim_order", ("(0, 0)",)),
        (replace(TENSOR, place=(0, 0)), "memory_place", ("(0, 0)",)),
        (replace(TENSOR, place=(1, 8)), "memory_place", ("(1, 8)", "16")),
    ],
)
def test_written_tensor_refused_by_runtime_is_refused(value: c.EValue, code: str, numbers: tuple[str, ...]) -> None:
    with raises(InputError, *numbers, code=code):
        written(program(value))


@pytest.mark.parametrize("name", ["", "a\n", "x" * 5000])
def test_written_name_refused_by_reader_is_refused(name: str) -> None:
    with raises(InputError, code="invalid_name"):
        written(program(**{name: Span.of("x", b"1")}))


def test_written_duplicate_method_is_refused() -> None:
    one = program()
    with raises(InputError, "forward", code="invalid_name"):
        written(replace(one, methods=one.methods * 2))
