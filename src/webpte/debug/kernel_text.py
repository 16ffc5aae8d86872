"""Return the WGSL of a program's kernels, with the template lines that it comes from. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import InputError
from ..typing import PathLike
from ..wgsl import Kernel
from ..wgsl.origins import source_lines
from .parsed_method import parse_methods

COMMENT_COLUMN = 100  # of the origins


def kernel_text(path: PathLike, name: str, data: Iterable[PathLike] = ()) -> str:
    """Return the WGSL of the kernels of a name, planned for a GPU with WebGPU's default limits.

    `name` is the name of a template, such as `linear_q4`, or a whole label. Each line ends with a comment that has the
    file and the line of its template. Methods that cannot be planned have no kernels.
    """
    with parse_methods(path, data) as (_, methods):
        plans = [method.planner.plan for method in methods if method.planner is not None]
        kernels = list(dict.fromkeys(kernel for plan in plans for kernel in plan.kernels))
    selected = [kernel for kernel in kernels if name in (template_name(kernel), kernel.label)]
    if not selected:
        names = sorted({template_name(kernel) for kernel in kernels})
        raise InputError(
            argument="--kernel",
            expected=f"one of {', '.join(names)}" if names else "a program with kernels",
            got=name,
            code="unknown_kernel",
        )
    return "\n".join(map(_listing, selected))


def template_name(kernel: Kernel) -> str:
    """Return the label of a kernel without its flags."""
    return kernel.label.partition("[")[0]


def _listing(kernel: Kernel) -> str:
    head = f"// {kernel.label}: {kernel.workgroup} invocations, {kernel.reads} reads, {kernel.writes} writes"
    lines = source_lines(kernel)
    text = (f"{line.text:<{COMMENT_COLUMN}} // {line.origin}" if line.origin else line.text for line in lines)
    return "\n".join([head, *text]) + "\n"
