"""Read the reports of shader compilers: the figures of one kernel, by name.

Names that all devices share:

    instructions    of the whole kernel, each counted once
    spills          registers that were moved to memory
    registers       per invocation (AMD, Adreno, NVIDIA; on Apple those of 16 bits)
    occupancy       subgroups of a SIMD (AMD) or of a multiprocessor (NVIDIA), invocations of an instruction (Intel),
                    all (2) or half (1) of the threads of a core (Mali), threads of a core (Apple)
    shared_bytes    workgroup memory
    code_bytes      size of the machine code
    latency, inverse_throughput, cycles     the compiler's own estimates
    loop_*          the innermost loop with the most multiplications that stores no results: where a matrix product
                    spends its time
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


class ReportError(Exception):
    """A report has no figures where they were expected."""


def _figures(report: str, names: dict[str, str], pattern: str) -> dict[str, int]:
    """Return the last value of each name of the report, under our names."""
    values = dict(re.findall(pattern, report, re.MULTILINE))
    if missing := [name for name in names if name not in values]:
        raise ReportError(f"the report has no {', '.join(missing)}: {report[-300:]!r}")
    return {ours: int(values[theirs]) for theirs, ours in names.items()}


# ---------------------------------------------------------------- loops


@dataclass
class Block:
    """Instructions after a label, without its operands, and the labels that they branch to."""

    label: str
    instructions: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


def loops(blocks: Sequence[Block]) -> list[list[str]]:
    """Return the instructions of the innermost loops: from a label to the last branch back to it."""
    at = {block.label: number for number, block in enumerate(blocks)}
    ends: dict[int, int] = {}
    for number, block in enumerate(blocks):
        for target in block.targets:
            if at.get(target, number + 1) <= number:
                ends[at[target]] = number
    inner = [
        (first, last)
        for first, last in ends.items()
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in ends.items())
    ]
    return [[name for block in blocks[first : last + 1] for name in block.instructions] for first, last in inner]


def _hot(bodies: Sequence[list[str]], multiplies: re.Pattern[str], stores: re.Pattern[str]) -> list[str]:
    """Return the loop with the most multiplications; one that stores results only if there is no other."""

    def rank(body: list[str]) -> tuple[bool, int]:
        return not any(map(stores.match, body)), sum(bool(multiplies.match(name)) for name in body)

    return max(bodies, key=rank, default=[])


# ---------------------------------------------------------------- AMD

_RADV_NAMES = {
    "Instructions": "instructions",
    "SGPRs": "scalar_registers",
    "VGPRs": "registers",
    "Spilled SGPRs": "scalar_spills",
    "Spilled VGPRs": "spills",
    "Subgroups per SIMD": "occupancy",
    "LDS size": "shared_bytes",
    "Scratch size": "scratch_bytes",
    "Code size": "code_bytes",
    "Latency": "latency",
    "Inverse Throughput": "inverse_throughput",
    "VALU": "valu",
    "SALU": "salu",
    "VMEM": "vmem",
    "SMEM": "smem",
    "VOPD": "vopd",
    "Branches": "branches",
}
_AMD_KINDS = {  # of an instruction, by the beginning of its name; waits and hints are not counted
    "valu": re.compile(r"v_"),
    "vmem": re.compile(r"(buffer|global|flat|scratch|image)_"),
    "lds": re.compile(r"ds_"),
    "smem": re.compile(r"s_(load|buffer_load)"),
    "salu": re.compile(r"s_(?!load|buffer_load|wait|delay|clause|nop|code_end|endpgm|sendmsg|inst_prefetch|set_inst)"),
}
_AMD_MULTIPLY = re.compile(r"v_(dual_)?(pk_)?(mul_f|fma|mac_|mad_f|dot)")
_AMD_STORE = re.compile(r"(buffer|global|flat)_store")


def radv(report: str) -> dict[str, int]:
    """Read RADV_DEBUG=shaderstats,asm. For the newest GPUs Debian's RADV lists the instructions in its own notation."""
    figures = _figures(report, _RADV_NAMES, r"^([A-Z][\w -]+): (-?\d+)$")
    blocks = radv_blocks(report)
    if not blocks:
        raise ReportError("the report has no instructions")
    every = [name for block in blocks for name in block.instructions]
    hot = _hot(loops(blocks), _AMD_MULTIPLY, _AMD_STORE)
    figures["lds"] = sum(bool(_AMD_KINDS["lds"].match(name)) for name in every)
    counts = {f"loop_{kind}": sum(bool(begin.match(name)) for name in hot) for kind, begin in _AMD_KINDS.items()}
    return figures | {"loop_instructions": sum(counts.values())} | counts


