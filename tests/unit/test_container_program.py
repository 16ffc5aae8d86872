"""Programs: what the writer puts into a .pte file comes out again, and what is wrong is named."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.container_samples import facts, read_all, sample_blob, sample_methods, sample_pte
from tests.support.harness.flat_builder import Builder, Field, Offset, splice
from tests.support.harness.writer import DelegateBlob, Method, pte_bytes, pte_file, span_of
from webpte import container as c
from webpte.container import DType, MappedFile, parse_program
from webpte.errors import FormatError


def parse(data: bytes) -> c.ProgramFile:
    return parse_program(MappedFile.from_bytes("m.pte", data))


def parse_one(*values: c.EValue, **options: Any) -> c.MethodPlan:
    return parse(pte_bytes([Method(values=values, **options)])).methods[0]


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"extended_header": 24}, {"inline_delegates": True}, {"inline_constants": True}]
)
def test_everything_round_trips(options: dict[str, Any]) -> None:
    program = parse(sample_pte(version=3, **options))
    assert (program.path, program.version) == ("m.pte", 3)
    assert facts(program.named_data) == {"weight": b"w" * 28, "a": b"", "b": b"12345"}
    for written, read in zip(sample_methods(), program.methods, strict=True):
        assert read.name == written.name
        assert facts(read.values) == facts(written.values)
        assert read.inputs == tuple(written.inputs) and read.outputs == tuple(written.outputs)
        assert read.instructions == tuple(written.instructions)
        for spec, delegate in zip(written.delegates, read.delegates, strict=True):
            assert delegate.backend == spec.backend
            assert bytes(delegate.blob.view()) == spec.blob
            assert delegate.compile_specs == spec.compile_specs


def test_a_file_without_segments_needs_no_header() -> None:
    methods = [Method(values=[c.IntValue(5)], outputs=[0], delegates=[DelegateBlob(b"blob")], chains=0)]
    program = parse(pte_bytes(methods, extended_header=False, inline_delegates=True))
    (method,) = program.methods
    assert method.values == (c.IntValue(5),) and method.instructions == ()
    assert bytes(method.delegates[0].blob.view()) == b"blob"


def test_a_file_on_disk_is_referred_to_not_copied(tmp_path: Path) -> None:
    pte_file(tmp_path / "m.pte", sample_methods(), named_data={"k": b"0123456789"})
    with MappedFile(tmp_path / "m.pte") as file:
        span = parse_program(file).named_data["k"]
        assert span.file is file
        assert (tmp_path / "m.pte").read_bytes()[span.offset : span.offset + span.size] == b"0123456789"


def test_what_makes_a_tensor_constant_or_mutable() -> None:
    forward = parse(sample_pte()).methods[0]
    planned, weight, cache, flag, external = (v for v in forward.values if isinstance(v, c.TensorValue))
    assert (planned.data, planned.mutable, planned.dynamic) == (None, False, True)
    assert weight.data is not None and not weight.mutable and weight.nbytes == weight.data.size == 24
    assert cache.data is not None and cache.mutable and cache.name == "kv"
    assert np.frombuffer(cache.data.view(), "<i2").tolist() == [0, 1, 2, 3, 4]
    assert flag.data is not None and flag.data.size == 1
    assert (external.data, external.external_name, external.mutable) == (None, "emb.weight", False)
    assert dataclasses.replace(external, place=(1, 0)).mutable


def test_keys_with_the_same_data_share_a_segment() -> None:
    data = b"zeros"
    named = parse(pte_bytes([], named_data={"k": data, "v": data, "w": b"other"})).named_data
    assert named["k"] == named["v"] != named["w"]


def test_an_absent_dim_order_means_contiguous() -> None:
    value = parse_one(c.TensorValue(DType.INT8, (3, 5), ())).values[0]
    assert isinstance(value, c.TensorValue) and value.dim_order == (0, 1)


def test_results_are_immutable() -> None:
    program = parse(sample_pte())
    with pytest.raises(TypeError):
        program.named_data["x"] = program.named_data["a"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        program.version = 1  # type: ignore[misc]


# --- what is wrong is named -------------------------------------------------------------------------------------------


F32 = DType.FLOAT32
DATA = span_of(np.zeros(3, "<f4"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (c.IntListValue((0, 2)), r"values\[1\]\.val\.items at byte \d+: value 2 is out of range, there are 2"),
        (c.IntListValue((-1,)), "value -1 is out of range"),
        (c.TensorListValue((2,)), "value 2 is out of range, there are 2"),
        (c.OptionalTensorListValue((None, 2)), "value 2 is out of range"),
        (c.OptionalTensorListValue((-2,)), "value -2 is out of range"),
        (c.TensorValue(F32, (-3,), (0,)), r"sizes at byte \d+: negative size in \(-3,\)"),
        (c.TensorValue(F32, (1,) * 17, tuple(range(17))), "17 dimensions, at most 16 are possible"),
        (c.TensorValue(F32, (2, 3), (0, 0)), r"\(0, 0\) is not an order of 2 dimensions"),
        (c.TensorValue(F32, (2, 3), (0, 1, 2)), r"\(0, 1, 2\) is not an order of 2 dimensions"),
        (c.TensorValue(F32, (2,), (1,)), r"\(1,\) is not an order of 1 dimensions"),
        (c.TensorValue(F32, (2,), (0,), external_name=""), "is external, but has no fully_qualified_name"),
        (
            c.TensorValue(F32, (4,), (0,), data=DATA),
            r"m\.pte: program\.execution_plan\[0\]\.values\[1\]\.val at byte \d+: "
            "tensor needs 16 bytes at offset 0 of segment 0, 12 are available",
        ),
        (
            c.TensorValue(F32, (2**31 - 1,) * 3, (0, 1, 2), data=DATA, place=(1, 0), name="kv"),
            r"tensor 'kv' needs \d{29} bytes at offset 0 of segment 1, 12 are available",
        ),
    ],
)
def test_a_broken_value_is_refused(value: c.EValue, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_one(c.IntValue(0), value)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (
            c.KernelCall("aten::relu.out", (0, 1)),
            r"instructions\[1\]\.instr_args\.args at byte \d+: value 1 is out of ra",
        ),
        (c.DelegateCall(1, ()), "delegate_index at byte .*: delegate 1 is out of range, there are 1"),
        (c.DelegateCall(-1, ()), "delegate -1 is out of range"),
        (c.DelegateCall(0, (-1,)), "value -1 is out of range, there are 1"),
        (c.MoveCall(1, 0), "move_from at byte .*: value 1"),
        (c.MoveCall(0, 1), "move_to at byte .*: value 1"),
        (c.JumpFalseCall(1, 0), "cond_value_index at byte .*: value 1"),
        (c.JumpFalseCall(0, 3), "destination_instruction at byte .*: instruction 3 is out of range, there are 3"),
        (c.JumpFalseCall(0, -1), "instruction -1 is out of range"),
        (c.FreeCall(7), "value_index at byte .*: value 7 is out of range, there are 1"),
    ],
)
def test_a_broken_instruction_is_refused(instruction: c.Instruction, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_one(c.IntValue(0), instructions=[c.FreeCall(0), instruction], delegates=[DelegateBlob(b"x")])


def test_a_jump_may_end_the_method() -> None:
    jump = c.JumpFalseCall(0, 2)
    assert parse_one(c.BoolValue(False), instructions=[jump, c.FreeCall(0)]).instructions[0] == jump


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": [1]}, r"execution_plan\[0\]\.inputs at byte \d+: value 1 is out of range, there are 1"),
        ({"outputs": [0, -1]}, r"outputs at byte \d+: value -1 is out of range"),
        ({"chains": 2}, "2 chains of instructions; ExecuTorch writes one, and webpte runs only one"),
    ],
)
def test_a_broken_method_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_one(c.IntValue(0), **options)


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(FormatError, match=r"execution_plan\[1\] at byte \d+: second method named 'forward'"):
        parse(pte_bytes([Method(), Method()]))


class Raw:
    """A program from bare fields, for what the writer cannot say."""

    def __init__(self) -> None:
        self.b = Builder()

    def evalue(self, kind: int, *fields: Field) -> Offset:
        return self.b.table(("B", kind), self.b.table(*fields))

    def plan(self, values: list[Offset] | None = None, delegates: list[Offset] | None = None) -> Offset:
        b = self.b
        return b.table(b.string("forward"), None, b.tables(values or []), *[None] * 4, b.tables(delegates or []))

    def parse(self, plan: Offset | None = None, **slots: Field) -> c.ProgramFile:
        plans = [] if plan is None else [plan]
        fields = [slots.get(f"slot{i}") for i in range(2, 8)]
        return parse(self.b.done(self.b.table(None, self.b.tables(plans), *fields), b"ET12"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("b", 8)], r"scalar_type at byte \d+: scalar type 8 is not supported; known are 0 u8"),
        ([("b", 6), ("i", 3)], r"storage_offset at byte \d+: is 3, ExecuTorch supports only 0"),
        ([("b", 6), *[None] * 7, ("b", 2)], r"shape_dynamism at byte \d+: is 2, .*no upper bound; re-export with"),
        ([("b", 6), *[None] * 4, ("I", 1)], "tensor has data number 1, there are 0"),
    ],
)
def test_a_tensor_we_cannot_hold_is_refused(fields: list[Field], message: str) -> None:
    raw = Raw()
    with pytest.raises(FormatError, match=message):
        raw.parse(raw.plan([raw.evalue(5, *fields)]))


@pytest.mark.parametrize(
    ("number", "region", "message"),
    [
        (2, 0, "tensor has data number 2, there are 2"),
        (1, 1, r"tensor starts with data of mutable_data_segments\[1\], there are 1"),
        (1, 0, "tensor is in segment 0, there are 0"),
    ],
)
def test_initial_data_that_is_not_there(number: int, region: int, message: str) -> None:
    raw, extra = Raw(), None
    b = raw.b
    if region:
        extra = b.table(("Q", region))
    tensor = [("b", 6), *[None] * 4, ("I", number), b.table(), None, None, extra]
    regions = b.tables([b.table(("I", 0), b.scalars("Q", [0, 0]))])
    with pytest.raises(FormatError, match=message):
        raw.parse(raw.plan([raw.evalue(5, *tensor)]), slot6=regions)


@pytest.mark.parametrize(("number", "available"), [(1, 3), (2, 0)])
def test_a_constant_buffer_that_is_too_small(number: int, available: int) -> None:
    raw = Raw()
    buffers = raw.b.tables([raw.b.table(), raw.b.table(raw.b.blob(b"abc"))])
    plan = raw.plan([raw.evalue(5, ("b", 6), *[None] * 4, ("I", number))])
    message = f"tensor needs 4 bytes of constant buffer {number}, {available} are available"
    with pytest.raises(FormatError, match=message):
        raw.parse(plan, slot2=buffers)


@pytest.mark.parametrize(
    ("processed", "message"),
    [
        (None, r"delegates\[0\]\.processed at byte \d+: missing"),
        ([("b", 2)], r"processed\.location at byte \d+: is 2, expected 0 \(inline\) or 1 \(segment\)"),
        ([("b", 1), ("I", 0)], r"processed\.index at byte \d+: segment 0 is out of range, there are 0"),
        ([("b", 0), ("I", 1)], "inline blob 1 is out of range, there are 1"),
        ([("b", 0), ("I", 0)], "the inline blob has no data"),
    ],
)
def test_a_delegate_without_a_blob(processed: list[Field] | None, message: str) -> None:
    raw = Raw()
    b = raw.b
    place = None if processed is None else b.table(*processed)
    plan = raw.plan(delegates=[b.table(b.string("X"), place)])
    with pytest.raises(FormatError, match=message):
        raw.parse(plan, slot3=b.tables([b.table()]))


def test_unknown_kinds_are_named() -> None:
    raw = Raw()
    with pytest.raises(FormatError, match=r"values\[0\] at byte \d+: value of unknown kind 12; the file may be newer"):
        raw.parse(raw.plan([raw.evalue(12)]))
    raw = Raw()
    b = raw.b
    chain = b.table(None, None, b.tables([raw.evalue(6)]))
    plan = b.table(b.string("forward"), *[None] * 4, b.tables([chain]))
    with pytest.raises(FormatError, match=r"instructions\[0\] at byte \d+: instruction of unknown kind 6"):
        raw.parse(plan)


def test_an_operator_that_is_not_there() -> None:
    raw = Raw()
    b = raw.b
    call = b.table(("B", 1), b.table(("i", 0)))
    plan = b.table(b.string("forward"), *[None] * 4, b.tables([b.table(None, None, b.tables([call]))]))
    with pytest.raises(FormatError, match=r"op_index at byte .*: operator 0 is out of range, there are 0"):
        raw.parse(plan)


def test_named_data_that_is_not_there() -> None:
    raw = Raw()
    b = raw.b
    with pytest.raises(FormatError, match=r"named_data\[0\]\.segment_index at byte \d+: segment 3 is out of range"):
        raw.parse(slot7=b.tables([b.table(b.string("k"), ("I", 3))]))


def test_a_key_twice_is_refused() -> None:
    b = Builder()
    entries = b.tables([b.table(b.string("k"), ("I", 0))] * 2)
    segments = b.tables([b.table(("Q", 0), ("Q", 0))])
    data = b.done(b.table(*[None] * 4, segments, None, None, entries), b"ET12")
    with pytest.raises(FormatError, match=r"named_data\[1\] at byte \d+: second entry with the key 'k'"):
        parse(data)


# --- headers and segments ---------------------------------------------------------------------------------------------


def test_a_segment_past_the_end_is_named() -> None:
    b = Builder()
    segments = b.tables([b.table(("Q", 0), ("Q", 5)), b.table(("Q", 2**64 - 1), ("Q", 2))])
    flat = b.done(b.table(*[None] * 4, segments), b"ET12")
    size = len(flat) + 32
    data = splice(flat, struct.pack("<4sIQQQ", b"eh00", 32, size, size, 7)) + bytes(7)
    message = r"segments\[1\] at byte \d+: needs bytes \d+ to \d+ of the segment data, which has 7 bytes"
    with pytest.raises(FormatError, match=message):
        parse(data)


def test_segments_without_a_header_have_no_data() -> None:
    with pytest.raises(FormatError, match=r"segments\[1\].*of the segment data, which has 0 bytes"):
        parse(pte_bytes([Method(delegates=[DelegateBlob(b"blob")])], extended_header=False))


@pytest.mark.parametrize(
    ("position", "code", "value", "message"),
    [
        (12, "<I", 23, "extended header of 23 bytes at byte 8"),
        (12, "<I", 2**32 - 1, "extended header of 4294967295 bytes"),
        (
            16,
            "<Q",
            10**6,
            "is truncated or damaged: its header says that the program takes 1000000 bytes, the file has",
        ),
        (16, "<Q", 39, "the program takes 39 bytes"),
        (24, "<Q", 8, r"segments at byte 8 begin inside the flatbuffer, which ends at \d+"),
        (24, "<Q", 2**64 - 1, "is truncated: its header places segments at bytes"),
        (
            32,
            "<Q",
            10**6,
            r"is truncated: its header places segments at bytes \d+ to \d+, the file has \d+ bytes; copy or",
        ),
        (24, "<Q", 0, r"of the segment data, which has 0 bytes"),
    ],
)
def test_a_broken_header_is_refused(position: int, code: str, value: int, message: str) -> None:
    data = bytearray(sample_pte())
    struct.pack_into(code, data, position, value)
    with pytest.raises(FormatError, match=message):
        parse(bytes(data))


def test_a_longer_header_is_read_like_the_known_one() -> None:
    data = bytearray(sample_pte())
    struct.pack_into("<I", data, 12, 40)  # 8 bytes of padding or flatbuffer become header: nothing there is needed
    assert read_all(bytes(data)) == read_all(sample_pte())


def test_other_files_are_not_programs() -> None:
    with pytest.raises(FormatError, match=r"not an ExecuTorch program \(\.pte\): 'ET' expected at byte 4 of b"):
        parse(sample_blob())
