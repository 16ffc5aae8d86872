"""An exported program through webpte, compared with eager. No torch here."""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte

from .exporting import answers_in

RIGHT, NOT_EXPORTED, REFUSED, UNTYPED, WRONG, CRASHED = (
    "right", "not exported", "refused", "untyped refusal", "wrong", "crashed",
)  # fmt: skip
FINDINGS = (UNTYPED, WRONG, CRASHED)


@dataclass
class Outcome:
    kind: str
    detail: str = ""  # of a refusal or a difference
    calls: int = 0  # that were compared
    skipped: float = 0.0  # share of the numbers that noise turns into others

    @property
    def reason(self) -> str:
        """Return the detail without what differs from program to program: findings of one reason are one finding."""
        first = self.detail.splitlines()[0] if self.detail else ""
        return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "N", first)[:160]


def run_folder(folder: Path) -> Outcome:
    """Run an exported program and return its outcome."""
    if (refused := folder / "refused.json").exists():
        name, message = json.loads(refused.read_text())
        return Outcome(NOT_EXPORTED, f"{name}: {message}")
    with np.load(answers_in(folder)) as file:
        arrays = {key: file[key] for key in file.files}
    try:
        with webpte.load(folder / "program.pte") as program:
            return _run_methods(program, arrays)
    except webpte.Error as error:
        return Outcome(REFUSED, f"{type(error).__name__}: {error}")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome(UNTYPED, f"{type(error).__name__}: {error}\nat {Path(place.filename).name}:{place.name}")


def _run_methods(program: Any, arrays: dict[str, np.ndarray]) -> Outcome:
    calls, numbers, skipped, last = 0, 0, 0, ("", "")
    for key in dict.fromkeys(key.rpartition(".")[0] for key in arrays):
        name, sequence, _ = key.split(".")
        method = program.method(name)
        if last != (name, sequence) and sequence != "0":
            method.reset()
        last = name, sequence
        inputs, expected, off = (numbered(arrays, f"{key}.{kind}") for kind in ("in", "out", "off"))
        problem = difference(method.run(inputs), expected, off)
        if problem:
            shapes = [list(x.shape) for x in inputs]
            return Outcome(WRONG, f"{problem}\nof call {key} with inputs of {shapes}")
        calls += 1
        numbers += sum(w.size for w in expected)
        skipped += sum(int(np.isinf(o).sum()) for o in off)
    return Outcome(RIGHT, calls=calls, skipped=skipped / max(1, numbers))


def numbered(arrays: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    results: list[np.ndarray] = []
    while f"{prefix}{len(results)}" in arrays:
        results.append(arrays[f"{prefix}{len(results)}"])
    return results


def difference(got: tuple[Any, ...], expected: list[np.ndarray], allowed: list[np.ndarray]) -> str:
    """Return what is wrong with the results of a call, or nothing. A NaN equals only a NaN."""
    if len(got) != len(expected):
        return f"{len(got)} outputs instead of {len(expected)}"
    for number, (have, want, off) in enumerate(zip(map(np.asarray, got), expected, allowed, strict=True)):
        if have.dtype.kind == want.dtype.kind == "i":  # the exporter widens a 32-bit scalar plus a Python number
            have = have.astype(want.dtype) if have.dtype.itemsize > want.dtype.itemsize else have
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            return f"output {number} is {have.dtype}{list(have.shape)}, not {want.dtype}{list(want.shape)}"
        h, w = have.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            equal = (h == w) | (np.isnan(h) & np.isnan(w)) | (np.abs(h - w) <= off) | np.isinf(off)
        if not equal.all():
            at = tuple(int(i) for i in np.argwhere(~equal)[0])
            text = f"output {number}: {np.count_nonzero(~equal)} of {equal.size} numbers of {want.dtype} differ"
            return f"{text}, first {h[at]:.9g} instead of {w[at]:.9g} within {off[at]:.3g} at {list(at)}"
    return ""