def radv_blocks(report: str) -> list[Block]:
    blocks: list[Block] = []
    listing = report.rpartition("disasm:")[2].partition("SHADER STATS")[0]
    for line in listing.splitlines():
        if (label := re.match(r"(BB\d+):?$", line)) is not None:
            blocks.append(Block(label[1]))
        elif (instruction := re.match(r"\t(?: .* = )?(\w+)(.*)", line)) is not None:
            blocks[-1].instructions.append(instruction[1])
            if re.match(r"s_c?branch", instruction[1]):
                blocks[-1].targets += re.findall(r"\bBB\d+\b", instruction[2])
    return blocks


# ---------------------------------------------------------------- Intel

_INTEL_HEAD = re.compile(
    r"^SIMD(?P<occupancy>\d+) shader: (?P<instructions>\d+) instructions\. (?P<loops>\d+) loops\. "
    r"(?P<cycles>\d+) cycles\. (?P<spills>\d+):(?P<fills>\d+) spills:fills, (?P<sends>\d+) sends.*?"
    r"Compacted \d+ to (?P<code_bytes>\d+) bytes",
    re.MULTILINE,
)
_INTEL_INSTRUCTION = re.compile(r"(?:\([^)]*\) )?(\w+)[\w.]*\(\d+\)(?:\s+JIP:\s+(\w+))?")
_INTEL_MULTIPLY = re.compile(r"(mad|mul|mac|dp4a)")
_INTEL_STORE = re.compile(r"send_store")  # as `anv` names a send whose message is a write


def anv(report: str) -> dict[str, int]:
    """Read INTEL_DEBUG=cs. If several widths were compiled, the driver runs the last one."""
    heads = list(_INTEL_HEAD.finditer(report))
    if not heads:
        raise ReportError(f"the report has no SIMD width: {report[-300:]!r}")
    figures = {name: int(value) for name, value in heads[-1].groupdict().items()}
    blocks = [Block("")]
    for line in report[heads[-1].end() :].splitlines():
        if (label := re.match(r"(LABEL\d+):$", line)) is not None:
            blocks.append(Block(label[1]))
        elif (instruction := _INTEL_INSTRUCTION.match(line)) is not None:
            blocks[-1].instructions.append(instruction[1])
            if instruction[1] == "while":
                blocks[-1].targets.append(instruction[2])
                blocks.append(Block(""))
        elif re.match(r"\s+.*MsgDesc: *\(.*\b(store|write)\b", line):
            blocks[-1].instructions[-1] = "send_store"
    hot = _hot(loops(blocks), _INTEL_MULTIPLY, _INTEL_STORE)
    sends = sum(name.startswith("send") for name in hot)
    return figures | {"loop_instructions": len(hot), "loop_sends": sends}


# ---------------------------------------------------------------- Mali

_MALI = re.compile(
    r"^SHADER-DB: .*shader: (?P<instructions>\d+) inst, (?P<cycles>[\d.]+) cycles, (?P<fma>[\d.]+) fma, "
    r"(?P<cvt>[\d.]+) cvt, (?P<sfu>[\d.]+) sfu, [\d.]+ v, [\d.]+ t, (?P<load_store>[\d.]+) ls, "
    r"(?P<quadwords>\d+) quadwords, (?P<occupancy>\d+) threads, (?P<loops>\d+) loops, "
    r"(?P<spills>\d+):(?P<fills>\d+) spills:fills$",
    re.MULTILINE,
)
_MALI_PER_CYCLE = {"fma": 64, "cvt": 64, "sfu": 16, "load_store": 1}  # instructions of a unit, as the compiler has them


