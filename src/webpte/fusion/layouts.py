"""Fold transposes into batched products, which can read and write heads in the layout of linear layers."""

from __future__ import annotations

from typing import NamedTuple

from ..graph import PLAIN, Call, Double, Graph, Int, IntList, Null, String, TensorSpec, Value, ValueList
from ..graph.names import MATMUL
from .dims import SymbolicDims
from .rewriter import Rewriter, roles

PATTERN = {
    "product": ("aten.bmm.default",),
    "permutation": ("aten.permute_copy.default", "aten.permute.default", "aten::permute_copy.out"),
}
ROLES = roles(PATTERN)


class Source(NamedTuple):
    """A tensor with the elements of an operand, its axes as letters, and the steps between the two."""

    value: int
    letters: str
    steps: tuple[int, ...] = ()


def fold_transposes(graph: Graph) -> Graph:
    """Let products read operands and write results in the layouts around them."""
    rewriter = Rewriter(graph)
    if not rewriter.is_straight_line:
        return graph
    dims = SymbolicDims(graph)
    for index in range(len(graph.steps)):
        call = rewriter.call(index)
        if call is None or not (ROLES.get(call.name) == "product" or call.name == MATMUL):
            continue
        product = _Product(rewriter, dims, index, call)
        if product.is_batched:
            product.fold()
    return rewriter.result()


class _Product:
    """A product with its neighborhood in the graph."""

    def __init__(self, rewriter: Rewriter, dims: SymbolicDims, index: int, call: Call) -> None:
        self.rewriter = rewriter
        self.dims = dims
        self.index = index
        self.call = call
        self.arguments = rewriter.arguments(call)
        self.mat1, self.mat2 = (self.arguments[name] for name in ("mat1" if call.name == MATMUL else "self", "mat2"))

    @property
    def is_batched(self) -> bool:
        """Return whether both factors have one batch dim and the default layout."""
        axes = self.rewriter.values[self.arguments["axes"]] if self.call.name == MATMUL else String(PLAIN)
        specs = [self.rewriter.values[value_id] for value_id in (self.mat1, self.mat2)]
        return axes == String(PLAIN) and all(isinstance(s, TensorSpec) and len(s.dims) == 3 for s in specs)

    def fold(self) -> None:
        a_letters, b_letters, y_letters = PLAIN.replace("->", ",").split(",")
        a = self._source(self.mat1, a_letters, "k")
        b = self._source(self.mat2, b_letters, "kn")
        y = Source(self.call.outs[0], y_letters)
        heads = next((self._heads(s) for s in (a, b) if len(self._dims(s.value)) == 4), None)
        if heads is not None and self._heads(a, heads) == self._heads(b, heads) == heads:
            y = self._target(y_letters, heads) if self._has_no_program() else y
        elif heads is not None:
            return  # the batch is split in two ways
        if a.steps or b.steps or y.steps:
            steps = {self.index, *a.steps, *b.steps, *y.steps}
            axes = f"{a.letters},{b.letters}->{y.letters}"
            self.rewriter.replace(steps, self._call(axes, a.value, b.value, y.value), self.index)

    def _dims(self, value_id: int) -> tuple[object, ...]:
        return self.dims.of(value_id)

    def _heads(self, source: Source, default: tuple[object, ...] = ()) -> tuple[object, ...]:
        """Return how the batch is split into (b, h), or the default if it is not."""
        dims = self._dims(source.value)
        if len(dims) != 4:
            return default
        return tuple(dims[source.letters.index(letter)] for letter in "bh")

    def _has_no_program(self) -> bool:
        return self.call.name != MATMUL or self.rewriter.values[self.arguments["program"]] == Null()

    def _source(self, value_id: int, letters: str, last: str) -> Source:
        """Return the earliest tensor to read an operand from, whose last axis is one of `last`."""
        best = source = Source(value_id, letters)
        user = self.index
        while (producer := self.rewriter.producer(source.value)) is not None and self._is_only_reader(
            source.value, user
        ):
            user, call = producer
            previous = self._before(source, user, call)
            if previous is None or not self.rewriter.is_immutable(previous.value):
                break
            source = previous
            if source.letters[-1] in last:
                best = source
        return best

    def _before(self, source: Source, index: int, call: Call) -> Source | None:
        """Return the operand before a view or a permutation."""
        steps = (*source.steps, index)
        viewed = self.rewriter.source(call)
        if viewed is not None and self._merges(viewed, source.value):
            return Source(viewed, source.letters, steps)
        order = self._order(call)
        if order is None:
            return None
        spare = len(source.letters) - len(order)  # with three dims, the first is of two letters
        if spare and order[0] != 0:
            return None
        full = [*range(spare), *(axis + spare for axis in order)] if spare else order
        letters = "".join(source.letters[full.index(axis)] for axis in range(len(full)))
        return Source(self.rewriter.arguments(call)["self"], letters, steps)

    def _target(self, letters: str, heads: tuple[object, ...]) -> Source:
        """Return where to write the result: after a view that splits the batch and a permutation, if those follow."""
        out = self.call.outs[0]
        plain = Source(out, letters)
        view = self.rewriter.only_user(out)
        if view is None or self.rewriter.source(view[1]) != out or not self._merges(view[1].outs[0], out):
            return plain
        split = view[1].outs[0]
        permuting = self.rewriter.only_user(split)
        order = self._order(permuting[1]) if permuting is not None else None
        if permuting is None or order is None or self._dims(split)[:2] != heads:
            return plain
        if not self.rewriter.is_immutable(permuting[1].outs[0]):  # the product would write it earlier
            return plain
        permuted = "".join(letters[axis] for axis in order)
        return Source(permuting[1].outs[0], permuted, (view[0], permuting[0])) if permuted[-1] == "n" else plain

    def _order(self, call: Call) -> list[int] | None:
        if ROLES.get(call.name) != "permutation":
            return None
        dims = self.rewriter.values[self.rewriter.arguments(call)["dims"]]
        ids = dims.ids if isinstance(dims, ValueList) else ()
        axes = [v.value for i in ids if isinstance(v := self.rewriter.values[i], Int)]
        order = list(dims.values) if isinstance(dims, IntList) else axes
        order = [axis % len(order) for axis in order]
        return order if len(order) in (3, 4) and sorted(order) == list(range(len(order))) else None

    def _merges(self, four: int, three: int) -> bool:
        """Return whether a view only joins the first two of four dims: the others are equal."""
        a, b = self._dims(four), self._dims(three)
        return len(a) == 4 and len(b) == 3 and a[2:] == b[1:]

    def _is_only_reader(self, value_id: int, user: int) -> bool:
        return self.rewriter.users[value_id] == [user] and value_id not in self.rewriter.outputs

    def _call(self, axes: str, a: int, b: int, out: int) -> Call:
        arguments: dict[str, int | Value | None] = dict(self.arguments)
        if self.call.name != MATMUL:
            del arguments["self"]
            arguments |= {"beta": Double(1.0), "alpha": Double(1.0), "tensors": ValueList(()), "numbers": ValueList(())}
        arguments |= {"axes": String(axes), "mat1": a, "mat2": b}
        return self.rewriter.make(MATMUL, (out,), self.call.origin, **arguments)
