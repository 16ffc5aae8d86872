"""What to change about an export, in words that can be pasted."""

from __future__ import annotations

from collections.abc import Sequence

from .names import FUSED_BY_EXPORTER

EXIR_OPS = "from executorch.exir.dialects._ops import ops as exir_ops"


def fused_by_exporter(name: str) -> bool:
    """Whether ExecuTorch makes an op inside a delegate."""
    return name.startswith(FUSED_BY_EXPORTER)


def keep_out(names: Sequence[str]) -> str:
    """The change to an export that keeps ops out of delegates. A partitioner compares the exporter's own op objects."""
    fused = [name for name in names if fused_by_exporter(name)]
    plain = [name for name in names if name not in fused]
    sentences = []
    if plain:
        listed = ", ".join(f"exir_ops.edge.{name}" for name in plain)
        sentences.append(f"Re-export with VulkanPartitioner(operator_blocklist=[{listed}]), after `{EXIR_OPS}`.")
    if fused:
        sentences.append(f"ExecuTorch makes {', '.join(fused)} inside the delegate: no block list keeps such ops out.")
    return " ".join(sentences)