def panvk(report: str) -> dict[str, int]:
    """Read BIFROST_MESA_DEBUG=shaderdb. Cycles of a unit are returned as its instructions, which are integers."""
    lines = list(_MALI.finditer(report))
    if not lines:
        raise ReportError(f"the report has no SHADER-DB line: {report[-300:]!r}")
    figures = {name: float(value) for name, value in lines[-1].groupdict().items()}
    for unit, count in _MALI_PER_CYCLE.items():
        figures[unit] *= count
    figures["code_bytes"] = figures.pop("quadwords") * 16
    return {name: round(value) for name, value in figures.items()}


# ---------------------------------------------------------------- Adreno

_ADRENO = re.compile(
    r"prog \d+/\d+: (?P<instructions>\d+) instr, (?P<nops>\d+) nops, .*?(?P<dwords>\d+) dwords\n"
    r"; .*?(?P<half_registers>\d+) half, (?P<registers>\d+) full.*\n"
    r"; .*?(?P<cat2>\d+) cat2, (?P<cat3>\d+) cat3, (?P<cat4>\d+) cat4, (?P<cat5>\d+) cat5, (?P<cat6>\d+) cat6.*\n"
    r"; .*?(?P<ss_stalls>\d+) sstall, .*?(?P<sy_stalls>\d+) systall, .*?(?P<loops>\d+) loops",
)


_ADRENO_INSTRUCTION = re.compile(r"((?:\(\w+\))*)([a-z][\w.]*)(.*)")
_ADRENO_MULTIPLY = re.compile(r"(mad|mul)\.f")
_ADRENO_STORE = re.compile(r"stib")


def turnip(report: str) -> dict[str, int]:
    """Read IR3_SHADER_DEBUG=cs. A register has four components; a store to private memory is a spill."""
    report = re.sub(r"^MESA: info: ", "", report, flags=re.MULTILINE)
    heads = list(_ADRENO.finditer(report))
    if not heads:
        raise ReportError(f"the report has no figures of a program: {report[-300:]!r}")
    figures = {name: int(value) for name, value in heads[-1].groupdict().items()}
    figures["code_bytes"] = figures.pop("dwords") * 4
    blocks = [Block("")]
    listing = report[: heads[-1].start()].rpartition("Native code")[2]
    for line in listing.splitlines():
        if (label := re.match(r"(l\d+):$", line)) is not None:
            blocks.append(Block(label[1]))
        elif (instruction := _ADRENO_INSTRUCTION.match(line)) is not None and instruction[2] != "nop":
            repeated = re.search(r"\(rpt(\d+)\)", instruction[1])
            blocks[-1].instructions += [instruction[2]] * (1 + int(repeated[1]) if repeated else 1)
            if re.match(r"(jump|br)", instruction[2]):
                blocks[-1].targets += re.findall(r"#(l\d+)", instruction[3])
                blocks.append(Block(""))
    hot = _hot(loops(blocks), _ADRENO_MULTIPLY, _ADRENO_STORE)
    spills = sum(name.startswith("stp") for block in blocks for name in block.instructions)
    return figures | {"spills": spills, "loop_instructions": len(hot)}


# ---------------------------------------------------------------- Apple

