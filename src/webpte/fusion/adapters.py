"""Add the low-rank products of adapters to the linear layers of a language model.

The graph gets one more input, the number of the adapter of each row, 0 for none. Layers of one input share the product
with the first matrices: `webpte.adapter_down`. The product with the second is added to the result of each layer:
`webpte.adapter_up`. All other calls stay, so that the passes fuse them as before where no adapter is between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from ..errors import GraphError
from ..graph import Call, DType, Graph, Int, TensorSpec, numel
from ..graph.names import PREPACK
from .linears import tensor_spec
from .rewriter import Rewriter, role_of, roles

ADAPTER_DOWN, ADAPTER_UP = "webpte.adapter_down", "webpte.adapter_up"  # see ops/adapters/low_rank.py
PATTERN = {
    "linear": ("aten.linear.default",),
    "bytes": ("aten._weight_int8pack_mm.default",),
    "four bits": ("et_vk.linear_q4gsw.default",),
    "dynamic": ("et_vk.linear_dq8ca_q4gsw.default",),
}
ROLES = roles(PATTERN)
OPERANDS = {  # the names of the arguments with the input and the weight
    "linear": ("input", "weight"),
    "bytes": ("self", "mat2"),
    "four bits": ("self", "weights"),
    "dynamic": ("input", "weights"),
}


class AdapterMatrices(Protocol):
    """The matrices of all adapters, by the names of the layers."""

    @property
    def layers(self) -> Collection[str]:
        """Return the layers that an adapter changes."""

    def down(self, layers: Sequence[str]) -> TensorSpec:
        """Return the first matrices (N, K, R) of N adapters, those of several layers beside each other."""

    def up(self, layer: str) -> TensorSpec:
        """Return the second matrices (N, R, K). R is a multiple of 4, and the number of columns in `down`."""


class _Layer(NamedTuple):
    name: str
    step: int
    call: Call
    x: int


def with_adapters(graph: Graph, matrices: AdapterMatrices, rows: int) -> Graph:
    """Add adapters to a graph of `rows` rows of tokens. Its last input becomes their numbers (rows,).

    Every layer of an adapter must be in the graph: an adapter that is applied in part still gives fluent text.
    """
    rewriter = Rewriter(graph)
    adapters = rewriter.add(TensorSpec(DType.INT32, (rows,), DType.INT32, dynamic=True))
    before: dict[int, Call] = {}  # calls to insert before a step, and after one
    after: dict[int, Call] = {}
    groups: dict[int, list[_Layer]] = defaultdict(list)
    adapted = _layers(rewriter, matrices.layers)
    if missing := sorted({*matrices.layers} - {layer.name for layer in adapted}):
        raise GraphError(
            argument="adapters",
            expected="linear layers of the program",
            got=", ".join(missing[:4]) + (" ..." if missing[4:] else ""),
            code="adapter_layers",
            hint="Export the checkpoint again with webpte export.",
        )
    for layer in adapted:
        groups[layer.x].append(layer)
    for x, layers in groups.items():
        spec = tensor_spec(rewriter, x)
        a = matrices.down([layer.name for layer in layers])
        down = rewriter.add(TensorSpec(spec.dtype, (rows, a.dims[2]), spec.dtype))
        _, at, call, _ = layers[0]
        arguments = {"x": x, "a": rewriter.add(a), "adapters": adapters}
        before[at] = rewriter.make(ADAPTER_DOWN, [down], call.origin, **arguments)
        start = 0
        for name, at, call, _ in layers:
            b = matrices.up(name)
            _check(name, spec, a, tensor_spec(rewriter, call.outs[0]), b, rows)
            plain = rewriter.add(tensor_spec(rewriter, call.outs[0]))
            rewriter.steps[at] = replace(call, outs=(plain,))
            operands = {"x": plain, "down": down, "b": rewriter.add(b), "adapters": adapters}
            after[at] = rewriter.make(ADAPTER_UP, call.outs, call.origin, **operands, first=Int(start))
            start += b.dims[1]
    steps = [each for n, step in enumerate(rewriter.steps) for each in (before.get(n), step, after.get(n)) if each]
    return replace(graph, values=tuple(rewriter.values), steps=tuple(steps), inputs=(*graph.inputs, adapters))


def _check(name: str, x: TensorSpec, a: TensorSpec, out: TensorSpec, b: TensorSpec, rows: int) -> None:
    sizes = (numel(x.dims[:-1]), x.dims[-1], numel(out.dims[:-1]), out.dims[-1])
    if sizes != (rows, a.dims[1], rows, b.dims[2]):
        raise GraphError(
            argument=name,
            expected=f"{rows} rows of {a.dims[1]} inputs and {b.dims[2]} outputs, as its adapters have",
            got=f"{x} and {out}",
            code="adapter_shape",
        )


def _layers(rewriter: Rewriter, names: Collection[str]) -> list[_Layer]:
    """Return the layers with these names, in their order."""
    layers = []
    for index in range(len(rewriter.steps)):
        call = rewriter.call(index)
        role = role_of(call, ROLES)
        if call is None or role is None:
            continue
        arguments = rewriter.arguments(call)
        x, weight = (arguments[name] for name in OPERANDS[role])
        name = _layer_name(rewriter, weight)
        if name in names:
            layers.append(_Layer(name, index, call, _source(rewriter, x)))
    return layers


def _layer_name(rewriter: Rewriter, weight: int) -> str:
    """Return the name of the layer of a weight: that of its constant without the last part; empty without one."""
    producer = rewriter.producer(weight)
    if producer is not None and producer[1].name == PREPACK:
        weight = producer[1].args[0]
    spec = rewriter.values[weight]
    constant = spec.constant if isinstance(spec, TensorSpec) else None
    return "" if constant is None else constant.name.rpartition(".")[0]


def _source(rewriter: Rewriter, x: int) -> int:
    """Return the tensor whose rows an input views, so that layers of one input share a product."""
    width = tensor_spec(rewriter, x).dims[-1]
    while (producer := rewriter.producer(x)) is not None:
        source = rewriter.source(producer[1])
        if source is None or tensor_spec(rewriter, source).dims[-1:] != (width,):
            break
        x = source
    return x
