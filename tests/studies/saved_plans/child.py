"""The child: run what was saved in a folder, and report whether the bits are the same.

No graph may be read here: the reader of flatbuffers, the builder of graphs and what lowers calls end the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np

import webpte
from tests.support.harness.workers import serve
from webpte.container.flat import FlatBuffer
from webpte.device import acquire
from webpte.plan.planner import Lowering, Planner


def refuse(*args: object, **more: object) -> NoReturn:
    print("a program was read, or planned", file=sys.stderr)
    sys.exit(3)


def judged(folder: Path) -> dict[str, Any]:
    about = json.loads((folder / "job.json").read_text())
    try:
        wrong = list(differences(folder, about))
        shapes = {tuple(a.shape for a in call) for call, _ in calls(folder, about)}
    except Exception as error:
        return {"name": about["name"], "kind": "wrong", "why": f"{type(error).__name__}: {error}"}
    kind = "wrong" if wrong else "right"
    return {
        "name": about["name"],
        "kind": kind,
        "why": "; ".join(wrong),
        "shapes": len(shapes),
        "fixed": about["fixed"] and len(shapes) == 1,
    }


def calls(folder: Path, about: dict[str, Any]) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    with np.load(folder / "calls.npz") as arrays:
        for s, sequence in enumerate(about["calls"]):
            for c, (inputs, outputs) in enumerate(sequence):
                operands = [arrays[f"{s}.{c}.in{i}"] for i in range(inputs)]
                yield operands, [arrays[f"{s}.{c}.out{i}"] for i in range(outputs)]


def differences(folder: Path, about: dict[str, Any]) -> Iterator[str]:
    with webpte.open_plan(folder / "plan", about["data"]) as plan:
        method = plan.method()
        begins = {sum(map(len, about["calls"][:s])) for s in range(len(about["calls"]))}
        for number, (values, want) in enumerate(calls(folder, about)):
            if number in begins:
                method.reset()
            got = method.run(values)
            for i, (ours, theirs) in enumerate(zip(map(np.asarray, got), want, strict=True)):
                if (ours.shape, ours.dtype, ours.tobytes()) != (theirs.shape, theirs.dtype, theirs.tobytes()):
                    yield f"call {number}, output {i}: {ours.dtype}{list(ours.shape)} has other bits"


if __name__ == "__main__":
    for kind in (FlatBuffer, Lowering, Planner):
        patch.object(kind, "__init__", refuse).start()
    gpu = acquire({})  # kept open, so that plans share its pipelines
    serve(lambda folder: iter([judged(Path(folder))]))
    gpu.release()
