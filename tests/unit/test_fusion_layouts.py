"""Transposes that products take over, and what is known of live shapes on the way."""

from __future__ import annotations

import pytest

from tests.support.harness.graphs import GraphBuilder
from webpte.container import MappedFile, Span
from webpte.fusion.dims import SymbolicDims
from webpte.fusion.layouts import fold_transposes
from webpte.graph import Bool, Constant, DType, Graph, IntList, Jump, Origin, String, SymInt
from webpte.graph.names import MATMUL

S, H, D = 7, 3, 8
NOWHERE = Span(MappedFile.from_bytes("nowhere", b"-"), 0, 0)


class Builder(GraphBuilder):
    """x has a dynamic length S and H heads of D."""

    def __init__(self):
        super().__init__()
        self.x = self.tensor(S, H * D, dynamic=True)
        self.length = self.add(SymInt())
        self.call("sym_size.int", (self.x, self.number(0)), self.length)

    def make(self, name, args, *dims):
        out = self.tensor(*dims)
        self.call(name, tuple(args), out)
        return out

    def sizes(self, *dims):
        return self.list(*(self.length if d == S else self.number(d) for d in dims))

    def view(self, source, *dims):
        return self.make("aten.view_copy.default", (source, self.sizes(*dims)), *dims)

    def permute(self, source, *order):
        dims = [self.values[source].dims[axis] for axis in order]
        return self.make("aten.permute_copy.default", (source, self.add(IntList(order))), *dims)

    def heads(self):
        return self.view(self.x, 1, S, H, D)

    def bmm(self, a, b):
        (batch, rows, _), (_, _, columns) = (self.values[v].dims for v in (a, b))
        return self.make("aten.bmm.default", (a, b), batch, rows, columns)

    def weight(self, *dims):
        return self.tensor(*dims, constant=Constant(NOWHERE, DType.FLOAT32, "c"))

    def folded(self, *outputs):
        return fold_transposes(self.graph([self.x], outputs))


@pytest.fixture
def b():
    return Builder()


def names(graph):
    return [call.name.split(".")[1] for call in graph.calls if call.name != "sym_size.int"]


def product(graph):
    """Axes, factors and result of the one product."""
    (call,) = [c for c in graph.calls if c.name == MATMUL]
    return graph.values[call.args[0]].value, call.args[2], call.args[3], call.outs[0]


def test_attention_scores_read_permuted_heads_in_place(b):
    q, k = b.heads(), b.heads()
    left = b.view(b.permute(q, 0, 2, 1, 3), H, S, D)
    right = b.view(b.permute(b.permute(k, 0, 2, 1, 3), 0, 1, 3, 2), H, D, S)
    scores = b.bmm(left, right)
    after = b.folded(scores)
    assert names(after) == ["view_copy", "view_copy", "matmul"]
    assert product(after) == ("bmhk,bnhk->bhmn", q, k, scores)


def test_values_are_read_and_written_where_heads_are(b):
    scores, v = b.view(b.x, H, S, S), b.heads()
    mixed = b.bmm(scores, b.view(b.permute(v, 0, 2, 1, 3), H, S, D))
    out = b.permute(b.view(mixed, 1, H, S, D), 0, 2, 1, 3)
    after = b.folded(out)
    assert names(after) == ["view_copy", "view_copy", "matmul"]
    assert product(after) == ("bhmk,bkhn->bmhn", scores, v, out)


def test_transpose_folds_into_product(b):
    a, k = b.view(b.x, H, S, D), b.view(b.x, H, S, D)
    out = b.bmm(a, b.permute(k, 0, 2, 1))
    assert product(b.folded(out)) == ("bhmk,bhnk->bhmn", a, k, out)


def test_columns_that_would_lie_apart_stay(b):
    a = b.permute(b.view(b.x, H, D, S), 0, 2, 1)  # rows of a are read along K
    out = b.bmm(a, b.view(b.x, H, D, S))
    assert names(b.folded(out)) == ["view_copy", "permute_copy", "view_copy", "bmm"]


def test_transpose_with_other_readers_stays(b):
    q = b.permute(b.heads(), 0, 2, 1, 3)
    out = b.bmm(b.view(q, H, S, D), b.view(b.x, H, D, S))
    assert "permute_copy" in names(b.folded(out, q))


def test_transpose_with_view_not_joining_batch_stays(b):
    q = b.permute(b.heads(), 0, 2, 1, 3)
    out = b.bmm(b.view(q, S, H, D), b.view(b.x, S, D, H))
    assert "permute_copy" in names(b.folded(out))


def test_factors_that_split_the_batch_differently_stay(b):
    a = b.view(b.permute(b.view(b.x, 2, S, 2, 6), 0, 2, 1, 3), 4, S, 6)
    other = b.view(b.permute(b.view(b.x, 1, S, 4, 6), 0, 2, 3, 1), 4, 6, S)
    assert names(b.folded(b.bmm(a, other))).count("permute_copy") == 2


def test_results_that_split_the_batch_differently_stay(b):
    left = b.view(b.permute(b.view(b.x, 2, S, 2, 6), 0, 2, 1, 3), 4, S, 6)
    mixed = b.bmm(left, b.weight(4, 6, D))
    out = b.permute(b.view(mixed, 1, 4, S, D), 0, 2, 1, 3)
    assert names(b.folded(out))[-3:] == ["matmul", "view_copy", "permute_copy"]


