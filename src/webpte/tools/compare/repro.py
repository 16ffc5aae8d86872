"""A minimal repro: the operands of one call as an .npz, and a script that runs the call on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...graph import (
    LIVE_SCALARS,
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Null,
    String,
    SymBool,
    SymInt,
    TensorSpec,
    ValueList,
)
from .reports import Comparison

Array = np.ndarray[Any, Any]

SCRIPT = '''"""{title}

Runs this one call on the device and by its NumPy reference, with the operands the device had.
"""

from pathlib import Path

import numpy as np

from webpte.tools.compare import Varying, Operand, Out, check_call

with np.load(Path(__file__).with_name("{data}")) as file:
    saved = dict(file)
args = [
{args}
]
outs = [{outs}]

if __name__ == "__main__":
    results = check_call("{name}", args, outs{settings})
    for got, wanted, difference in results:
        print(difference)
    raise SystemExit(not all(difference.within for _, _, difference in results))
'''


def write_repro(folder: str | os.PathLike[str], comparison: Comparison, title: str) -> tuple[Path, Path] | None:
    """Write script and data for the call that `comparison` suspects; returns their paths, None if it suspects none."""
    suspect = comparison.suspect
    if suspect is None:
        return None
    call, graph, report = suspect.call, suspect.graph, suspect.report
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    stem = f"step{report.step}_call{report.index}_{call.name.split('::')[-1].replace('.', '_')}"
    arguments = _Arguments(graph, suspect.tensors, suspect.scalars)
    settings = {"kernel": call.kernel, "rtol": comparison.rtol, "atol": comparison.atol}
    script, data = root / f"{stem}.py", root / f"{stem}.npz"
    text = SCRIPT.format(
        title=title,
        data=data.name,
        args="\n".join(f"    {arguments.text(value_id)}," for value_id in call.args),
        outs=", ".join(_out(call, graph, value_id) for value_id in call.outs),
        name=call.name,
        settings="".join(f", {name}={value}" for name, value in settings.items() if value not in (None, False)),
    )
    np.savez(data, allow_pickle=False, **arguments.arrays)
    script.write_text(text)
    return script, data


class _Arguments:
    """A call's arguments as Python source, and the arrays it refers to."""

    def __init__(self, graph: Graph, tensors: Mapping[int, Array], scalars: Mapping[int, Any]) -> None:
        self._graph = graph
        self._tensors = tensors
        self._scalars = scalars
        self.arrays: dict[str, Array] = {}

    def text(self, value_id: int) -> str:
        value = self._graph.values[value_id]
        match value:
            case TensorSpec():
                name = f"value{value_id}"
                self.arrays[name] = self._tensors[value_id]
                return f'Operand(saved["{name}"], bound={value.dims})'
            case Null():
                return "None"
            case Int() | Double() | Bool() | String():
                return _literal(value.value)
            case IntList() | DoubleList() | BoolList():
                return f"[{', '.join(map(_literal, value.values))}]"
            case ValueList():
                return f"[{', '.join(map(self.text, value.ids))}]"
        assert isinstance(value, LIVE_SCALARS)
        number = self._scalars[value_id]
        kind = bool if isinstance(value, SymBool) else int if isinstance(value, SymInt) else float
        return f"Varying({_literal(kind(number))})"


def _literal(value: Any) -> str:
    """A number as source: infinities have no literal."""
    return repr(value) if not isinstance(value, float) or np.isfinite(value) else f'float("{value}")'


def _out(call: Call, graph: Graph, value_id: int) -> str:
    if value_id in call.args:
        return str(call.args.index(value_id))
    spec = graph.tensor(value_id)
    return f'Out("{spec.host_dtype.short}", {spec.dims})'
