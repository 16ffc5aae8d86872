"""Parse .pte programs: methods as values and instructions, delegates as blobs, data as ranges of the file.

Slots are those of ExecuTorch's ``program.fbs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from types import MappingProxyType

from ..errors import FormatError
from .files import MappedFile, Span
from .flat import FlatBuffer, FlatTable, quoted_name
from .recognize import wrong_file_error
from .tensor_data import TensorData, read_named_data, segment_area
from .values import EValue, read_value


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run an operator outside of delegates, for instance ``aten::cumsum.out``. Outputs are among ``args``."""

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate. ``args`` are its inputs, then its outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Assign one value to another."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Continue at instruction ``target`` (the number of instructions means the end) if the condition is false."""

    condition: int
    target: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Release a tensor's memory."""

    value: int


Instruction = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of a method that a backend compiled."""

    backend: str
    blob: Span
    compile_specs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class MethodPlan:
    """One entry point. Ids, wherever they occur, index ``values``."""

    name: str
    values: tuple[EValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """The contents of a .pte file."""

    path: str
    version: int
    methods: tuple[MethodPlan, ...]
    named_data: Mapping[str, Span]


_KIND = "an ExecuTorch program (.pte)"


def parse_program(file: MappedFile) -> ProgramFile:
    """Parse and check a .pte file. The result refers to ranges of ``file``, which must stay open to read them."""
    if file.size < 8 or bytes(file.view(4, 2)) != b"ET":
        raise wrong_file_error(file, _KIND, "expected 'ET' at byte 4")
    program, area = _read_header(file)
    root = FlatBuffer(program).root("program", b"ET", _KIND)
    data = TensorData.read(root, area)
    inline = tuple(entry.blob(0, "data") for entry in root.tables(3, "backend_delegate_data"))
    methods: dict[str, MethodPlan] = {}
    for plan in root.tables(1, "execution_plan"):
        method = _read_method(plan, data, inline)
        if method.name in methods:
            raise plan.error(f"second method named {quoted_name(method.name)}", code="duplicate_method")
        methods[method.name] = method
    named = {key: span for key, span, _ in read_named_data(root, 7, data.segments)}
    return ProgramFile(file.path, root.u32(0, "version"), tuple(methods.values()), MappingProxyType(named))


def find_ends(file: MappedFile, name: str) -> tuple[int, int]:
    """Return the positions in the file of the numbers of instructions and of outputs of a method; 0 if absent."""
    program, _ = _read_header(file)
    for plan in FlatBuffer(program).root("program", b"ET", _KIND).tables(1, "execution_plan"):
        if plan.text(0, "name") == name:
            chain = next(plan.tables(5, "chains"), None)
            return (0 if chain is None else chain.place(2, "instructions")), plan.place(4, "outputs")
    return 0, 0


def _read_header(file: MappedFile) -> tuple[Span, Span]:
    """Return the ranges of the flatbuffer and of the segments. Files without segments need no extended header."""
    if file.size < 16 or bytes(file.view(8, 4)) != b"eh00":
        return Span(file, 0, file.size), Span(file, file.size, 0)
    (length,) = unpack_from("<I", file.view(12, 4))
    if length < 24 or 8 + length > file.size:
        raise FormatError(
            f"extended header of {length} bytes at byte 8 of {file.size}, expected 24 or 32",
            argument=file.path,
            code="invalid_header",
        )
    program_size, segments = unpack_from("<QQ", file.view(16, 16))
    (segments_size,) = unpack_from("<Q", file.view(32, 8)) if length >= 32 else (0,)
    if not 8 + length <= program_size <= file.size:
        raise FormatError(
            f"truncated or damaged: the header gives the program {program_size} bytes, the file has {file.size}",
            argument=file.path,
            code="truncated",
            hint="Copy or download it again.",
        )
    return Span(file, 0, program_size), segment_area(file, segments, segments_size, program_size)


def _read_method(plan: FlatTable, data: TensorData, inline: tuple[Span | None, ...]) -> MethodPlan:
    count = plan.count(2, "values")
    delegates = tuple(_read_delegate(entry, data.segments, inline) for entry in plan.tables(7, "delegates"))
    return MethodPlan(
        name=plan.text(0, "name"),
        values=tuple(read_value(entry, count, data) for entry in plan.tables(2, "values")),
        inputs=plan.indices(3, "inputs", count, "value"),
        outputs=plan.indices(4, "outputs", count, "value"),
        instructions=_read_instructions(plan, count, len(delegates)),
        delegates=delegates,
    )


def _read_delegate(entry: FlatTable, segments: tuple[Span, ...], inline: tuple[Span | None, ...]) -> Delegate:
    processed = entry.table(1, "processed")
    if processed is None:
        raise entry.error("missing", "processed", code="missing_field")
    location = processed.i8(0, "location")
    if location not in (0, 1):
        raise processed.error(f"is {location}, expected 0 (inline) or 1 (segment)", "location", code="unknown_kind")
    blobs = segments if location else inline
    blob = blobs[processed.index(1, "index", len(blobs), "segment" if location else "inline blob")]
    if blob is None:
        raise processed.error("the inline blob has no data", "index", code="missing_data")
    specs = {}
    for spec in entry.tables(2, "compile_specs"):
        specs[spec.text(0, "key")] = spec.data(1, "value")
    return Delegate(entry.text(0, "id"), blob, MappingProxyType(specs))


def _read_instructions(plan: FlatTable, values: int, delegates: int) -> tuple[Instruction, ...]:
    chains = plan.count(5, "chains")
    if chains > 1:
        raise plan.error(
            f"expected one chain of instructions, as ExecuTorch writes, got {chains}",
            "chains",
            code="several_chains",
        )
    ops = []
    for entry in plan.tables(6, "operators"):
        overload = entry.label(1, "overload")
        ops.append(entry.text(0, "name") + (f".{overload}" if overload else ""))
    instructions: list[Instruction] = []
    for chain in plan.tables(5, "chains"):
        count = chain.count(2, "instructions")
        entries = chain.tables(2, "instructions")
        instructions.extend(_read_instruction(entry, values, delegates, ops, count) for entry in entries)
    return tuple(instructions)


def _read_instruction(entry: FlatTable, values: int, delegates: int, ops: list[str], instructions: int) -> Instruction:
    kind, table = entry.union(0, "instr_args")
    match kind:
        case 1:
            op = ops[table.index(0, "op_index", len(ops), "operator")]
            return KernelCall(op, table.indices(1, "args", values, "value"))
        case 2:
            delegate = table.index(0, "delegate_index", delegates, "delegate")
            return DelegateCall(delegate, table.indices(1, "args", values, "value"))
        case 3:
            source = table.index(0, "move_from", values, "value")
            return MoveCall(source, table.index(1, "move_to", values, "value"))
        case 4:
            condition = table.index(0, "cond_value_index", values, "value")
            return JumpFalseCall(condition, table.index(1, "destination_instruction", instructions + 1, "instruction"))
        case 5:
            return FreeCall(table.index(0, "value_index", values, "value"))
    raise entry.error(f"instruction of unknown kind {kind}. The file may be newer than webpte", code="unknown_kind")
