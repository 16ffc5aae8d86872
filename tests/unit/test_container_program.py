"""Programs: what the writer puts into a .pte file comes out again, and what is wrong is named."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.harness.container_samples import facts, read_all, sample_blob, sample_methods, sample_pte
from tests.support.harness.errors import raises
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
def test_program_round_trips(options: dict[str, Any]) -> None:
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


def test_program_method_ends_can_be_shortened_in_place() -> None:
    """The numbers of instructions and outputs are where `find_ends` says, and nothing else depends on them."""
    data = bytearray(sample_pte())
    for method in parse(bytes(data)).methods:
        ends = c.find_ends(MappedFile.from_bytes("m.pte", data), method.name)
        expected = (len(method.instructions), len(method.outputs))
        assert tuple(struct.unpack_from("<I", data, end)[0] if end else 0 for end in ends) == expected
        for end in filter(None, ends):
            struct.pack_into("<I", data, end, 0)
        short = next(plan for plan in parse(bytes(data)).methods if plan.name == method.name)
        assert facts(short) == facts(dataclasses.replace(method, instructions=(), outputs=()))
    assert c.find_ends(MappedFile.from_bytes("m.pte", data), "absent") == (0, 0)


def test_program_without_segments_needs_no_header() -> None:
    methods = [Method(values=[c.IntValue(5)], outputs=[0], delegates=[DelegateBlob(b"blob")], chains=0)]
    program = parse(pte_bytes(methods, extended_header=False, inline_delegates=True))
    (method,) = program.methods
    assert method.values == (c.IntValue(5),) and method.instructions == ()
    assert bytes(method.delegates[0].blob.view()) == b"blob"


def test_program_on_disk_is_referenced_not_copied(tmp_path: Path) -> None:
    pte_file(tmp_path / "m.pte", sample_methods(), named_data={"k": b"0123456789"})
    with MappedFile(tmp_path / "m.pte") as file:
        span = parse_program(file).named_data["k"]
        assert span.file is file
        assert (tmp_path / "m.pte").read_bytes()[span.offset : span.offset + span.size] == b"0123456789"


def test_program_tensor_constant_or_mutable_by_place() -> None:
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


def test_program_missing_dim_order_is_contiguous() -> None:
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
    ("value", "code", "expected"),
    [
        (c.IntListValue((0, 2)), "index_out_of_range", ["values[1].val.items", "value 2 ", "are 2"]),
        (c.IntListValue((-1,)), "index_out_of_range", ["values[1].val.items", "value -1 "]),
        (c.TensorListValue((2,)), "index_out_of_range", ["value 2 ", "are 2"]),
        (c.OptionalTensorListValue((None, 2)), "index_out_of_range", ["value 2 "]),
        (c.OptionalTensorListValue((-2,)), "index_out_of_range", ["value -2 "]),
        (c.TensorValue(F32, (-3,), (0,)), "negative_size", ["sizes", "(-3,)"]),
        (c.TensorValue(F32, (1,) * 17, tuple(range(17))), "too_many_dims", [17, 16]),
        (c.TensorValue(F32, (2, 3), (0, 0)), "dim_order", ["(0, 0)", "2 dim"]),
        (c.TensorValue(F32, (2, 3), (0, 1, 2)), "dim_order", ["(0, 1, 2)", "2 dim"]),
        (c.TensorValue(F32, (2,), (1,)), "dim_order", ["(1,)", "1 dim"]),
        (c.TensorValue(F32, (2,), (0,), external_name=""), "missing_field", ["fully_qualified_name"]),
        (
            c.TensorValue(F32, (4,), (0,), data=DATA),
            "data_too_small",
            ["m.pte: program.execution_plan[0].values[1].val ", "16 bytes", "offset 0", "segment 0", "has 12"],
        ),
        (
            c.TensorValue(F32, (2**31 - 1,) * 3, (0, 1, 2), data=DATA, place=(1, 0), name="kv"),
            "data_too_small",
            ["'kv'", f"{4 * (2**31 - 1) ** 3} bytes", "offset 0", "segment 1", "has 12"],
        ),
    ],
)
def test_program_invalid_value_is_refused(value: c.EValue, code: str, expected: list[object]) -> None:
    with raises(FormatError, *expected, code=code):
        parse_one(c.IntValue(0), value)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (c.KernelCall("aten::relu.out", (0, 1)), ["instructions[1].instr_args.args", "value 1 "]),
        (c.DelegateCall(1, ()), ["delegate_index", "delegate 1 ", "are 1"]),
        (c.DelegateCall(-1, ()), ["delegate_index", "delegate -1 "]),
        (c.DelegateCall(0, (-1,)), ["args", "value -1 ", "are 1"]),
        (c.MoveCall(1, 0), ["move_from", "value 1 "]),
        (c.MoveCall(0, 1), ["move_to", "value 1 "]),
        (c.JumpFalseCall(1, 0), ["cond_value_index", "value 1 "]),
        (c.JumpFalseCall(0, 3), ["destination_instruction", "instruction 3 ", "are 3"]),
        (c.JumpFalseCall(0, -1), ["destination_instruction", "instruction -1 "]),
        (c.FreeCall(7), ["value_index", "value 7 ", "are 1"]),
    ],
)
def test_program_invalid_instruction_is_refused(instruction: c.Instruction, expected: list[str]) -> None:
    with raises(FormatError, *expected, code="index_out_of_range"):
        parse_one(c.IntValue(0), instructions=[c.FreeCall(0), instruction], delegates=[DelegateBlob(b"x")])


def test_program_jump_to_end_is_valid() -> None:
    jump = c.JumpFalseCall(0, 2)
    assert parse_one(c.BoolValue(False), instructions=[jump, c.FreeCall(0)]).instructions[0] == jump


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        ({"inputs": [1]}, "index_out_of_range", ["execution_plan[0].inputs", "value 1 ", "are 1"]),
        ({"outputs": [0, -1]}, "index_out_of_range", ["execution_plan[0].outputs", "value -1 "]),
        ({"chains": 2}, "several_chains", ["got 2"]),
    ],
)
def test_program_invalid_method_is_refused(options: dict[str, Any], code: str, expected: list[str]) -> None:
    with raises(FormatError, *expected, code=code):
        parse_one(c.IntValue(0), **options)


def test_program_duplicate_method_is_refused() -> None:
    with raises(FormatError, "execution_plan[1]", "'forward'", code="duplicate_method"):
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
    ("fields", "code", "expected"),
    [
        ([("b", 8)], "unknown_dtype", ["scalar_type", "type 8", "0 u8"]),
        ([("b", 6), ("i", 3)], "storage_offset", ["storage_offset", "got 3"]),
        ([("b", 6), *[None] * 7, ("b", 2)], "unbounded_shape", ["shape_dynamism", "got 2", "torch.export.Dim"]),
        ([("b", 6), *[None] * 4, ("I", 1)], "index_out_of_range", ["number 1:", "are 0"]),
    ],
)
def test_program_unsupported_tensor_is_refused(fields: list[Field], code: str, expected: list[str]) -> None:
    raw = Raw()
    with raises(FormatError, *expected, code=code):
        raw.parse(raw.plan([raw.evalue(5, *fields)]))


@pytest.mark.parametrize(
    ("number", "region", "expected"),
    [
        (2, 0, ["number 2:", "are 2"]),
        (1, 1, ["mutable_data_segments[1]", "are 1"]),
        (1, 0, ["segment 0:", "are 0"]),
    ],
)
def test_initial_data_missing_is_refused(number: int, region: int, expected: list[str]) -> None:
    raw, extra = Raw(), None
    b = raw.b
    if region:
        extra = b.table(("Q", region))
    tensor = [("b", 6), *[None] * 4, ("I", number), b.table(), None, None, extra]
    regions = b.tables([b.table(("I", 0), b.scalars("Q", [0, 0]))])
    with raises(FormatError, *expected, code="index_out_of_range"):
        raw.parse(raw.plan([raw.evalue(5, *tensor)]), slot6=regions)


@pytest.mark.parametrize(("number", "available"), [(1, 3), (2, 0)])
def test_program_constant_buffer_too_small_is_refused(number: int, available: int) -> None:
    raw = Raw()
    buffers = raw.b.tables([raw.b.table(), raw.b.table(raw.b.blob(b"abc"))])
    plan = raw.plan([raw.evalue(5, ("b", 6), *[None] * 4, ("I", number))])
    with raises(FormatError, "values[0]", "4 bytes", f"buffer {number}", f"has {available}", code="data_too_small"):
        raw.parse(plan, slot2=buffers)


@pytest.mark.parametrize(
    ("processed", "code", "expected"),
    [
        (None, "missing_field", ["delegates[0].processed "]),
        ([("b", 2)], "unknown_kind", ["processed.location", "is 2,"]),
        ([("b", 1), ("I", 0)], "index_out_of_range", ["processed.index", "segment 0 ", "are 0"]),
        ([("b", 0), ("I", 1)], "index_out_of_range", ["processed.index", "blob 1 ", "are 1"]),
        ([("b", 0), ("I", 0)], "missing_data", ["processed.index"]),
    ],
)
def test_program_delegate_without_blob_is_refused(
    processed: list[Field] | None, code: str, expected: list[str]
) -> None:
    raw = Raw()
    b = raw.b
    place = None if processed is None else b.table(*processed)
    plan = raw.plan(delegates=[b.table(b.string("X"), place)])
    with raises(FormatError, *expected, code=code):
        raw.parse(plan, slot3=b.tables([b.table()]))


def test_unknown_kinds_are_named() -> None:
    raw = Raw()
    with raises(FormatError, "values[0]", 12, code="unknown_kind"):
        raw.parse(raw.plan([raw.evalue(12)]))
    raw = Raw()
    b = raw.b
    chain = b.table(None, None, b.tables([raw.evalue(6)]))
    plan = b.table(b.string("forward"), *[None] * 4, b.tables([chain]))
    with raises(FormatError, "instructions[0]", 6, code="unknown_kind"):
        raw.parse(plan)


def test_program_missing_operator_is_refused() -> None:
    raw = Raw()
    b = raw.b
    call = b.table(("B", 1), b.table(("i", 0)))
    plan = b.table(b.string("forward"), *[None] * 4, b.tables([b.table(None, None, b.tables([call]))]))
    with raises(FormatError, "op_index", "operator 0", code="index_out_of_range"):
        raw.parse(plan)


def test_named_data_missing_is_refused() -> None:
    raw = Raw()
    b = raw.b
    with raises(FormatError, "named_data[0].segment_index", "segment 3", code="index_out_of_range"):
        raw.parse(slot7=b.tables([b.table(b.string("k"), ("I", 3))]))


def test_program_duplicate_key_is_refused() -> None:
    b = Builder()
    entries = b.tables([b.table(b.string("k"), ("I", 0))] * 2)
    segments = b.tables([b.table(("Q", 0), ("Q", 0))])
    data = b.done(b.table(*[None] * 4, segments, None, None, entries), b"ET12")
    with raises(FormatError, "named_data[1]", "'k'", code="duplicate_key"):
        parse(data)


# --- headers and segments ---------------------------------------------------------------------------------------------


def test_program_segment_out_of_bounds_is_refused() -> None:
    b = Builder()
    segments = b.tables([b.table(("Q", 0), ("Q", 5)), b.table(("Q", 2**64 - 1), ("Q", 2))])
    flat = b.done(b.table(*[None] * 4, segments), b"ET12")
    size = len(flat) + 32
    data = splice(flat, struct.pack("<4sIQQQ", b"eh00", 32, size, size, 7)) + bytes(7)
    with raises(FormatError, "segments[1]", 2**64 - 1, 2**64 + 1, "7 bytes", code="segment_out_of_bounds"):
        parse(data)


def test_segments_without_a_header_have_no_data() -> None:
    with raises(FormatError, "segments[1]", "0 bytes", code="segment_out_of_bounds"):
        parse(pte_bytes([Method(delegates=[DelegateBlob(b"blob")])], extended_header=False))


@pytest.mark.parametrize(
    ("position", "code", "value", "reason", "expected"),
    [
        (12, "<I", 23, "invalid_header", ["23 bytes", "byte 8 "]),
        (12, "<I", 2**32 - 1, "invalid_header", ["4294967295 bytes"]),
        (16, "<Q", 10**6, "truncated", ["1000000 bytes", len(sample_pte())]),
        (16, "<Q", 39, "truncated", [" 39 bytes", len(sample_pte())]),
        (24, "<Q", 8, "segment_overlap", ["byte 8 "]),
        (24, "<Q", 2**64 - 1, "truncated", [2**64 - 1, f"{len(sample_pte())} bytes"]),
        (32, "<Q", 10**6, "truncated", [f"{len(sample_pte())} bytes"]),
        (24, "<Q", 0, "segment_out_of_bounds", ["segments[0]", " 0 bytes"]),
    ],
)
def test_program_invalid_header_is_refused(
    position: int, code: str, value: int, reason: str, expected: list[object]
) -> None:
    data = bytearray(sample_pte())
    struct.pack_into(code, data, position, value)
    with raises(FormatError, *expected, code=reason):
        parse(bytes(data))


def test_program_longer_header_reads_the_same() -> None:
    data = bytearray(sample_pte())
    struct.pack_into("<I", data, 12, 40)  # 8 bytes of padding or flatbuffer become header: nothing there is needed
    assert read_all(bytes(data)) == read_all(sample_pte())


def test_program_other_file_type_is_refused() -> None:
    with raises(FormatError, "m.pte", ".pte", "'ET'", code="bad_magic"):
        parse(sample_blob())
