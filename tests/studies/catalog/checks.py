"""Running checks of ExecuTorch's op catalog: one program, its inputs, one expected output each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.support.harness.cases import assert_close
from webpte.wgsl import Caps

# How the catalog's files hold each dtype.
_STORED = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "int8": "i1", "bool": "i1"}


@dataclass(frozen=True)
class Check:
    """One output of one run."""

    suite: str
    case: str
    program: Path
    inputs: tuple[dict[str, Any], ...]
    golden: dict[str, Any]
    atol: float
    rtol: float

    def array(self, entry: dict[str, Any]) -> np.ndarray:
        data = np.fromfile(self.program.parent / entry["path"], _STORED[entry["dtype"]])
        return data.reshape(entry["shape"]).astype(entry["dtype"])

    def compare(self, outputs: Sequence[Any]) -> None:
        got = np.asarray(outputs[self.golden["output_index"]])
        assert got.dtype == self.golden["dtype"], f"dtype {got.dtype}, expected {self.golden['dtype']}"
        assert_close(got, self.array(self.golden), self.atol, self.rtol, self.case)


@dataclass(frozen=True)
class Result:
    check: Check
    outcome: str  # "passed", "failed" or "refused"
    reason: str = ""


def read_manifest(folder: Path) -> list[Check]:
    entries = json.loads((folder / "manifest.json").read_text())
    return [
        Check(e["op"], e["case"], folder / e["pte"], tuple(e["inputs"]), e["golden"], e["atol"], e["rtol"])
        for e in entries
    ]


def run_checks(checks: Sequence[Check]) -> Iterator[Result]:
    """In the order given; neighbors that share a program share its run."""
    for _, group in itertools.groupby(checks, key=lambda check: check.program):
        yield from run_program(list(group))


def run_program(checks: Sequence[Check]) -> list[Result]:
    """Return all checks of one program. Nothing a program does may stop the others."""
    try:
        with webpte.load(checks[0].program) as program:
            outputs = program.method().run([checks[0].array(entry) for entry in checks[0].inputs])
    except webpte.UnsupportedError as error:
        return [Result(check, "refused", _reason(error)) for check in checks]
    except Exception as error:
        return [Result(check, "failed", f"{type(error).__name__}: {error}") for check in checks]
    return [_compared(check, outputs) for check in checks]


def _compared(check: Check, outputs: Sequence[Any]) -> Result:
    try:
        check.compare(outputs)
    except AssertionError as error:
        return Result(check, "failed", str(error))
    return Result(check, "passed")


def refusal(check: Check) -> str | None:
    """Why a check's program cannot run, found without running it; None if it can."""
    try:
        with webpte.load(check.program) as program:
            program.plan(caps=Caps())
    except webpte.UnsupportedError as error:
        return _reason(error)
    return None


def _reason(error: webpte.UnsupportedError) -> str:
    """Return the ops that are missing; if none is, the operands that the ops there are cannot take."""
    missing = [item for item in error.items if " " not in item]
    return ", ".join(missing or [item.strip() for item in error.items])
