"""Lower an `nn.Module` to a .pte file with ExecuTorch."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..builder.options import check_target
from ..checkpoints.recipe import check_quantizer
from ..errors import UnsupportedError
from ..partial_files import output_file
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..suppress_output import suppress_logs
from .written_program import lowering_errors, refuse_complex, warn_of_problems

if TYPE_CHECKING:
    import torch


def input_names_pass(**options: Any) -> Any:
    """Return ExecuTorch's memory planning pass, extended to write the names of `forward`'s inputs into the file.

    ExecuTorch writes only the names of buffers.
    """
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.schema import ExtraTensorInfo
    from executorch.exir.tensor import TensorSpec

    class InputNamesPass(MemoryPlanningPass):  # type: ignore[misc]
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            result = super().run(graph_module, graph_signature)
            named = set(graph_signature.user_inputs) if graph_signature is not None else ()
            for node in result.graph_module.graph.nodes:
                spec = node.meta.get("spec") if node.op == "placeholder" and node.name in named else None
                if isinstance(spec, TensorSpec) and spec.extra_tensor_info is None:
                    spec.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=node.name)
            return result

    return InputNamesPass(**options)


PathLike = str | os.PathLike[str]
Inputs = tuple[Any, ...]
LOWERING_STAGES = ("trace", "edge", "delegate", "write")


def lower(
    module: torch.nn.Module,
    example_inputs: Inputs,
    dynamic_shapes: Any = None,
    quantize: str | None = None,
    *,
    path: PathLike,
    group_size: int = 32,
    options: Mapping[str, Any] | None = None,
    operator_blocklist: Sequence[Any] = (),
    constant_methods: Mapping[str, Any] | None = None,
    cancel_transposes: bool = False,
    strict: bool = True,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> list[Path]:
    """Export a module for the GPU and write it; returns the .ptd files written beside it, if any.

    `quantize` is "4w", "8w" or "8da4w" and replaces the module's linears in place. `options` and `operator_blocklist`
    go to `VulkanPartitioner`. Any dynamic shape turns on `require_dynamic_shapes`. `cancel_transposes` is for modules
    with a KV cache whose fused attention is recognized only where the transposes around it cancelled out first.
    The file holds the names of the inputs of `forward`, by which `Method` takes them. An `ExportWarning` lists what
    `webpte check` finds in the file.
    """
    if quantize is not None:
        check_quantizer(quantize, group_size)
    check_target(Path(path))
    require_executorch()
    steps = Steps(cancellable(progress, cancel), ["quantize"] * (quantize is not None) + list(LOWERING_STAGES))
    if quantize is not None:
        from .quantize import quantize_linears

        steps.next()
        with suppress_logs():
            module = quantize_linears(module, quantize, group_size, steps.progress)
    chosen = dict(options or {})
    if dynamic_shapes:
        chosen.setdefault("require_dynamic_shapes", True)
    files = lower_steps(
        module,
        example_inputs,
        dynamic_shapes,
        steps,
        path=Path(path),
        options=chosen,
        operator_blocklist=operator_blocklist,
        constant_methods=constant_methods,
        cancel_transposes=cancel_transposes,
        strict=strict,
    )
    warn_of_problems(Path(path), files, stacklevel=2)
    return files


def lower_steps(
    module: torch.nn.Module,
    inputs: Inputs,
    shapes: Any,
    steps: Steps,
    *,
    path: Path,
    options: dict[str, Any],
    operator_blocklist: Sequence[Any] = (),
    constant_methods: Mapping[str, Any] | None,
    cancel_transposes: bool = False,
    strict: bool = True,
) -> list[Path]:
    """Run the stages of LOWERING_STAGES."""
    with suppress_logs():
        steps.next()
        traced = {"forward": _trace(module.eval(), inputs, shapes, strict, cancel_transposes)}
        program = _to_program(traced, {"forward": options}, operator_blocklist, constant_methods, steps)
        steps.next()
        return _write(program, path, steps)


class MethodSpec(NamedTuple):
    """A module to lower as one of several methods of a program."""

    module: torch.nn.Module
    inputs: Inputs
    shapes: Any = None


def lower_methods(methods: Mapping[str, MethodSpec], steps: Steps, *, path: Path) -> list[Path]:
    """Run the stages of LOWERING_STAGES for a program with several methods."""
    with suppress_logs():
        steps.next()
        traced = {
            name: _trace(method.module.eval(), method.inputs, method.shapes, strict=True, cancel_transposes=False)
            for name, method in methods.items()
        }
        options = {name: {"require_dynamic_shapes": True} if m.shapes else {} for name, m in methods.items()}
        program = _to_program(traced, options, (), None, steps)
        steps.next()
        return _write(program, path, steps)


class Steps:
    """Report the begin and the end of each step. A step takes seconds to minutes and has no progress of its own."""

    def __init__(self, progress: OnProgress, names: list[str]) -> None:
        self.progress = progress
        self._names = names
        self._number = 0

    def next(self) -> None:
        self._end()
        self.progress(Progress(self._names[self._number], 0, 1, "steps"))
        self._number += 1

    def done(self) -> None:
        """Report the end of the last step."""
        assert self._number == len(self._names), f"{self._names[self._number :]} never began"
        self._end()

    def _end(self) -> None:
        if self._number:
            self.progress(Progress(self._names[self._number - 1], 1, 1, "steps"))


def require_executorch() -> None:
    """Check that the packages are installed without importing them, which takes seconds."""
    absent = [name for name in ("torch", "executorch", "safetensors", "tokenizers") if find_spec(name) is None]
    if absent:
        raise UnsupportedError(
            f"exporting requires the packages {', '.join(absent)}",
            code="missing_package",
            hint="Run pip install 'webpte[export]'.",
        )


def _trace(module: torch.nn.Module, inputs: Inputs, shapes: Any, strict: bool, cancel_transposes: bool) -> Any:
    import torch

    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]), torch.no_grad():
        traced = torch.export.export(module, inputs, dynamic_shapes=shapes, strict=strict).run_decompositions({})
        if not cancel_transposes:
            return traced
        from executorch.extension.llm.export.export_passes import RemoveRedundantTransposes

        simpler = RemoveRedundantTransposes()(traced.module()).graph_module
        return torch.export.export(simpler, inputs, dynamic_shapes=shapes, strict=strict)


def _to_program(
    traced: dict[str, Any],
    options: Mapping[str, dict[str, Any]],
    blocklist: Sequence[Any],
    constants: Mapping[str, Any] | None,
    steps: Steps,
) -> Any:
    """Lower methods by name, each with its own options of the partitioner."""
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    refuse_complex(traced)
    cache_patterns()
    keep_caches()
    steps.next()
    config = EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
    planning = ExecutorchBackendConfig(
        extract_delegate_segments=True,
        memory_planning_pass=input_names_pass(alloc_graph_input=False),
        sym_shape_eval_pass=ConstraintBasedSymShapeEvalPass(),
    )
    partitioners = {name: VulkanPartitioner(chosen, list(blocklist)) for name, chosen in options.items()}
    with lowering_errors(traced):
        edge = to_edge(traced, compile_config=config, constant_methods=dict(constants or {}))
        steps.next()
        delegated = edge.to_backend(partitioners)
        _refuse_wide_constants(delegated)
        return delegated.to_executorch(planning)


def _refuse_wide_constants(delegated: Any) -> None:
    """Refuse constants of delegates beyond 32 bits: the file would silently hold truncated values."""
    import torch

    modules = (m for name in delegated.methods for m in delegated.exported_program(name).graph_module.modules())
    for module in modules:
        inner = getattr(module, "original_module", None)
        held = {**inner.state_dict, **inner.constants} if inner is not None else {}
        for name, tensor in held.items():
            whole = isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64 and tensor.numel()
            if whole and not torch.equal(tensor, tensor.to(torch.int32)):
                raise UnsupportedError(
                    items=[name],
                    argument=name,
                    expected="integers of 32 bits in a delegate",
                    got=f"values from {tensor.min()} to {tensor.max()}",
                    code="wide_constant",
                    hint="Add the ops that use it to operator_blocklist: outside delegates they compute in 64 bits.",
                )


def _write(program: Any, path: Path, steps: Steps) -> list[Path]:
    before = set(path.parent.glob("*.ptd"))
    with output_file(path) as temporary:
        with open(temporary, "wb") as file:
            program.write_to_file(file)
        steps.done()  # the last point for a cancellation: no file is left yet
        program.write_tensor_data_to_file(str(path.parent))
    return sorted(set(path.parent.glob("*.ptd")) - before)


def cache_patterns() -> None:
    """Trace ExecuTorch's fusion patterns once per process. ExecuTorch traces them at every partition."""
    from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = functools.lru_cache(maxsize=None)(entry.get_graphs_fn)


def keep_caches() -> None:
    """Exclude KV caches from `alias_buffer_mutations`: fused attention already writes them in place.

    ExecuTorch would look up the new value of such a buffer before the buffer exists, and fail.
    """
    from executorch.backends.vulkan import vulkan_preprocess

    builder = vulkan_preprocess.VkGraphBuilder
    if hasattr(builder, "webpte"):
        return

    class Builder(builder):  # type: ignore[misc, valid-type]
        webpte = True

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            inputs = {node.name for node in self.program.graph_module.graph.nodes if node.op == "placeholder"}
            moved: dict[str, Any] = vars(self)["buffer_mutation_inputs"]
            self.buffer_mutation_inputs = {name: node for name, node in moved.items() if name not in inputs}

    vulkan_preprocess.VkGraphBuilder = Builder
