"""Export a network in a mode: for Vulkan, for XNNPACK, for both, or without delegates.

A network has one dynamic dim or more; its static form takes the shapes of its bound. Expected results are those of
eager PyTorch in f32, and of the executorch wheel with the same file where the mode quantizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.export.lowering import quiet
from tests.xnnpack import exporting

from . import lowering
from .building import Case


def write(build: Callable[[], Case], mode: str, dynamic: bool, folder: Path) -> None:
    """Write `program.pte` and `goldens.npz`."""
    path = folder / "program.pte"
    with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        case = build() if dynamic else static(build())
        if mode not in QUANTIZED:
            arrays = lowering.goldens({"forward": case})
        EXPORTS[mode](case, path)
        if mode in QUANTIZED:
            import executorch.kernels.quantized  # noqa: F401  # registers what is left outside delegates

            arrays = exporting.goldens(path, case, mode, 0)
    np.savez_compressed(folder / "goldens.npz", **arrays)  # type: ignore[arg-type]  # taken for `allow_pickle`


def static(case: Case) -> Case:
    """Return the case at the shapes of its bound."""
    shapes = [x.shape for x in case.steps[0]]
    return replace(case, steps=[step for step in case.steps if [x.shape for x in step] == shapes], dims=None)


def portable(case: Case, path: Path) -> None:
    """Export without delegates."""
    lower(case, path, [])


def mixed(case: Case, path: Path) -> None:
    """Export linears and convolutions for XNNPACK, and the rest for Vulkan."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir.dialects._ops import ops

    names = exporting.MIXED["linear"] + exporting.MIXED["conv"]
    left_out = [operator.attrgetter(name)(ops.edge.aten) for name in names]
    options = {"require_dynamic_shapes": True} if case.dims else {}
    lower(case, path, [VulkanPartitioner(options, operator_blocklist=left_out), XnnpackPartitioner()])


def lower(case: Case, path: Path, partitioners: list[Any]) -> None:
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    traced = case.steps[min(1, len(case.steps) - 1)]
    exported = torch.export.export(case.module, traced, dynamic_shapes=case.dims, strict=False)
    edge = to_edge_transform_and_lower(
        exported, partitioner=partitioners, compile_config=EdgeCompileConfig(_check_ir_validity=False)
    )
    config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
    path.write_bytes(edge.to_executorch(config if case.dims else None).buffer)


def vulkan(case: Case, path: Path) -> None:
    path.write_bytes(lowering.lower({"forward": case}).buffer)


def vulkan_f16(case: Case, path: Path) -> None:
    """Export with weights and activations of f16 in the delegates; inputs and outputs are f32."""
    vulkan(replace(case, options=case.options | {"force_fp16": True}), path)


def xnnpack(mode: str) -> Callable[[Case, Path], None]:
    return lambda case, path: exporting.export(exporting.in_mode(case, mode), mode, path)


EXPORTS: dict[str, Callable[[Case, Path], None]] = {
    "portable": portable,
    "vulkan": vulkan,
    "vulkan_f16": vulkan_f16,
    "xnnpack": xnnpack("f32"),
    "xnnpack_int8": xnnpack("int8"),
    "xnnpack_8da4w": xnnpack("8da4w"),
    "mixed": mixed,
}
QUANTIZED = ("xnnpack_int8", "xnnpack_8da4w")
