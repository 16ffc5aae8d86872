"""Names of inputs in the file: ExecuTorch writes those of buffers only, and callers would have to count positions."""

from __future__ import annotations

from typing import Any


def naming_pass(**options: Any) -> Any:
    """ExecuTorch's memory planning, which also gives each tensor that callers pass the name it has in `forward`."""
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.schema import ExtraTensorInfo
    from executorch.exir.tensor import TensorSpec

    class Naming(MemoryPlanningPass):  # type: ignore[misc]
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            result = super().run(graph_module, graph_signature)
            named = set(graph_signature.user_inputs) if graph_signature is not None else ()
            for node in result.graph_module.graph.nodes:
                spec = node.meta.get("spec") if node.op == "placeholder" and node.name in named else None
                if isinstance(spec, TensorSpec) and spec.extra_tensor_info is None:
                    spec.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=node.name)
            return result

    return Naming(**options)
