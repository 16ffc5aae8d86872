"""Export a case for XNNPACK, with what the executorch wheel computes.

Modes are f32, f16, int8 (static, PT2E), dynamic (int8 activations, 8-bit weights), 8da4w, and those of `MIXED`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.studies.zoo.building import Case
from tests.support.export.lowering import quiet, to_numpy

MIXED = {  # what is left to XNNPACK beside Vulkan delegates
    "linear": ("linear.default", "addmm.default", "mm.default"),
    "conv": ("convolution.default",),
    "add": ("add.Tensor", "sub.Tensor"),
    "mul": ("mul.Tensor", "sigmoid.default"),
}


def write(build: Callable[[], Case], mode: str, folder: Path) -> None:
    """Write `program0.pte` and further files for further shapes, and their inputs and outputs as `goldens.npz`."""
    arrays: dict[str, np.ndarray] = {}
    with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for number, case in enumerate(by_shape(build())):
            path = folder / f"program{number}.pte"
            prepared = in_mode(case, mode)
            export(prepared, mode, path)
            arrays |= goldens(path, prepared, mode, number)
    np.savez_compressed(folder / "goldens.npz", **arrays)  # type: ignore[arg-type]  # taken for `allow_pickle`


def by_shape(case: Case) -> Iterator[Case]:
    """Yield the case, or one for each shape of its calls if its dims are static."""
    if case.dims is not None:
        yield case
        return
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for step in case.steps:
        groups.setdefault(tuple(getattr(x, "shape", ()) for x in step), []).append(step)
    for steps in groups.values():
        yield replace(case, module=copy.deepcopy(case.module), steps=steps)


def in_mode(case: Case, mode: str) -> Case:
    """Return the case with its module, and inputs of f16, as the mode has them."""
    if mode == "f16":
        steps = [tuple(x.half() if torch.is_floating_point(x) else x for x in step) for step in case.steps]
        return replace(case, module=case.module.half(), steps=steps)
    if mode == "8da4w":
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
        from torchao.quantization.granularity import PerGroup
        from torchao.utils import unwrap_tensor_subclass

        config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
        quantize_(case.module, config)
        unwrap_tensor_subclass(case.module)
    return case


def export(case: Case, mode: str, path: Path) -> None:
    """Write a program for XNNPACK."""
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    traced = case.steps[min(1, len(case.steps) - 1)]
    exported = torch.export.export(case.module, traced, dynamic_shapes=case.dims)
    if mode in ("int8", "dynamic"):
        quantized = _quantized(exported.module(), case, mode)
        exported = torch.export.export(quantized, traced, dynamic_shapes=case.dims)
    lowered = to_edge_transform_and_lower(
        exported, partitioner=_partitioners(mode, case), compile_config=EdgeCompileConfig(_check_ir_validity=False)
    )
    config = ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass())
    path.write_bytes(lowered.to_executorch(config if case.dims else None).buffer)


def _partitioners(mode: str, case: Case) -> list[Any]:
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as xnnpack

    if mode == "8da4w":
        return [xnnpack.XnnpackDynamicallyQuantizedPartitioner(), xnnpack.XnnpackPartitioner()]
    if mode in MIXED:
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
        from executorch.exir.dialects._ops import ops

        options = {"require_dynamic_shapes": True} if case.dims else {}
        kept_out = [operator.attrgetter(name)(ops.edge.aten) for name in MIXED[mode]]
        return [VulkanPartitioner(options, operator_blocklist=kept_out), xnnpack.XnnpackPartitioner()]
    return [xnnpack.XnnpackPartitioner()]


def _quantized(module: Any, case: Case, mode: str) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=mode == "dynamic")
    prepared = prepare_pt2e(module, XNNPACKQuantizer().set_global(config))
    for step in case.steps:
        prepared(*step)
    return convert_pt2e(prepared)


def goldens(path: Path, case: Case, mode: str, number: int) -> dict[str, np.ndarray]:
    """Return inputs and outputs in the names of tests/support/export/exporting.py; each file is a sequence."""
    if mode in MIXED:  # the wheel has no Vulkan
        module = copy.deepcopy(case.module)  # whose state the calls change
        call: Callable[[Any], Any] = lambda step: module(*step)  # noqa: E731
    else:
        from executorch.extension.pybindings import portable_lib

        call = portable_lib._load_for_executorch(str(path)).forward
    flatten = torch.utils._pytree.tree_leaves
    arrays: dict[str, np.ndarray] = {}
    for t, step in enumerate(case.steps):
        prefix = f"{number}.{t}.forward"
        arrays |= {f"{prefix}.in{i}": to_numpy(x) for i, x in enumerate(step)}
        arrays |= {f"{prefix}.out{i}": to_numpy(x).copy() for i, x in enumerate(flatten(call(step)))}
    return arrays
