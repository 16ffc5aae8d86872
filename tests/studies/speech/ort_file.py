"""Read the weights of ONNX Runtime's .ort files: flatbuffers of graphs, with initializers and nodes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Numbers of fields, in ONNX Runtime's schema.
SESSION_MODEL, MODEL_GRAPH = 1, 7
GRAPH_INITIALIZERS, GRAPH_NODES = 0, 2
TENSOR_NAME, TENSOR_DIMS, TENSOR_TYPE, TENSOR_DATA = 0, 2, 3, 4
NODE_NAME, NODE_INPUTS, NODE_ATTRIBUTES = 0, 8, 10
ATTRIBUTE_GRAPH = 7
TYPES = {1: "<f4", 2: "u1"}


class Node(NamedTuple):
    """A node of a graph."""

    name: str
    inputs: list[str]


class Table:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._number("<i", at)

    def _number(self, kind: str, at: int) -> int:
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int:
        """Return where a field is, or 0."""
        inside = 4 + 2 * field < self._number("<H", self._fields)
        offset = self._number("<H", self._fields + 4 + 2 * field) if inside else 0
        return self._at + offset if offset else 0

    def _target(self, at: int) -> int:
        return at + self._number("<I", at)

    def _vector(self, field: int) -> tuple[int, int]:
        """Return where the elements of a vector are, and their number."""
        place = self._place(field)
        return (self._target(place) + 4, self._number("<I", self._target(place))) if place else (0, 0)

    def number(self, field: int) -> int:
        return self._number("<i", self._place(field))

    def bytes(self, field: int) -> bytes:
        at, count = self._vector(field)
        return self._data[at : at + count]

    def string(self, field: int) -> str:
        return self.bytes(field).decode()

    def dims(self, field: int) -> tuple[int, ...]:
        at, count = self._vector(field)
        return struct.unpack_from(f"<{count}q", self._data, at)

    def table(self, field: int) -> Table | None:
        place = self._place(field)
        return Table(self._data, self._target(place)) if place else None

    def tables(self, field: int) -> list[Table]:
        at, count = self._vector(field)
        return [Table(self._data, self._target(at + 4 * number)) for number in range(count)]

    def strings(self, field: int) -> list[str]:
        at, count = self._vector(field)
        places = [self._target(at + 4 * number) for number in range(count)]
        return [self._data[place + 4 : place + 4 + self._number("<I", place)].decode() for place in places]


def read_ort(data: bytes) -> tuple[dict[str, Array], list[Node]]:
    """Return the floats and bytes among the initializers of a file by name, and the nodes, with those of branches."""
    session = Table(data, struct.unpack_from("<I", data)[0])
    model = session.table(SESSION_MODEL)
    graph = model.table(MODEL_GRAPH) if model is not None else None
    assert graph is not None
    initializers: dict[str, Array] = {}
    nodes: list[Node] = []
    for each in _graphs(graph):
        for tensor in each.tables(GRAPH_INITIALIZERS):
            dtype = TYPES.get(tensor.number(TENSOR_TYPE))
            if dtype is not None:
                values = np.frombuffer(tensor.bytes(TENSOR_DATA), dtype).reshape(tensor.dims(TENSOR_DIMS))
                initializers[tensor.string(TENSOR_NAME)] = values
        nodes += [Node(node.string(NODE_NAME), node.strings(NODE_INPUTS)) for node in each.tables(GRAPH_NODES)]
    return initializers, nodes


def _graphs(graph: Table) -> Iterator[Table]:
    yield graph
    for node in graph.tables(GRAPH_NODES):
        for attribute in node.tables(NODE_ATTRIBUTES):
            branch = attribute.table(ATTRIBUTE_GRAPH)
            if branch is not None:
                yield from _graphs(branch)
