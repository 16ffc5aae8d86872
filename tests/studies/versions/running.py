"""Run programs with results from eager PyTorch beside them, and say of each what came of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import webpte

TOLERANCE = 1e-5  # of the largest result
INT8_TOLERANCE = 2e-2  # 1.0 and 1.1 leave roundings of activations out, each of which is a step of 1 / 127
FALLBACK = 'fallback="cpu"'


class Kind(StrEnum):
    RIGHT = "right"
    ON_CPU = "right with fallback"  # refused, and right by the remedy that the refusal gives
    REFUSED = "refused"
    WRONG = "wrong"
    NOT_EXPORTED = "not exported"


class Outcome(NamedTuple):
    kind: Kind
    error: float | None = None  # the largest difference, of the largest result
    reason: str = ""


def tolerance(name: str) -> float:
    return INT8_TOLERANCE if name in ("int8_cnn", "int8_linear") else TOLERANCE


def outcome(path: Path) -> Outcome:
    """Run the program `path`.pte on the inputs of `path`.npz."""
    if not path.with_suffix(".pte").exists():
        return Outcome(Kind.NOT_EXPORTED, reason=path.with_suffix(".txt").read_text().splitlines()[0])
    try:
        return compared(path)
    except webpte.UnsupportedError as error:
        if FALLBACK not in str(error):
            return Outcome(Kind.REFUSED, reason=str(error))
        result = compared(path, fallback="cpu")
        return result._replace(kind=Kind.ON_CPU) if result.kind is Kind.RIGHT else result
    except webpte.Error as error:
        return Outcome(Kind.REFUSED, reason=str(error))


def compared(path: Path, **options: Any) -> Outcome:
    largest = 0.0
    with np.load(path.with_suffix(".npz")) as arrays, webpte.load(path.with_suffix(".pte"), **options) as program:
        forward = program.method("forward")
        for call in sorted({name.partition(".")[0] for name in arrays.files}):
            inputs = [arrays[name] for name in sorted(arrays.files) if name.startswith(f"{call}.input")]
            want, got = arrays[f"{call}.output0"], forward(*inputs)
            if got.shape != want.shape or got.dtype != want.dtype:
                return Outcome(Kind.WRONG, reason=f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}")
            difference = float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())
            if not difference <= tolerance(path.name):  # nor NaN
                return Outcome(Kind.WRONG, difference)
            largest = max(largest, difference)
    return Outcome(Kind.RIGHT, largest)
