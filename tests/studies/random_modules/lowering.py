"""A program through ExecuTorch's exporter."""

from __future__ import annotations

import functools
from typing import Any

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch import nn
from torch._export import utils

from webpte.export.lowering import cache_patterns
from webpte.suppress_output import suppress_logs

from .names import NAMES
from .program import Input, Method, Program, Sizes, source


def build(method: Method) -> nn.Module:
    names = dict(NAMES)
    exec(source(method), names)
    return names["Module"]().eval()


def example(given: Input, sizes: Sizes) -> torch.Tensor:
    """Something to trace with: its numbers do not matter."""
    return torch.ones(given.at(sizes), dtype=getattr(torch, given.dtype))


def lower(program: Program) -> bytes:
    cache_patterns()
    cache_registry()
    how = program.lowering
    options: dict[str, Any] = {"require_dynamic_shapes": True} if program.symbols else {}
    if how.force_fp16:
        options["force_fp16"] = True
    partitioner = VulkanPartitioner(options, [_edge_op(name) for name in how.blocklist])
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=not how.dim_order)
    with suppress_logs(), torch.no_grad(), torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        traced = {name: _trace(program, name) for name in program.methods}
        if how.one_step:
            edge = to_edge_transform_and_lower(traced, partitioner=[partitioner], compile_config=config)
        else:
            edge = to_edge(traced, compile_config=config).to_backend(partitioner)
        planning = MemoryPlanningPass(alloc_graph_input=how.plan_inputs)
        shapes = ConstraintBasedSymShapeEvalPass()
        exported = edge.to_executorch(
            ExecutorchBackendConfig(memory_planning_pass=planning, sym_shape_eval_pass=shapes)
        )
        return bytes(exported.buffer)


def _trace(program: Program, name: str) -> Any:
    method = program.methods[name]
    dims = {s: torch.export.Dim(s, min=low, max=high) for s, (low, high) in program.symbols.items()}
    shapes = tuple({d: dims[size] for d, size in enumerate(i.dims) if isinstance(size, str)} for i in method.inputs)
    dynamic = shapes if any(shapes) else None
    inputs = tuple(example(i, program.traced) for i in method.inputs)
    traced = torch.export.export(build(method), inputs, dynamic_shapes=dynamic, strict=False)
    return traced.run_decompositions({}) if program.lowering.decompose else traced


def cache_registry() -> None:
    """Let torch look through the registry of operators once and not at each of many steps: a fifth of an export."""
    if not hasattr(utils._materialize_cpp_cia_ops, "cache_info"):
        utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)


def _edge_op(name: str) -> Any:
    op = ops.edge.aten
    for part in name.split("."):
        op = getattr(op, part)
    return op
