"""docs/plans.md names the fields that plans are written with, and the functions that terms have: all, and no others."""

from __future__ import annotations

import json
import math
import re

import pytest

import webpte
from tests.studies.fuzz.documents import save_rows
from tests.support.harness.pages import ROOT
from tests.support.harness.writer import ALONE, Method, pte_file
from webpte import container as c
from webpte.graph.expressions import FUNCTIONS
from webpte.plan.plan_writer import save_plan
from webpte.runtime.kernels import KERNELS
from webpte.wgsl import Caps

PAGE, _, _ = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8").partition("## Bundle format")
F32 = c.DType.FLOAT32


def section(title: str) -> str:
    (matches,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return matches


def fields(title: str) -> set[str]:
    """Return the names in the first column of a section's table."""
    rows = [line.split("|")[1] for line in section(title).splitlines() if line.startswith("|")]
    return {name for row in rows[2:] for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A table read at a position, and a kernel on the CPU with literals and lists."""
    folder = tmp_path_factory.mktemp("plans")
    rows, _ = save_rows(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "toy::some.out", lambda *args: args[0])
        tensor = c.TensorValue(F32, (4,), (0,), place=ALONE)
        values = [tensor, c.IntValue(1), c.DoubleListValue((0.5, math.inf)), c.TensorListValue((0,))]
        call = c.KernelCall("toy::some.out", (0, 1, 2, 3, 4, 4))
        result = Method(values=[*values, tensor], inputs=[0], outputs=[4], instructions=[call])
        pte_file(folder / "toy.pte", [result])
        with webpte.load(folder / "toy.pte") as program:
            save_plan(program.planner("forward", Caps()), folder / "toy")
    return [json.loads((plan / "plan.json").read_text()) for plan in (rows, folder / "toy")]


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
        "A call": document["cpu_calls"],
        "A kernel": document["kernels"],
        "A schedule": schedules,
        "A guard": [guard for schedule in schedules for guard in schedule["guards"]],
    }[kind]


@pytest.mark.parametrize("kind", re.findall(r"^### ((?!A term)A? ?\w.*)$", PAGE, re.MULTILINE))
def test_plans_page_fields_equal_written_fields(documents, kind):
    results = [item for document in documents for item in objects(document, kind)]
    assert results
    assert {name for item in results for name in item} == fields(kind)


def test_plans_page_term_functions_equal_code():
    (row,) = [line for line in section("A term").splitlines() if line.startswith("| `[function")]
    assert set(re.findall(r"\b[a-z_]\w*\b", " ".join(re.findall(r"`([^`]*)`", row.split("|")[2])))) - {"i32"} == set(
        FUNCTIONS
    )
