"""From a Case to program.pte and goldens.npz, the way ExecuTorch's own documentation lowers a module.

`tests/support/export/lowering.py` skips dim orders and plans no inputs, as language models are exported.  Here nothing
is skipped: dim-order ops, views removed by the memory plan and inputs that share storage are in these files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.export.lowering import cache_patterns, quiet, to_numpy

from .building import Case


def write(build: Callable[[], Case | Mapping[str, Case]], folder: Path) -> None:
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = build()
        cases = dict(built) if isinstance(built, Mapping) else {"forward": built}
        np.savez(folder / "goldens.npz", **goldens(cases))  # type: ignore[arg-type]  # taken for `allow_pickle`
        program = lower(cases)
    with open(folder / "program.pte", "wb") as file:
        program.write_to_file(file)
    program.write_tensor_data_to_file(str(folder))


def goldens(cases: Mapping[str, Case]) -> dict[str, np.ndarray]:
    """In the names of tests/support/export/exporting.py: a sequence for each method."""
    flatten = torch.utils._pytree.tree_leaves
    arrays: dict[str, np.ndarray] = {}
    for sequence, (method, case) in enumerate(cases.items()):
        module = copy.deepcopy(case.module)  # what a buffer holds when it is exported is what the file will hold
        for t, inputs in enumerate(case.steps):
            prefix = f"{sequence}.{t}.{method}"
            arrays |= {f"{prefix}.in{i}": to_numpy(x) for i, x in enumerate(flatten(inputs))}
            with torch.no_grad():
                returned = module(*copy.deepcopy(inputs))
            arrays |= {f"{prefix}.out{i}": to_numpy(x) for i, x in enumerate(flatten(returned))}
    return arrays


def lower(cases: Mapping[str, Case]) -> Any:
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    cache_patterns()
    first = next(iter(cases.values()))
    traced = {
        name: torch.export.export(c.module, c.steps[min(1, len(c.steps) - 1)], dynamic_shapes=c.dims, strict=False)
        for name, c in cases.items()
    }
    edge = to_edge_transform_and_lower(
        traced,
        partitioner={name: [partitioner(c)] for name, c in cases.items()},
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=first.skip_dim_order),
        constant_methods=first.constants or None,
    )
    dynamic = any(c.dims for c in cases.values())
    return edge.to_executorch(
        ExecutorchBackendConfig(sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass()) if dynamic else None
    )


def partitioner(case: Case) -> Any:
    options = dict(case.options)
    if case.dims is not None:
        options.setdefault("require_dynamic_shapes", True)
    if case.webgpu:
        from executorch.backends.webgpu.partitioner import WebGPUPartitioner

        return WebGPUPartitioner(options)
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    return VulkanPartitioner(options, **case.keep_out)
