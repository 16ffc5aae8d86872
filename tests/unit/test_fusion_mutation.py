"""A user's op that writes in place, put at every place of every pass's graph: what is computed stays the same.

The op is known by what it was registered with and by nothing else. Graphs are run by the NumPy references of their ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from webpte.fusion import PASSES, apply_passes
from webpte.graph import (
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    DType,
    Graph,
    Int,
    IntList,
    Null,
    Origin,
    String,
    TensorSpec,
    ValueList,
)
from webpte.lowering import FLOATS, Context, OpTraits, Tensor, find, mutated_values, op, unregister

RAISE, RAISE_ALL = "toy.raise_.default", "toy.raise_all_.default"
S, H, D = 3, 2, 4
RANDOM = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    @op(RAISE, dtypes=FLOATS, traits=OpTraits(mutates=("x",)))
    def raise_(cx: Context, x: Tensor, *, out: Tensor) -> None:
        raise NotImplementedError

    @raise_.reference
    def _(x: Any) -> Any:
        x += x.dtype.type(7)
        return x - x.dtype.type(7)

    @op(RAISE_ALL, dtypes=FLOATS, traits=OpTraits(mutates=("tensors",)))
    def raise_all_(cx: Context, tensors: list[Tensor], *, out: Tensor) -> None:
        raise NotImplementedError

    @raise_all_.reference
    def _(tensors: Any) -> Any:
        for tensor in tensors:
            tensor += tensor.dtype.type(7)
        return tensors[0] - tensors[0].dtype.type(7)

    yield
    unregister(raise_)
    unregister(raise_all_)


class Builder(GraphBuilder):
    """Straight graphs of fixed shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[int] = []

    def input(self, *dims: int) -> int:
        self.inputs.append(self.tensor(*dims))
        return self.inputs[-1]

    def weight(self, *dims: int) -> int:
        return self.constant(RANDOM.normal(size=dims).astype(np.float32))

    def make(self, name: str, args: Any, *dims: int) -> int:
        out = self.tensor(*dims)
        self.call(name, tuple(args), out)
        return out

    def view(self, source: int, *dims: int) -> int:
        return self.make("aten.view_copy.default", (source, self.add(IntList(dims))), *dims)

    def clone(self, source: int, *dims: int) -> int:
        return self.make("aten.clone.default", (source, self.null()), *dims)

    def permute(self, source: int, *order: int) -> int:
        spec = self.values[source]
        assert isinstance(spec, TensorSpec)
        axes = self.add(IntList(order))
        return self.make("aten.permute_copy.default", (source, axes), *(spec.dims[axis] for axis in order))

    def plus(self, a: int, b: int, *dims: int) -> int:
        return self.make("aten.add.Tensor", (a, b, self.number(1)), *dims)

    def times(self, a: int, b: int, *dims: int) -> int:
        return self.make("aten.mul.Tensor", (a, b), *dims)

    def q4(self, x: int, rows: int) -> int:
        codes = self.constant(RANDOM.integers(0, 256, (rows, 16)).astype(np.uint8))
        scales = self.constant(RANDOM.uniform(0.1, 1, (2, rows)).astype(np.float32))
        args = (x, codes, scales, self.number(16), self.null())
        return self.make("et_vk.linear_q4gsw.default", args, S, rows)

    def rounded(self, x: int, rows: int) -> int:
        scale, zero = self.tensor(S), self.tensor(S, dtype=DType.INT8)
        block, mapping = self.add(IntList((1, 32))), self.add(String("ASYMMETRIC"))
        options = (self.null(), self.number(-128), self.number(127), self.null(), self.null(), self.null())
        chosen = (x, mapping, block, *options, self.add(Bool(False)))
        self.call("torchao.choose_qparams_affine.default", chosen, scale, zero)
        codes = self.constant(RANDOM.integers(0, 256, (rows, 16)).astype(np.uint8))
        scales = self.constant(RANDOM.uniform(0.1, 1, (2, rows)).astype(np.float32))
        args = (x, scale, zero, codes, self.null(), scales, self.number(16), self.null())
        return self.make("et_vk.linear_dq8ca_q4gsw.default", args, S, rows)

    def done(self, *outputs: int) -> Graph:
        return self.graph(self.inputs, outputs)


