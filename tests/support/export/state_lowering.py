"""From a module with state to a .pte with goldens, as people export it: by `to_edge_transform_and_lower`.

Calls of several methods of one module share its buffers, in eager PyTorch as in the file. Where the exporter refuses,
that is what is kept: `refused.txt` with its error in place of a program.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .lowering import cache_patterns, quiet, to_numpy

Inputs = tuple[Any, ...]


@dataclass
class StateModel:
    """A module, the calls its goldens are made from (method, inputs), and how to lower it."""

    module: nn.Module
    calls: list[tuple[str, Inputs]]
    dynamic_shapes: dict[str, Any] = field(default_factory=dict)  # by method
    inside: bool = True  # whatever the partitioner takes; without it nothing is delegated
    kept_out: tuple[str, ...] = ()  # ops, by their names in the edge dialect, that stay outside delegates
    initial: tuple[str, ...] = ()  # buffers whose values go into the file; others start at zero
    shared: bool = False  # methods share their buffers
    reinplace: bool = False


def write(builder: Callable[..., StateModel], params: dict[str, Any], folder: Path) -> None:
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = builder(**params)
        eager = copy.deepcopy(model.module)
        np.savez(folder / "goldens.npz", **_goldens(eager, model.calls))  # type: ignore[arg-type]
        try:
            program = _lowered(model)
        except Exception as error:
            (folder / "refused.txt").write_text(f"{type(error).__name__}: {error}")
            return
    with open(folder / "program.pte", "wb") as file:
        program.write_to_file(file)


def _goldens(module: nn.Module, calls: list[tuple[str, Inputs]]) -> dict[str, np.ndarray]:
    flatten = torch.utils._pytree.tree_leaves
    arrays: dict[str, np.ndarray] = {}
    for number, (method, inputs) in enumerate(calls):
        with torch.no_grad():
            outputs = flatten(getattr(module, method)(*copy.deepcopy(inputs)))
        arrays |= {f"0.{number}.{method}.in{i}": to_numpy(x) for i, x in enumerate(flatten(inputs))}
        arrays |= {f"0.{number}.{method}.out{i}": to_numpy(x) for i, x in enumerate(outputs)}
    return arrays


def _lowered(model: StateModel) -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.dialects._ops import ops
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    cache_patterns()
    examples = {method: inputs for method, inputs in reversed(model.calls)}
    traced = {
        name: _traced(model.module, name, inputs, model.dynamic_shapes.get(name)) for name, inputs in examples.items()
    }
    options = {"require_dynamic_shapes": True} if model.dynamic_shapes else {}
    kept_out = [_attribute(ops.edge, name) for name in model.kept_out]
    edge = to_edge_transform_and_lower(
        traced,
        partitioner=[VulkanPartitioner(options, operator_blocklist=kept_out)] if model.inside else None,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return edge.to_executorch(
        ExecutorchBackendConfig(
            passes=[InitializedMutableBufferPass(list(model.initial))] if model.initial else [],
            memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=model.shared),
            emit_mutable_buffer_names=model.shared,
            run_reinplace_pass=model.reinplace,
        )
    )


def _attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _traced(module: nn.Module, method: str, inputs: Inputs, shapes: Any) -> Any:
    with _as_forward(module, method), torch.no_grad():
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


@contextlib.contextmanager
def _as_forward(module: nn.Module, method: str) -> Iterator[None]:
    """torch.export traces `forward`, whatever the method is called."""
    if method == "forward":
        yield
        return
    kind = type(module)
    before = kind.forward
    kind.forward = getattr(kind, method)
    try:
        yield
    finally:
        kind.forward = before
