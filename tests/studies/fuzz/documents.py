"""JSON documents with one thing changed, and an honest saved plan to change."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import webpte
from tests.support.harness.graphs import live
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkSymInt, VkTensor
from webpte.plan.plan_reader import load_plan
from webpte.plan.plan_writer import save_plan
from webpte.wgsl import Caps

Way = tuple[Any, ...]
TERMS = (["element", 0, [0], True], ["given", 0, True], ["sum", 0], ["floordiv", 1, 0])
STRANGE: tuple[Any, ...] = (
    None, -1, 0, 1, 3, 16, 256, 1 << 20, 2**31, 2**63, 10**30, 0.5, "", "x", "nan", True, [], [[]], {}, {"0": 0},
    *TERMS,
)  # fmt: skip
NEAR = (-256, -4, -1, 1, 4, 256, 1000)


def ways(data: Any, way: Way = ()) -> Iterator[Way]:
    """The way to whatever is in a document."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, item in inner:
        yield (*way, step)
        yield from ways(item, (*way, step))


def ways_by_field(text: str) -> dict[Way, list[Way]]:
    """The same by the names on them: so that what stands once is changed as often as what stands a thousand times."""
    results: dict[Way, list[Way]] = {}
    for way in ways(json.loads(text)):
        results.setdefault(tuple(s for s in way if isinstance(s, str) and not s.isdigit()), []).append(way)
    return results


def replaced(text: str, way: Way, value: Any) -> str:
    document = json.loads(text)
    inner = document
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = value
    return json.dumps(document)


def changed(text: str, way: Way, random: Random) -> str:
    """Return the document with one thing replaced by a neighbor of it, or by something strange."""
    old: Any = json.loads(text)
    for step in way:
        old = old[step]
    if isinstance(old, int) and not isinstance(old, bool) and random.random() < 0.6:
        return replaced(text, way, old + random.choice(NEAR))
    return replaced(text, way, random.choice(STRANGE))


def save_rows(folder: Path) -> tuple[Path, Path]:
    """row = table[position] of a constant table, planned and lowered at one position: the plan, and its file."""
    file = folder / "model" / "rows.pte"
    file.parent.mkdir()
    table = VkTensor(DType.FLOAT32, (5, 3), constant_id=0)
    values = [VkTensor(DType.INT32, (1,)), table, VkInt(0), VkSymInt(0), VkTensor(DType.FLOAT32, (3,))]
    calls = [("et_vk.select_as_symint.default", (0, 2, 2, 3)), ("aten.select_copy.int", (1, 2, 3, 4))]
    simple_pte(file, values, calls, [0], [4], [np.arange(15, dtype=np.float32).reshape(5, 3)])
    with webpte.load(file) as program:
        planner = program.planner("forward", Caps())
        (segment,) = planner.plan.flow.segments
        (position,) = planner.plan.graph.inputs
        planner.prepare(segment, live({position: (1,)}, {position: [2]}))
        save_plan(planner, folder / "plan")
    return folder / "plan", file


@functools.cache
def honest() -> tuple[Path, Path, str]:
    """Return a plan of this process, its file, and its document."""
    root = Path(tempfile.mkdtemp(prefix="webpte-fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder, file = save_rows(root)
    return folder, file, (folder / "plan.json").read_text()


def read_document(data: bytes) -> None:
    """Bytes as the document of a plan whose kernels and file are honest."""
    folder, file, _ = honest()
    (folder / "plan.json").write_bytes(data)
    for opened in load_plan(folder, [file]).files:
        opened.close()


def read_changed(data: bytes) -> None:
    """Bytes choose what is changed in it."""
    random, text = Random(data), honest()[2]
    way = random.choice(random.choice(list(ways_by_field(text).values())))
    read_document(changed(text, way, random).encode())
