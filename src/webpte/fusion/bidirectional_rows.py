"""Let rows of a batch see later rows of their slot: those of an image, if the images of a model are bidirectional."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedError
from ..graph import Call, Graph
from ..graph.names import BIDIRECTIONAL_MAPPING
from .batching import SLOT_MAPPING
from .row_axes import SLOT_ATTENTION


def with_bidirectional_rows(graph: Graph) -> Graph:
    """Add two columns to the slot mapping of a graph of many sequences: the later rows that a row sees, and padding.

    All rows that see each other must be in one batch.
    """
    mapping = graph.inputs[SLOT_MAPPING]
    for step in graph.steps:
        if isinstance(step, Call) and mapping in step.args and step.name != SLOT_ATTENTION:
            raise UnsupportedError(f"bidirectional images: {step.name} sees earlier rows only", code="bidirectional")
    values = [*graph.values]
    spec = graph.tensor(mapping)
    values[mapping] = replace(spec, dims=(spec.dims[0], BIDIRECTIONAL_MAPPING))
    return replace(graph, values=tuple(values))