def test_finished_products_are_laid_out_too(b):
    q, k = b.heads(), b.weight(H, D, S)
    left = b.view(b.permute(q, 0, 2, 1, 3), H, S, D)
    null, one, none = b.null(), b.number(1), b.list()
    program = b.add(String("f32 aten.exp.default x0\n= v0"))
    plain = b.add(String("bhmk,bhkn->bhmn"))
    out = b.make(MATMUL, (plain, null, left, k, one, one, program, none, none, null), H, S, S)
    turned = b.permute(b.view(out, 1, H, S, S), 0, 2, 1, 3)
    after = b.folded(turned)
    assert product(after) == ("bmhk,bhkn->bhmn", q, k, out)  # what the program reads is in the order of the product
    assert names(after)[-2:] == ["view_copy", "permute_copy"]


def test_methods_with_jumps_are_left_alone(b):
    graph = b.graph([b.x], [b.bmm(b.view(b.x, H, S, D), b.view(b.x, H, D, S))])
    jumping = Graph("f", graph.values, (*graph.steps, Jump(b.x, 0, Origin(9))), graph.inputs, graph.outputs)
    assert fold_transposes(jumping) is jumping


# -- what is known of shapes -------------------------------------------------------------------------------------------


def known(b, value_id):
    return SymbolicDims(b.graph([b.x], [value_id])).of(value_id)


def test_symbolic_dims_follow_permutations(b):
    (length, *_) = known(b, b.x)
    four = b.heads()
    assert known(b, four) == (1, length, H, D)
    assert known(b, b.permute(four, 0, 2, 3, 1)) == (1, H, D, length)
    axes = (b.number(1), b.number(-1))
    assert known(b, b.make("aten.transpose_copy.int", (four, *axes), 1, D, H, S)) == (1, D, H, length)
    rows = b.view(b.x, S, H * D)
    assert known(b, b.make("aten.unsqueeze_copy.default", (rows, b.number(-1)), S, H * D, 1)) == (length, H * D, 1)
    assert known(b, b.make("aten.select_copy.int", (four, b.number(1), b.number(0)), 1, H, D)) == (1, H, D)
    index = b.make("aten.slice_copy.Tensor", (b.weight(1, 50), b.number(1), b.number(0), b.length, b.number(1)), 1, S)
    assert known(b, index) == (1, length)
    gathered = b.make("aten.gather.default", (b.weight(1, 50), b.number(1), index, b.add(Bool(False))), 1, S)
    assert known(b, gathered) == (1, length)
    assert known(b, b.bmm(b.view(b.x, H, S, D), b.view(b.x, H, D, S))) == (H, length, length)


def test_symbolic_dims_slice_that_may_end_early_is_unknown(b):
    short = (b.weight(1, S - 1), b.number(1), b.number(0), b.length, b.number(1))
    sliced = b.make("aten.slice_copy.Tensor", short, 1, S - 1)
    assert known(b, sliced)[1] != known(b, b.x)[0]


def test_symbolic_dims_of_view(b):
    (length, *_), rows = known(b, b.x), b.view(b.x, S, H * D)
    for sizes, expected in [
        ((b.number(-1), b.number(H * D)), (length, H * D)),
        ((b.number(1), b.length, b.number(-1), b.number(D)), (1, length, H, D)),
        ((b.length, b.number(-1)), (length, H * D)),
    ]:
        dims = tuple(S if size == length else size for size in expected)
        assert known(b, b.make("aten.view_copy.default", (rows, b.list(*sizes)), *dims)) == expected
    foreign = b.make("aten.view_copy.default", (b.weight(4, 6), b.list(b.length, b.number(-1))), S, 3)
    assert known(b, foreign)[0] == length and not isinstance(known(b, foreign)[1], int)
    mixed = b.make("aten.view_copy.default", (rows, b.list(b.number(2), b.number(-1))), 2, S * H * D // 2)
    assert known(b, mixed)[0] == 2 and known(b, mixed)[1] != length


def convolution(b, x, kernel, stride, padding):
    lists = [b.add(IntList((n, n))) for n in (stride, padding, 1, 0)]
    weight = b.weight(4, 4, kernel, kernel)
    args = (x, weight, b.null(), *lists[:3], b.add(Bool(False)), lists[3], b.number(1))
    return b.make("aten.convolution.default", args, 1, 4, S, 5)


def test_symbolic_dims_convolutions_of_equal_reach_are_equal(b):
    image = b.view(b.x, 1, 4, S, 6)
    same, wide, narrow = (convolution(b, image, *args) for args in ((3, 1, 1), (3, 2, 1), (1, 2, 0)))
    other = convolution(b, image, 3, 2, 0)
    dims = SymbolicDims(b.graph([b.x], [other]))
    assert dims.same(same, image)
    assert dims.same(wide, narrow) and not dims.same(wide, other)
    assert dims.of(wide)[3] == 3


def test_symbolic_dims_of_static_method_are_bounds(b):
    graph = GraphBuilder()
    x = graph.tensor(5, 6)
    y = graph.tensor(2, 3)
    graph.call("nobody.knows.this", (x,), y)
    assert SymbolicDims(graph.graph([x], [y])).of(y) == (2, 3)