def views(b: Builder) -> Graph:
    """Views of views: of what is given, of what is made, and read before and after one another."""
    x = b.input(S, D)
    h = b.unary(x, S, D, name="aten.neg.default")
    first = b.view(h, S, D)
    second = b.view(first, S, D)
    third = b.clone(second, S, D)
    early = b.make("aten.cumsum.default", (first, b.number(0), b.null()), S, D)
    late = b.make("aten.cumsum.default", (third, b.number(0), b.null()), S, D)
    return b.done(early, late, b.plus(h, b.view(x, S, D), S, D))


def qparams(b: Builder) -> Graph:
    x = b.input(S, 32)
    return b.done(b.rounded(x, 8), b.rounded(x, 4))


def offset(b: Builder) -> Graph:
    x = b.input(S, 32)
    axis, keep = b.add(IntList((-1,))), b.add(Bool(False))
    sums = b.make("aten.sum.dim_IntList", (b.view(x, S, 2, 16), axis, keep, b.null()), S, 2)
    codes = b.constant(RANDOM.integers(-128, 128, (2, 8)).astype(np.int8))
    scales = b.constant(RANDOM.uniform(0.001, 0.01, 8).astype(np.float32))
    numbers = (b.number(1), b.number(-128), b.number(127), b.number(1))
    dequantize = "quantized_decomposed.dequantize_per_channel.default"
    offsets = b.make(dequantize, (codes, scales, b.null(), *numbers, b.null()), 2, 8)
    product = b.make("aten.mm.default", (sums, offsets), S, 8)
    return b.done(b.plus(b.q4(x, 8), b.view(product, S, 8), S, 8))


def gated(b: Builder) -> Graph:
    x = b.input(S, 32)
    gate, values = b.q4(x, 8), b.q4(x, 8)
    return b.done(b.times(gate, values, S, 8))


def joined(b: Builder) -> Graph:
    x = b.input(S, 32)
    return b.done(b.q4(x, 8), b.q4(x, 4), b.q4(x, 4))


def normed(b: Builder) -> Graph:
    x = b.input(S, 32)
    weight = b.constant(RANDOM.normal(size=32).astype(np.float32))
    norm = b.make("et_vk.rms_norm.default", (x, weight, b.add(Double(1e-2))), S, 32)
    return b.done(b.q4(norm, 8))


def normed_residual(b: Builder) -> Graph:
    x, y = b.input(S, 32), b.input(S, 32)
    weight = b.constant(RANDOM.normal(size=32).astype(np.float32))
    norm = b.make("et_vk.rms_norm.default", (b.unary(x, S, 32), weight, b.add(Double(1e-2))), S, 32)
    return b.done(b.plus(y, norm, S, 32))


def coded(b: Builder) -> int:
    """Return the sum of codes and those of a layer."""
    x, y = (b.tensor(S, 8, dtype=DType.INT8) for _ in "xy")
    b.inputs += [x, y]
    weights = b.constant(RANDOM.integers(-128, 128, (2, 8, 4)).astype(np.int8))
    scales = b.constant(RANDOM.uniform(0.001, 0.01, 8).astype(np.float32))
    bias = b.constant(RANDOM.integers(-99, 99, 8).astype(np.int32))
    limits = [b.number(v) for v in (3, -128, 127)]
    total, out = (b.tensor(S, 8, dtype=DType.INT8) for _ in range(2))
    b.call("webpte.int8_linear", (x, weights, scales, bias, b.number(9), *limits), total)
    b.call("webpte.int8_add", (y, total, *map(b.number, (700001, 1310719, 1 << 19, 20)), *limits), out)
    return out


