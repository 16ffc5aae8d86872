"""Export a network in a mode: for Vulkan, for XNNPACK, for both, or without delegates.

A network has one dynamic dim or more; its static form takes the shapes of its bound. Expected results are those of
eager PyTorch in f32, and of the executorch wheel with the same file where the mode quantizes. The modes of a network
share its trace and its expected results if one process exports them one after the other.
"""

from __future__ import annotations

import copy
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.studies.xnnpack import exporting
from tests.support.export.lowering import cache_patterns, quiet, to_numpy

from . import lowering
from .building import Case
from .index import HALF_ERROR


@dataclass(frozen=True)
class Traced:
    """A network, what eager PyTorch computes for its inputs, and the program that torch exported."""

    case: Case
    goldens: dict[str, np.ndarray]
    exported: torch.export.ExportedProgram


def write(build: Callable[[], Case], mode: str, dynamic: bool, folder: Path) -> None:
    """Write `program.pte` and `goldens.npz`."""
    path = folder / "program.pte"
    with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        traced = trace(build, dynamic)
        arrays = traced.goldens
        if mode in QUANTIZED:
            import executorch.kernels.quantized  # noqa: F401  # registers what is left outside delegates

            case = replace(traced.case, module=copy.deepcopy(traced.case.module))  # quantized in place
            if mode == "xnnpack_8da4w":
                quantize_linears(case.module)
            exporting.export(case, QUANTIZED[mode], path)
            arrays = exporting.goldens(path, case, QUANTIZED[mode], 0)
        else:
            lower(traced, path, PARTITIONERS[mode](traced.case))
        if mode == "vulkan_f16":
            (folder / HALF_ERROR).write_text(json.dumps(half_error(traced)))
    np.savez_compressed(folder / "goldens.npz", **arrays)  # type: ignore[arg-type]  # taken for `allow_pickle`


@lru_cache(maxsize=1)
def trace(build: Callable[[], Case], dynamic: bool) -> Traced:
    case = build() if dynamic else static(build())
    arrays = lowering.goldens({"forward": case})
    inputs = case.steps[min(1, len(case.steps) - 1)]
    return Traced(case, arrays, torch.export.export(case.module, inputs, dynamic_shapes=case.dims, strict=False))


def half_error(traced: Traced) -> float:
    """Return the largest error of eager PyTorch in f16, relative to the largest value of an output."""
    module, largest = copy.deepcopy(traced.case.module).half(), 0.0
    for t, step in enumerate(traced.case.steps):
        inputs = [x.half() if torch.is_floating_point(x) else x for x in step]
        for i, half in enumerate(torch.utils._pytree.tree_leaves(module(*inputs))):
            expected = traced.goldens[f"0.{t}.forward.out{i}"]
            difference = np.abs(to_numpy(half.float()) - expected).max()
            largest = max(largest, float(difference / np.abs(expected).max()))
    return largest


def quantize_linears(module: torch.nn.Module) -> None:
    """Quantize weights to 4 bits in groups of 32 where the width is a multiple of it: XNNPACK takes no others."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.utils import unwrap_tensor_subclass

    def divisible(layer: torch.nn.Module, name: str) -> bool:
        return isinstance(layer, torch.nn.Linear) and layer.in_features % GROUP == 0

    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP))
    quantize_(module, config, divisible)
    unwrap_tensor_subclass(module)


def static(case: Case) -> Case:
    """Return the case at the shapes of its bound."""
    shapes = [x.shape for x in case.steps[0]]
    return replace(case, steps=[step for step in case.steps if [x.shape for x in step] == shapes], dims=None)


def lower(traced: Traced, path: Path, partitioners: list[Any]) -> None:
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    cache_patterns()
    edge = to_edge_transform_and_lower(
        copy.deepcopy(traced.exported),
        partitioner=partitioners,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
    path.write_bytes(edge.to_executorch(config if traced.case.dims else None).buffer)


def for_vulkan(case: Case) -> list[Any]:
    return [lowering.partitioner(case)]


def for_vulkan_f16(case: Case) -> list[Any]:
    """Keep weights and activations in f16 in the delegates; inputs and outputs are f32."""
    return for_vulkan(replace(case, options=case.options | {"force_fp16": True}))


def for_xnnpack(case: Case) -> list[Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner()]


def for_both(case: Case) -> list[Any]:
    """Give linears and convolutions to XNNPACK, and the rest to Vulkan."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir.dialects._ops import ops

    names = exporting.MIXED["linear"] + exporting.MIXED["conv"]
    left_out = [operator.attrgetter(name)(ops.edge.aten) for name in names]
    options = {"require_dynamic_shapes": True} if case.dims else {}
    return [VulkanPartitioner(options, operator_blocklist=left_out), *for_xnnpack(case)]


PARTITIONERS: dict[str, Callable[[Case], list[Any]]] = {
    "portable": lambda case: [],
    "vulkan": for_vulkan,
    "vulkan_f16": for_vulkan_f16,
    "xnnpack": for_xnnpack,
    "mixed": for_both,
}
QUANTIZED = {"xnnpack_int8": "int8", "xnnpack_8da4w": "8da4w"}  # as tests/studies/xnnpack/exporting.py names them
GROUP = 32  # weights that share a scale
