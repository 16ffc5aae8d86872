"""What the logger `webpte` is told: warnings of fallbacks, INFO with the sums of what was loaded and planned.

DEBUG tells of every kernel that is compiled, in `device.gpu`. Nothing is logged while a method runs.
"""

from __future__ import annotations

import logging

from ..container import MappedFile
from ..container.flat import quoted_name
from ..device import memory_needs
from ..plan import Plan

logger = logging.getLogger("webpte")


def log_loaded(files: list[MappedFile], methods: tuple[str, ...]) -> None:
    if logger.isEnabledFor(logging.INFO):
        listed = ", ".join(f"{quoted_name(file.path)} ({file.size} bytes)" for file in files)
        logger.info("loaded %s: %d methods, %s", listed, len(methods), ", ".join(quoted_name(name) for name in methods))


def log_ready(plan: Plan, adapter: str, seconds: float) -> None:
    """A method can be called. One that only holds a number, such as get_vocab_size, is not worth a line."""
    if not plan.graph.steps or not logger.isEnabledFor(logging.INFO):
        return
    need = memory_needs(plan)
    kinds = ", ".join(f"{kind} {nbytes}" for kind, nbytes in need.kinds.items() if nbytes)
    logger.info(
        "%s is ready on %s: %d calls in %d submits, %d of them on the CPU, %d kernels, %d bytes (%s), in %.3f s",
        quoted_name(plan.graph.name),
        adapter,
        len(plan.graph.steps),
        len(plan.flow.segments),
        sum(plan.cpu_calls.values()),
        len(plan.kernels),
        need.total,
        kinds,
        seconds,
    )


def warn_of_fallback(plan: Plan) -> None:
    """Calls inside delegates that have no kernel here: the exporter meant them for the device."""
    inside = {name: count for name, count in plan.cpu_calls.items() if "::" not in name}
    if inside:
        listed = ", ".join(f"{quoted_name(name)} x{count}" for name, count in sorted(inside.items()))
        total = sum(inside.values())
        logger.warning(
            "%d calls inside delegates of %s run on the CPU: %s", total, quoted_name(plan.graph.name), listed
        )


def log_tuned(name: str, measured: int, seconds: float) -> None:
    logger.info("%s: %d jobs measured in %.1f s", quoted_name(name), measured, seconds)