def permuted(b: Builder) -> Graph:
    x = b.input(S, 8)
    codes, out = b.tensor(S, 8, dtype=DType.INT8), b.tensor(8, S, dtype=DType.INT8)
    limits = [b.number(v) for v in (3, -128, 127)]
    b.call(
        "quantized_decomposed.quantize_per_tensor.default",
        (x, b.add(Double(0.02)), *limits, b.number(1)),
        codes,
    )
    b.call("aten.permute_copy.default", (codes, b.add(IntList((1, 0)))), out)
    return b.done(out)


def attention(b: Builder) -> Graph:
    q, k, v = b.input(1, S, 2 * H, D), b.input(1, S, H, D), b.input(1, S, H, D)
    caches = [b.tensor(1, 5, H, D, mutable=True) for _ in "kv"]
    tables = b.input(S, D // 2), b.input(S, D // 2)
    turned = b.tensor(1, S, 2 * H, D), b.tensor(1, S, H, D)
    b.call("et_vk.apply_rotary_emb.default", (q, k, *tables), *turned)
    options = (b.number(1), b.number(1), b.null(), b.add(Double(0.0)), b.add(Bool(True)), b.null())
    return b.done(b.make("sdpa_with_kv_cache.default", (*turned, v, *caches, *options), 1, S, 2 * H, D))


def decomposed(b: Builder) -> Graph:
    """Return a norm before attention, as XnnpackPartitioner leaves them."""
    x, v = b.input(1, S, H, D), b.input(1, S, H, D)
    caches = [b.tensor(1, 5, H, D, mutable=True) for _ in "kv"]
    axes, kept = b.add(IntList((-1,))), b.add(Bool(True))
    mean = b.make("aten.mean.dim", (b.times(x, x, 1, S, H, D), axes, kept, b.null()), 1, S, H, 1)
    shifted = b.plus(mean, b.constant(np.array(1e-2, np.float32)), 1, S, H, 1)
    root = b.unary(shifted, 1, S, H, 1, name="aten.rsqrt.default")
    key = b.times(b.times(x, root, 1, S, H, D), b.weight(D), 1, S, H, D)
    start = b.number(1)
    for value, cache in zip((key, v), caches, strict=True):
        b.call("update_cache.default", (value, cache, start), b.tensor(1))
    options = (start, b.null(), b.add(Double(0.0)), b.add(Bool(True)), b.null())
    return b.done(b.make("custom_sdpa.default", (x, *caches, *options), 1, S, H, D))


def elementwise(b: Builder) -> Graph:
    x, y = b.input(S, D), b.input(S, D)
    inner = b.times(x, y, S, D)
    shown = b.unary(inner, S, D, name="aten.tanh.default")
    return b.done(b.plus(b.clone(shown, S, D), y, S, D), shown)


def epilogue(b: Builder) -> Graph:
    x, y = b.input(S, D), b.input(S, H, D)
    value = b.make("aten.linear.default", (x, b.weight(H * D, D), b.null()), S, H * D)
    layer = b.q4(b.input(S, 32), 8)
    return b.done(
        b.unary(b.plus(b.view(value, S, H, D), y, S, H, D), S, H, D),
        b.plus(b.unary(b.input(S, 8), S, 8), layer, S, 8),
        coded(b),
    )


def layouts(b: Builder) -> Graph:
    x, y = b.input(S, H * D), b.input(S, H * D)
    q = b.view(b.permute(b.view(x, 1, S, H, D), 0, 2, 1, 3), H, S, D)
    k = b.view(b.permute(b.view(y, 1, S, H, D), 0, 2, 3, 1), H, D, S)
    scores = b.make("aten.bmm.default", (q, k), H, S, S)
    mixed = b.view(b.make("aten.bmm.default", (scores, q), H, S, D), 1, H, S, D)
    return b.done(b.permute(mixed, 0, 2, 1, 3))


GRAPHS: dict[str, Callable[[Builder], Graph]] = {
    "identities": views,
    "decompositions": decomposed,
    "qparams": qparams,
    "offset-linears": offset,
    "permuted-codes": permuted,
    "rotary-attention": attention,
    "elementwise": elementwise,
    "gated-linears": gated,
    "joined-linears": joined,
    "epilogues": epilogue,
    "row-qparams": qparams,
    "norm-linears": normed,
    "norm-residuals": normed_residual,
    "layouts": layouts,
}


def evaluate(graph: Graph, arrays: dict[int, Any]) -> list[Any]:
    """Return the outputs by the references of the ops, which write their arguments in place where the ops do."""
    live = {v: array.copy() for v, array in arrays.items()}
    for value_id, spec in enumerate(graph.values):
        if isinstance(spec, TensorSpec) and spec.constant is not None:
            live[value_id] = spec.constant.array(spec.dims).copy()
        elif isinstance(spec, TensorSpec) and spec.mutable:
            live[value_id] = np.zeros(spec.dims, spec.dtype.numpy)

    def value(value_id: int) -> Any:
        match graph.values[value_id]:
            case Int(number) | Double(number) | Bool(number) | String(number):
                return number
            case IntList(numbers) | DoubleList(numbers) | BoolList(numbers):
                return list(numbers)
            case ValueList(ids):
                return [value(v) for v in ids]
            case Null():
                return None
        return live[value_id]

    for call in graph.calls:
        actual = find(call)
        assert actual is not None and actual.compute is not None, call.name
        results = actual.compute(*map(value, call.args))
        results = results if isinstance(results, tuple) else (results,)
        live.update((out, np.array(result)) for out, result in zip(call.outs, results, strict=True))
    return [live[v] for v in graph.outputs]


def disturbed(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with one tensor raised in place before one step, alone or in a list; perhaps read afterwards."""
    stored = [v for v, spec in enumerate(graph.values) if isinstance(spec, TensorSpec) and spec.stored]
    known = [v for v in (*graph.inputs, *stored) if graph.tensor(v).dtype is DType.FLOAT32]
    for at, step in enumerate((*graph.calls, None)):
        for target, other in zip(known, known[1:] + known[:1], strict=True):
            listed = replace(graph, values=(*graph.values, ValueList((other, target))))
            for later in (False, True):
                yield f"value {target} before step {at}", _raised(graph, at, RAISE, target, target, later)
                yield (
                    f"values {other} and {target} before step {at}",
                    _raised(listed, at, RAISE_ALL, len(graph.values), other, later),
                )
        known += [v for v in (step.outs if step else ()) if graph.tensor(v).dtype is DType.FLOAT32]


def _raised(graph: Graph, at: int, name: str, argument: int, first: int, later: bool) -> Graph:
    old, read = len(graph.values), len(graph.values) + 1
    spec = replace(graph.tensor(first), constant=None, mutable=False)
    calls = [Call(name, (argument,), (old,), Origin(99)), Call("aten.abs.default", (first,), (read,), Origin(99))]
    steps = (*graph.steps[:at], calls[0], *graph.steps[at:], *calls[1 : 1 + later])
    outputs = (*graph.outputs, old, *([read] if later else []))
    return replace(graph, values=(*graph.values, spec, spec), steps=steps, outputs=outputs)


def test_mutation_graphs_cover_each_pass():
    assert list(GRAPHS) == list(PASSES)


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_safe_with_in_place_op_anywhere(name):
    graph = GRAPHS[name](Builder())
    assert apply_passes(graph, [name])[1][name] > 0  # undisturbed, it does what it is for
    arrays = {v: RANDOM.normal(size=graph.tensor(v).dims).astype(np.float32) for v in graph.inputs}
    for where, raised in disturbed(graph):
        expected = evaluate(raised, arrays)
        for passes in ([name], list(PASSES)):
            for got, want in zip(evaluate(apply_passes(raised, passes)[0], arrays), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{where}, {passes}")


def test_members_of_a_list_are_written():
    b = Builder()
    x, y = b.input(S, D), b.input(S, D)
    b.call(RAISE_ALL, (b.list(x, y),), b.tensor(S, D))
    graph = b.done(x)
    assert mutated_values(graph.calls[0], graph) == (x, y)
