"""What a program that is lowered cannot have, found while it is written, not when it is loaded somewhere else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..builder.options import ExportWarning
from ..debug.check import BROWSER, check_file
from ..errors import Error, UnsupportedError
from ..runtime.kernels import CpuKernels
from ..version import DOCUMENTATION

ABOUT_A_DEVICE = ("limit", "memory")  # kinds of problems that another device may not have


def refuse_complex(traced: Mapping[str, Any]) -> None:
    """Raise UnsupportedError if an op computes complex numbers, which webpte cannot read. It names each op once."""
    import torch

    named: dict[str, str] = {}
    for method, program in traced.items():
        for node in program.graph.nodes:
            values = node.meta.get("val")
            for value in values if isinstance(values, (tuple, list)) else (values,):
                if isinstance(value, torch.Tensor) and value.is_complex():
                    name = str(node.target) if node.op == "call_function" else f"the tensor {node.target}"
                    named.setdefault(f"{name} ({str(value.dtype).removeprefix('torch.')})", method)
    if named:
        raise UnsupportedError(
            items=list(named),
            argument=", ".join(dict.fromkeys(named.values())),
            expected="ops with real numbers",
            got=", ".join(named),
            code="complex",
            hint="Keep real and imaginary parts in two real tensors. A Fourier transform of fixed size is a product "
            "with two constant matrices.",
        )


@contextmanager
def lowering_errors(traced: Mapping[str, Any]) -> Iterator[None]:
    """Raise what ExecuTorch raises as an UnsupportedError that names the ops whose shapes depend on data."""
    try:
        yield
    except (Error, KeyboardInterrupt):
        raise
    except Exception as error:
        names = list(dict.fromkeys(_sized_by_data(traced)))
        hint = "Leave the op that it names out of the module, or out of delegates with operator_blocklist."
        if names:
            hint = f"The result of {', '.join(names)} has a shape that depends on data. Use torch.where or a mask."
        reason = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        raise UnsupportedError(
            f"ExecuTorch cannot lower the module: {reason}", names, code="not_lowered", hint=hint
        ) from error


def _sized_by_data(traced: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ops whose result has a shape that depends on data."""
    import torch

    for program in traced.values():
        for node in program.graph.nodes:
            if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
                yield str(node.target)


def warn_of_problems(path: Path, data: Sequence[Path], stacklevel: int) -> None:
    """Warn of what `webpte check` finds in a file, and of calls that only torch's kernels can run."""
    report = check_file(path, data, BROWSER)
    problems = [problem for problem in report["problems"] if problem["kind"] not in ABOUT_A_DEVICE]
    lines = [f"{problem['subject']} {problem['detail']}" for problem in problems]
    kernels = CpuKernels()
    calls = {name for method in report["methods"] for name in method["cpu_calls"]}
    by_torch = sorted(name for name in calls if name in kernels and kernels.source(name) == "torch")
    if by_torch:
        lines.append(f"{', '.join(by_torch)}: only torch has a kernel, so the program needs torch where it runs")
    if not lines:
        return
    remedies = list(dict.fromkeys(problem["remedy"] for problem in problems if problem["remedy"]))
    if by_torch:
        remedies.append(f"Replace the op, or register one of your own: {DOCUMENTATION}/extending.html.")
    text = "\n  ".join([f"{path.name} was written, but webpte cannot run all of it:", *lines, *remedies])
    warnings.warn(text, ExportWarning, stacklevel=stacklevel + 1)
