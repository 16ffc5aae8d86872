"""Real programs with faults planted in them: read by our reader, changed, written again by the test writer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from tests.support.harness.writer import DelegateBlob, Method, pte_file, vk_blob
from webpte import container as c

Path = str | os.PathLike[str]
Change = Callable[[c.VkGraph], c.VkGraph]


def plant(source: Path, target: Path, change: Change = lambda graph: graph, drop: str = "") -> None:
    """Write `source` again with every delegate's graph changed and without the named data of key `drop`."""
    with c.MappedFile(source) as file:
        program = c.parse_program(file)
        methods = [_method(plan, change) for plan in program.methods]
        named = {key: bytes(span.view()) for key, span in program.named_data.items() if key != drop}
        pte_file(target, methods, named_data=named)


def _method(plan: c.MethodPlan, change: Change) -> Method:
    delegates = [DelegateBlob(_blob(d, change), d.backend, d.compile_specs) for d in plan.delegates]
    return Method(plan.name, plan.values, plan.inputs, plan.outputs, plan.instructions, delegates)


def _blob(delegate: c.Delegate, change: Change) -> bytes:
    graph = change(c.parse_vulkan(delegate.blob))
    constants = [k if k.key is not None else _bytes(k) for k in graph.constants]
    return vk_blob(graph.values, graph.calls, graph.inputs, graph.outputs, constants)


def _bytes(constant: c.VkConstant) -> bytes:
    assert constant.span is not None
    return bytes(constant.span.view())


def renamed(old: str, new: str) -> Change:
    """Give the first call of `old` in each delegate another name."""

    def change(graph: c.VkGraph) -> c.VkGraph:
        calls = list(graph.calls)
        at = next((i for i, call in enumerate(calls) if call.name == old), None)
        if at is not None:
            calls[at] = replace(calls[at], name=new)
        return replace(graph, calls=tuple(calls))

    return change


def largest_key(path: Path) -> str:
    """The key of the largest named data."""
    with c.MappedFile(path) as file:
        named = c.parse_program(file).named_data
        return max(named, key=lambda key: named[key].size)
