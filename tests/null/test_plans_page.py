"""docs/plans.md names the fields that plans are written with, and the functions that terms have: all, and no others."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

import webpte
from tests.support.harness.graphs import live
from tests.support.harness.pages import ROOT
from tests.support.harness.writer import ALONE, Method, pte_file, simple_pte
from webpte import container as c
from webpte.graph.expressions import FUNCTIONS
from webpte.plan import save_plan
from webpte.runtime.numpy_kernels import KERNELS
from webpte.wgsl import Caps

PAGE = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
F32, I32 = c.DType.FLOAT32, c.DType.INT32


def section(title: str) -> str:
    (found,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def fields(title: str) -> set[str]:
    """The names in the first column of a section's table."""
    rows = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("|")]
    return {name for row in rows[2:] for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A table read at a position, and a kernel on the CPU with literals and lists."""
    folder = tmp_path_factory.mktemp("plans")
    values = [
        c.VkTensor(I32, (1,)),
        c.VkTensor(F32, (5, 3), constant_id=0),
        c.VkInt(0),
        c.VkSymInt(0),
        c.VkTensor(F32, (3,)),
    ]
    calls = [("et_vk.select_as_symint.default", (0, 2, 2, 3)), ("aten.select_copy.int", (1, 2, 3, 4))]
    simple_pte(folder / "rows.pte", values, calls, [0], [4], [np.ones((5, 3), np.float32)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "toy::some.out", lambda *args: args[0])
        tensor = c.TensorValue(F32, (4,), (0,), place=ALONE)
        given = [tensor, c.IntValue(1), c.DoubleListValue((0.5, math.inf)), c.TensorListValue((0,))]
        call = c.KernelCall("toy::some.out", (0, 1, 2, 3, 4, 4))
        made = Method(values=[*given, tensor], inputs=[0], outputs=[4], instructions=[call])
        pte_file(folder / "toy.pte", [made])
        return [saved(folder / name) for name in ("rows.pte", "toy.pte")]


def saved(path):
    with webpte.load(path) as program:
        planner = program.planner("forward", Caps())
        for segment in planner.plan.layout.segments:
            planner.prepare(segment, live({planner.plan.graph.inputs[0]: (1,)}, {planner.plan.graph.inputs[0]: [2]}))
        save_plan(planner, path.with_suffix(".plan"))
    return json.loads((path.with_suffix(".plan") / "plan.json").read_text())


def objects(document, kind):
    schedules = document["schedules"]
    constants = [buffer["fill"] for buffer in document["buffers"] if buffer["fill"]]
    return {
        "The document": [document],
        "A file": document["files"],
        "A value": document["values"].values(),
        "A constant": [{name: item for name, item in fill.items() if name != "dtype"} for fill in constants],
        "A buffer": document["buffers"],
        "A block": document["blocks"],
        "A segment": document["segments"],
        "A call": document["cpu"],
        "A kernel": document["kernels"],
        "A schedule": schedules,
        "A guard": [guard for schedule in schedules for guard in schedule["guards"]],
    }[kind]


@pytest.mark.parametrize("kind", re.findall(r"^### ((?!A term)A? ?\w.*)$", PAGE, re.MULTILINE))
def test_fields_are_those_that_are_written(documents, kind):
    found = [item for document in documents for item in objects(document, kind)]
    assert found
    assert {name for item in found for name in item} == fields(kind)


def test_functions_of_terms_are_those_there_are():
    (row,) = [line for line in section("A term").splitlines() if line.startswith("| `[function")]
    assert set(re.findall(r"\b[a-z_]+\b", " ".join(re.findall(r"`([^`]*)`", row.split("|")[2])))) - {"i32"} == set(
        FUNCTIONS
    )