_AGX = re.compile(
    r"^CS shader: (?P<instructions>\d+) instrs, (?P<alu>\d+) alu, (?P<fscib>\d+) fscib, (?P<ic>\d+) ic, "
    r"(?P<code_bytes>\d+) code size, (?P<registers>\d+) gprs, (?P<uniforms>\d+) uniforms, "
    r"(?P<scratch_bytes>\d+) scratch, (?P<occupancy>\d+) threads, (?P<loops>\d+) loops, "
    r"(?P<spills>\d+):(?P<fills>\d+) spills:fills, (?P<preamble>\d+) preamble inst$",
    re.MULTILINE,
)
_AGX_INSTRUCTION = re.compile(r"^ *([0-9a-f]+): [0-9a-f]{4,} +(\w+) *(.*)$", re.MULTILINE)
_AGX_MULTIPLY = re.compile(r"h?f(fma|mul|ma)$")
_AGX_STORE = re.compile(r"store$")
_AGX_WAIT = re.compile(r"wait$|nop$")


def agx(report: str) -> dict[str, int]:
    """Read AGX_MESA_DEBUG=shaderdb,shaders. The last program has a preamble, whose listing follows its own."""
    heads = list(_AGX.finditer(report))
    if not heads:
        raise ReportError(f"the report has no figures of a program: {report[-300:]!r}")
    figures = {name: int(value) for name, value in heads[-1].groupdict().items()}
    listings: list[list[re.Match[str]]] = []
    for instruction in _AGX_INSTRUCTION.finditer(report):
        if int(instruction[1], 16) == 0:
            listings.append([])
        listings[-1].append(instruction)
    main = next((listing for listing in listings if len(listing) == figures["instructions"]), None)
    if main is None:
        raise ReportError(f"the report has no listing of {figures['instructions']} instructions")
    blocks = []
    for instruction in main:
        at, name, operands = int(instruction[1], 16), instruction[2], instruction[3]
        target = [f"{at + int(operands.split()[0]):x}"] if name == "jmp_any" else []
        blocks.append(Block(f"{at:x}", [] if _AGX_WAIT.match(name) else [name], target))
    hot = _hot(loops(blocks), _AGX_MULTIPLY, _AGX_STORE)
    memory = sum(name in ("load", "lload", "store", "lstore") for name in hot)
    return figures | {"loop_instructions": len(hot), "loop_memory": memory}


# ---------------------------------------------------------------- NVIDIA

_NAK_NAMES = {
    "Instruction count": "instructions",
    "Static cycle count": "cycles",
    "Max warps/SM": "occupancy",
    "Spills to mem": "spills",
    "Fills from mem": "fills",
    "Spills to reg": "register_spills",
    "Num GPRs": "registers",
    "SLM size": "scratch_bytes",
}
_NAK_BLOCK = re.compile(r"^block(?:\.\w+)? (\d+) [^\n]*\{\n(.*?)^\} -> \[([^\n]*)\]$", re.MULTILINE | re.DOTALL)
_NAK_INSTRUCTION = re.compile(r"^(?:@\S+)? +(?:\S[^=/\n]* = )?([a-z]\w*(?:\.\w+)*)", re.MULTILINE)
_NAK_MULTIPLY = re.compile(r"[fh](fma|mul)|idp4")
_NAK_STORE = re.compile(r"st\.global")
_NAK_MEMORY = re.compile(r"(ld|st|atom)\b")


def nak(report: str) -> dict[str, int]:
    """Read NAK_DEBUG=print: the last listing of a program, and the figures after it."""
    figures = _figures(report, _NAK_NAMES, r"^([A-Z][\w /]+): (\d+)$")
    blocks = nak_blocks(report)
    if not blocks:
        raise ReportError("the report has no instructions")
    hot = _hot(loops(blocks), _NAK_MULTIPLY, _NAK_STORE)
    memory = sum(bool(_NAK_MEMORY.match(name)) for name in hot)
    return figures | {"loop_instructions": len(hot), "loop_memory": memory}


def nak_blocks(report: str) -> list[Block]:
    blocks = []
    for label, text, targets in _NAK_BLOCK.findall(report.rpartition("NAK IR")[2]):
        names = [name for name in _NAK_INSTRUCTION.findall(text) if name != "nop"]
        blocks.append(Block(label, names, targets.split(", ")))
    return blocks
