"""Compile products on matrix units for GPUs that are not there: `python -m bench.compilers.matrix_units [DEVICE ...]`

wgpu-native does not enable cooperative matrices, so Dawn (npm package `webgpu`, in web/node_modules) gives the kernels
to the drivers. The layers are those of Llama 3.2 1B that add a residual, and that multiply a gate. The instructions of
a step along K are divided by the multiply-adds of an invocation: its share of those of a subgroup of 32.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import debian
from tests.cases.q4.linear_q4 import gated, joined
from tests.support.harness.cases import T, planned_kernels
from tests.support.harness.matrix_units import SIZES, caps_with, variant
from webpte.wgsl import Kernel, matrices_of, render

from . import debian_root, parse
from .drivers import DEVICES, NEWER_MESA, VENDORS, CompilerError, Device, Source
from .report import markdown_table

SHAPE = (16, 16, 16)  # the one of AMD and NVIDIA
SUBGROUP = 32  # invocations
NAMES = ("navi31", "gfx1151", "turing", "ampere")
_MATRIX = re.compile(r"v_wmma|hmma")
_BLOCK = re.compile(r"^@@ begin (\d+)\n(.*?)^@@ end$", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"^@@ error (.*)$", re.MULTILINE)
_HINT = re.compile(r"s_(wait|delay|clause|nop|code_end)|nop$")


def kernels() -> dict[str, Kernel]:
    """Return the kernels of both sizes, for one weight and for two."""
    by_name = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            options = {"variant": variant(size, SHAPE), "n": (255,)}
            layers = {
                "residual": joined(T("n", 2048), (2048,), residual=T("n", 2048), **options),  # type: ignore[no-untyped-call]
                "gate": gated(T("n", 2048), 8192, normed=True, **options),  # type: ignore[no-untyped-call]
            }
            for name, layer in layers.items():
                planned = planned_kernels(layer, Path(folder), caps_with(SHAPE))
                by_name[f"{size} × {size}, {name}"] = next(k for k in planned if matrices_of(render(k)))
    return by_name


def reports(device: Device, sources: Sequence[Source]) -> list[str]:
    """Return the driver's report of each kernel."""
    vendor, node = VENDORS[device.vendor], shutil.which("node") or "node"
    if (reason := vendor.missing()) is not None:
        raise CompilerError(f"{device.name}: {reason}")
    command: list[str | Path] = [node]
    if vendor.mesa == NEWER_MESA:
        loader = debian.loader(debian_root.folder())
        command = [loader, "--library-path", loader.parent, "--argv0", node, node]
    with tempfile.TemporaryDirectory() as runtime, tempfile.TemporaryFile() as errors:  # a pipe would lose lines
        worker = subprocess.run(
            [*command, Path(__file__).with_name("dawn_worker.mjs")],
            input=json.dumps([asdict(source) for source in sources]).encode(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, **vendor.environment(device)},
        )
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    blocks = {int(number): block for number, block in _BLOCK.findall(text)}
    if error := _ERROR.search(text):
        raise CompilerError(f"{device.name} rejects a kernel: {error[1]}")
    if worker.returncode or len(blocks) != len(sources):
        raise CompilerError(f"{device.name}: the compiler ended with {worker.returncode}: {text[-1000:]}")
    return [blocks[number] for number in range(len(sources))]


def loop_of(blocks: Sequence[parse.Block], falls_through: bool) -> list[str]:
    """Return the instructions of the smallest loop with a matrix instruction, by the branches between blocks."""
    at = {block.label: number for number, block in enumerate(blocks)}
    before: dict[int, set[int]] = {number: set() for number in at.values()}
    for number, block in enumerate(blocks):
        ends = block.instructions and re.match(r"s_(branch|endpgm)$", block.instructions[-1])
        following = [block.label for block in blocks[number + 1 : number + 2]] if falls_through and not ends else []
        for target in (*block.targets, *following):
            if target in at:
                before[at[target]].add(number)
    bodies = []
    for head in before:
        for tail in (number for number in before[head] if number >= head):
            body, todo = {head}, [tail]
            while todo:
                number = todo.pop()
                if number not in body and number >= head:
                    body.add(number)
                    todo += before[number]
            names = [name for number in sorted(body) for name in blocks[number].instructions]
            if any(map(_MATRIX.match, names)):
                bodies.append([name for name in names if not _HINT.match(name)])
    return min(bodies, key=len)


def blocks_of(device: Device, report: str) -> list[parse.Block]:
    if device.vendor == "nvidia":
        return parse.nak_blocks(report)
    return parse.radv_blocks(report)


def main() -> int:
    chosen, rows = kernels(), []
    sources = [Source(render(k, naga=False), k.workgroup, k.reads, k.writes) for k in chosen.values()]
    for device in (DEVICES[name] for name in sys.argv[1:] or NAMES):
        for (name, kernel), report in zip(chosen.items(), reports(device, sources), strict=True):
            figures = VENDORS[device.vendor].parse(report)
            loop = loop_of(blocks_of(device, report), device.vendor == "amd")
            flags = dict(kernel.flags)
            size, depth = int(str(flags["size"])), int(str(flags["depth"]))
            each = size // 2 * 32 * depth / SUBGROUP  # multiply-adds of an invocation in a step
            matrix = sum(bool(_MATRIX.match(instruction)) for instruction in loop)
            counts = [str(figures[part]) for part in ("registers", "occupancy", "spills")]
            rows.append((device.name, name, *counts, str(len(loop)), str(matrix), f"{len(loop) / each:.2f}"))
    head = ("device", "kernel", "registers", "occupancy", "spills", "instructions of a step", "of them matrix")
    print(markdown_table((*head, "instructions per multiply-add"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
