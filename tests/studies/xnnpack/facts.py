"""Results of an independent decoder for the delegates of the samples: ``facts.json``, one entry per delegate."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from webpte.container import XnnGraph

FOLDER = Path(__file__).parent
SAMPLES = sorted((FOLDER / "samples").glob("*.pte"))
FACTS = FOLDER / "facts.json"


def summary(nodes: list[Any], values: list[Any]) -> dict[str, Any]:
    """Return the number of nodes by type, and a digest of all fields."""
    text = json.dumps([nodes, values], sort_keys=True)
    return {
        "nodes": dict(sorted(Counter(node[0] for node in nodes).items())),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def delegate_facts(graph: XnnGraph) -> dict[str, Any]:
    """Return the summary of a delegate."""
    nodes = [
        [
            node.type,
            dict(node.ids),
            dict(node.numbers),
            {k: list(v) for k, v in node.lists.items()},
            node.factor,
            node.clamp,
        ]
        for node in graph.nodes
    ]
    values = [
        [v.type.name, list(v.dims), v.constant, v.argument, v.is_input, v.is_output, _scaling(v.quant)]
        for v in graph.values
    ]
    return summary(nodes, values)


def _scaling(quant: Any) -> Any:
    if quant is None:
        return None
    return [
        quant.kind,
        quant.scales,
        quant.zero_point,
        quant.channel_dim,
        quant.group_size,
        quant.scale_data,
        quant.inner_dims,
    ]
