"""From an `nn.Module` to a .pte with goldens: the only support module that imports torch and ExecuTorch.

Imported only when something has to be exported; a warm cache never gets here.  This file is part of every cache
key (see exporting.py): an edit re-exports everything.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

Inputs = tuple[Any, ...]  # positional arguments as the module takes them: tensors, or dicts of tensors


@dataclass
class Method:
    """One exported method: a module, the inputs it is traced with, and the inputs its goldens are made from.

    `sequences` are runs from a fresh state: `reset` (if any) is called before each, and once more before the export,
    because what a buffer holds at that moment is what the file will hold.
    `mutated` are the positions of inputs the module writes; exported programs return those first.
    """

    module: torch.nn.Module
    example: Inputs
    sequences: list[list[Inputs]]
    dynamic_shapes: Any = None
    reset: Callable[[], None] | None = None
    mutated: tuple[int, ...] = ()


@dataclass
class Model:
    """What a builder returns: one method or several, and how to lower them."""

    methods: dict[str, Method]
    options: dict[str, Any] = field(default_factory=dict)  # of VulkanPartitioner
    constant_methods: dict[str, Any] | None = None
    strict: bool = True
    llama: bool = False
    branches: bool = False  # delegate inside torch.cond branches too
    expect: tuple[str, ...] = ()  # ops that must be in the file: a pattern that no longer matches fails the export


def forward(module: torch.nn.Module, example: Inputs, sequences: list[list[Inputs]], **more: Any) -> Model:
    """A Model with the single method `forward`; `more` goes to Method or to Model, by name."""
    of_method = {k: more.pop(k) for k in ("dynamic_shapes", "reset", "mutated") if k in more}
    return Model({"forward": Method(module.eval(), example, sequences, **of_method)}, **more)


def write(builder: Callable[..., Model], params: dict[str, Any], folder: Path) -> None:
    """Build, run eagerly and export into `folder`: program.pte, goldens.npz and any .ptd files."""
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = builder(**params)
        np.savez(folder / "goldens.npz", **goldens(model))  # type: ignore[arg-type]  # taken for `allow_pickle`
        lower(
            model.methods,
            path=folder / "program.pte",
            partitioner_options=model.options,
            strict=model.strict,
            constant_methods=model.constant_methods,
            llama=model.llama,
            branches=model.branches,
        )
    content = (folder / "program.pte").read_bytes()
    if lost := [op for op in model.expect if op.encode() not in content]:
        raise ValueError(f"{builder.__name__}({params}) exported without {', '.join(lost)}: no pattern matched")


# ---------------------------------------------------------------- goldens


def goldens(model: Model) -> dict[str, np.ndarray]:
    """Run every sequence eagerly; arrays named `<sequence>.<step>.<method>.in<i>` / `.out<i>`."""
    arrays: dict[str, np.ndarray] = {}
    sequence = 0
    for name, method in model.methods.items():
        for steps in method.sequences:
            if method.reset:
                method.reset()
            for t, inputs in enumerate(steps):
                arguments, returned = run_eager(method, inputs)
                prefix = f"{sequence}.{t}.{name}"
                arrays |= {f"{prefix}.in{i}": a for i, a in enumerate(arguments)}
                arrays |= {f"{prefix}.out{i}": a for i, a in enumerate(returned)}
            sequence += 1
        if method.reset:
            method.reset()
    for key, a in arrays.items():
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise ValueError(f"golden {key} has {np.count_nonzero(~np.isfinite(a))} values that are not finite")
    return arrays


def run_eager(method: Method, inputs: Inputs) -> tuple[list[np.ndarray], list[np.ndarray]]:
    flatten = torch.utils._pytree.tree_leaves
    arguments = [to_numpy(x) for x in flatten(inputs)]
    with torch.no_grad():
        out = method.module(*inputs)
    written = [to_numpy(flatten(inputs)[i]) for i in method.mutated]
    return arguments, written + [to_numpy(x) for x in flatten(out)]


def to_numpy(x: Any) -> np.ndarray:
    return x.detach().numpy().copy() if isinstance(x, torch.Tensor) else np.asarray(x)


# ---------------------------------------------------------------- lowering


def lower(
    module: torch.nn.Module | Mapping[str, Method],
    example_inputs: Inputs = (),
    dynamic_shapes: Any = None,
    *,
    path: Path,
    partitioner_options: dict[str, Any] | None = None,
    strict: bool = True,
    constant_methods: dict[str, Any] | None = None,
    llama: bool = False,
    branches: bool = False,
) -> list[Path]:
    """Export for the Vulkan delegate, write `path`, and return the .ptd files written beside it.

    `module` may be a mapping of method names to Methods.  Any dynamic shape turns on `require_dynamic_shapes`, which
    keeps ops that cannot be resized out of the delegate.
    """
    methods = module if isinstance(module, Mapping) else {"forward": Method(module, example_inputs, [], dynamic_shapes)}
    options = dict(partitioner_options or {})
    if any(m.dynamic_shapes for m in methods.values()):
        options.setdefault("require_dynamic_shapes", True)
    with quiet():  # also for callers other than write()
        program = to_program(methods, options, strict, constant_methods, llama, branches)
    with open(path, "wb") as file:
        program.write_to_file(file)
    program.write_tensor_data_to_file(str(path.parent))
    return sorted(path.parent.glob("*.ptd"))


def to_program(methods, options, strict, constant_methods, llama, branches):
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    trace = trace_llama if llama else trace_plain
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]), torch.no_grad():
        traced = {name: trace(m, strict) for name, m in methods.items()}
    edge = to_edge(
        traced,
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        constant_methods=constant_methods,
    )
    lowered = edge.to_backend(make_partitioner(options, branches))
    return lowered.to_executorch(
        ExecutorchBackendConfig(
            extract_delegate_segments=True,
            memory_planning_pass=MemoryPlanningPass(alloc_graph_input=False),
            sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass(),
        )
    )


def trace_plain(method: Method, strict: bool):
    return torch.export.export(
        method.module, method.example, dynamic_shapes=method.dynamic_shapes, strict=strict
    ).run_decompositions({})


def trace_llama(method: Method, strict: bool):
    """The fused attention op is found only where the transposes around the caches cancelled out first."""
    from executorch.extension.llm.export.export_passes import RemoveRedundantTransposes

    module = RemoveRedundantTransposes()(trace_plain(method, strict).module()).graph_module
    return torch.export.export(module, method.example, dynamic_shapes=method.dynamic_shapes, strict=strict)


def make_partitioner(options: dict[str, Any], branches: bool):
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    cache_patterns()
    if not branches:
        return VulkanPartitioner(options)
    from .branches import BranchPartitioner

    return BranchPartitioner(options)


def cache_patterns() -> None:
    """Trace the rotary patterns once per process and not once per partition: 9 s become 2 s."""
    from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = lru_cache(maxsize=None)(entry.get_graphs_fn)


@contextmanager
def quiet() -> Iterator[None]:
    """Importing the partitioner sets the root logger to INFO and logs to it; put everything back as it was."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)
