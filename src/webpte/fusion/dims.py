"""What can be told of live shapes before anything runs: enough to prove that two of them are always equal.

Bounds do not tell it: x[s <= 4, 8].view(4, -1) has the bound of x and another shape.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from ..errors import GraphError
from ..graph import Call, Graph, Int, IntList, SymInt, TensorSpec, ValueList
from ..graph.programs import ELEMENTWISE, JOINABLE
from .dim_rules import RULES

Dim = int | tuple[str, int, int]  # a size, or the name of one that is known only when the method runs
Dims = tuple[Dim, ...]

_LIKE_FIRST = {
    "aten.alias_copy.default",
    "aten.clone.default",
    "aten::clone.out",
    "aten.gelu.default",
    "aten.native_layer_norm.default",
    "aten.relu.default",
    "aten.sigmoid.default",
    "aten.silu.default",
    "aten.tanh.default",
    "dim_order_ops._clone_dim_order.default",
    "et_vk.rms_norm.default",
    "sdpa_with_kv_cache.default",
}
_BROADCAST = {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"}
_LINEAR = {  # where the weight (N, ...) is among the arguments; the result is (..., N)
    "aten.linear.default": 1,
    "et_vk.linear_q4gsw.default": 1,
    "et_vk.linear_qcs4w.default": 1,
    "et_vk.linear_dq8ca_q4gsw.default": 3,
}
_MATMUL = {  # where the left factor is among the arguments, the right one behind it
    "aten.mm.default": 0,
    "aten.bmm.default": 0,
    "aten.addmm.default": 1,
    "aten.baddbmm.default": 1,
}
_EMBEDDING = {"aten.embedding.default": (0, 1), "et_vk.embedding_q4gsw.default": (0, 3)}  # table and indices
_VIEW = {"aten.view_copy.default", "aten::view_copy.out", "executorch_prim::et_view.default"}
_EXPAND = {"aten.expand_copy.default", "aten::expand_copy.out"}
_SIZE = {"sym_size.int", "aten::sym_size.int"}


class LiveDims:
    """The dims of the tensors of a straight graph, as sizes and names. A name is one size all through a call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs = frozenset(graph.inputs)
        self._dims: dict[int, Dims] = {}
        self._scalars: dict[int, Dim] = {}
        self._fresh = itertools.count()
        self._derived: dict[tuple[Dim, int, int], Dim] = {}
        varying = (isinstance(v, SymInt) or (isinstance(v, TensorSpec) and v.dynamic) for v in graph.values)
        self._static = not any(varying)  # then bounds are all there is
        writes = Counter([*graph.inputs, *(out for call in graph.calls for out in call.outs)])
        self._rewritten = {value_id for value_id, count in writes.items() if count > 1}
        for call in graph.calls:
            self._follow(call)

    def same(self, a: int, b: int) -> bool:
        """Whether two tensors provably have the same shape whenever the method runs."""
        return self.of(a) == self.of(b)

    def of(self, value_id: int) -> Dims:
        """The dims of a tensor. Where nothing is known each has a name of its own."""
        spec = self.graph.values[value_id]
        if not isinstance(spec, TensorSpec):
            return ()  # a number among the operands
        given = value_id in self._inputs
        if spec.stored or (given and not spec.dynamic):
            return spec.dims
        if value_id in self._rewritten:  # they may differ from one moment to the next
            return tuple(self._unknown() for _ in spec.dims)
        if self._static:
            return spec.dims
        # A dim of 1 cannot vary in what a caller passes; elsewhere it could be empty.
        named = (1 if given and size == 1 else ("dim", value_id, d) for d, size in enumerate(spec.dims))
        return self._dims.get(value_id) or tuple(named)

    def at_most(self, size: Dim, limit: Dim) -> bool:
        """Whether a size is never larger than another, as far as its bound tells."""
        if isinstance(size, int) or not isinstance(limit, int):
            return isinstance(size, int) and isinstance(limit, int) and size <= limit
        kind, value_id, axis = size
        return kind == "dim" and self.graph.tensor(value_id).dims[axis] <= limit

    def derived(self, size: Dim, less: int, stride: int) -> Dim:
        """The name of (size - less - 1) // stride + 1, the same for all who ask for it."""
        return self._derived.setdefault((size, less, stride), ("derived", len(self._derived), 0))

    def _unknown(self) -> Dim:
        return ("unknown", next(self._fresh), 0)

    def _follow(self, call: Call) -> None:
        try:
            if call.name in _SIZE:
                axis = self.graph.values[call.args[1]]
                if isinstance(axis, Int):
                    self._scalars[call.outs[0]] = self.of(call.args[0])[axis.value]
                return
            for out, dims in zip(call.outs, self._made(call), strict=False):
                if len(dims) == len(self.graph.tensor(out).dims):
                    self._dims[out] = dims
        except (GraphError, IndexError, ValueError, ZeroDivisionError):
            pass  # arguments that the op does not take: its lowering will say so

    def _made(self, call: Call) -> list[Dims]:
        """The dims of a call's outputs; those that no rule covers are left away."""
        args, name = call.args, call.name
        if name in _LIKE_FIRST:
            return [self.of(args[0])]
        if name == "et_vk.apply_rotary_emb.default":
            return [self.of(args[0]), self.of(args[1])]
        if name in _BROADCAST:
            return self._broadcast(self.of(args[0]), self.of(args[1]))
        if name in _MATMUL:
            left, right = args[_MATMUL[name]], args[_MATMUL[name] + 1]
            return [(*self.of(left)[:-1], self.of(right)[-1])]
        if name in JOINABLE or name == ELEMENTWISE:
            made: list[Dims] = [()]
            for arg in args if name in JOINABLE else self.graph.value_list(args[1]):
                made = [wider for dims in made for wider in self._broadcast(dims, self.of(arg))]
            return made
        if name in _LINEAR:
            return [(*self.of(args[0])[:-1], self.of(args[_LINEAR[name]])[0])]
        if name == "webpte.linear_q4":
            return [(*self.of(args[0])[:-1], columns) for columns in self.sizes(args[6])]
        if name in _EMBEDDING:
            table, indices = (args[position] for position in _EMBEDDING[name])
            width = self.graph.tensor(call.outs[0]).dims[-1]
            return [(*self.of(indices), width)] if self.graph.tensor(table).stored else []
        if name in _VIEW:
            return [self._viewed(self.of(args[0]), self.sizes(args[1]))]
        if name in _EXPAND:
            return [_expanded(self.of(args[0]), self.sizes(args[1]))]
        return RULES[name](self, call) if name in RULES else []

    def _broadcast(self, left: Dims, right: Dims) -> list[Dims]:
        rank = max(len(left), len(right))
        left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
        pairs = list(zip(left, right, strict=True))
        if all(x == y or 1 in (x, y) for x, y in pairs):
            return [tuple(y if x == 1 else x for x, y in pairs)]
        return []

    def _viewed(self, dims: Dims, sizes: Dims) -> Dims:
        if len(dims) == len(sizes) and all(size in (-1, own) for size, own in zip(sizes, dims, strict=True)):
            return dims
        rest = _left_over(dims, sizes)
        return tuple((self._unknown() if rest is None else rest) if size == -1 else size for size in sizes)

    def sizes(self, value_id: int) -> Dims:
        value = self.graph.values[value_id]
        if isinstance(value, IntList):
            return value.values
        return tuple(self.scalar(v) for v in (value.ids if isinstance(value, ValueList) else (value_id,)))

    def scalar(self, value_id: int) -> Dim:
        value = self.graph.values[value_id]
        if isinstance(value, Int):
            return value.value
        if value_id in self._rewritten or not isinstance(value, SymInt):
            return self._unknown()
        return self._scalars.get(value_id, ("value", value_id, 0))


def _left_over(dims: Dims, sizes: Dims) -> Dim | None:
    """What -1 among the sizes of a view stands for, if it is a size or a single name."""
    known, asked = (math.prod(d for d in row if isinstance(d, int) and d != -1) for row in (dims, sizes))
    names, taken = (Counter(d for d in row if not isinstance(d, int)) for row in (dims, sizes))
    left = list((names - taken).elements())
    if taken - names or len(left) > 1 or not asked or known % asked:
        return None
    rest = known // asked
    return rest if not left else left[0] if rest == 1 else None


def _expanded(dims: Dims, sizes: Dims) -> Dims:
    own = (1,) * (len(sizes) - len(dims)) + dims
    return tuple(kept if size == -1 else size for size, kept in zip(sizes, own, strict=True))
