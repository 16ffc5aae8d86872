"""Which elementwise work products take over, and what keeps it where it is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from webpte.container import MappedFile, Span
from webpte.fusion.elementwise import join_elementwise
from webpte.fusion.epilogues import CONVOLUTION, LINEAR, add_epilogues
from webpte.graph import Bool, Constant, Double, DType, Graph, Int, IntList, Jump, Null, Origin, SymInt
from webpte.graph.names import ELEMENTWISE, MATMUL

S, K, N = 7, 12, 20
NOWHERE = Span(MappedFile.from_bytes("nowhere", b"-"), 0, 0)


class Builder(GraphBuilder):
    """Rows of a dynamic length S, and products of them."""

    def __init__(self):
        super().__init__()
        self.x = self.tensor(S, K, dynamic=True)
        self.inputs = [self.x]
        self.length = self.add(SymInt())
        self.call("sym_size.int", (self.x, self.number(0)), self.length)

    def input(self, *dims, **options):
        self.inputs.append(self.tensor(*dims, **options))
        return self.inputs[-1]

    def weight(self, *dims):
        return self.tensor(*dims, mutable=False, constant=Constant(NOWHERE, DType.FLOAT32, "w"))

    def linear(self, source=None):
        out = self.tensor(S, N)
        self.call("aten.linear.default", (self.x if source is None else source, self.weight(N, K), self.null()), out)
        return out

    def product(self, name, args, *dims):
        out = self.tensor(*dims)
        self.call(name, args, out)
        return out

    def view(self, source, *dims):
        """S among the dims is the live length."""
        sizes = self.list(*(self.length if d == S else self.number(d) for d in dims))
        return self.product("aten.view_copy.default", (source, sizes), *dims)

    def plus(self, a, b, *dims):
        return self.product("aten.add.Tensor", (a, b, self.number(1)), *(dims or (S, N)))

    def relu(self, source, *dims):
        return self.unary(source, *(dims or (S, N)))

    def finish(self, *outputs):
        return add_epilogues(join_elementwise(self.graph(self.inputs, outputs)))


@pytest.fixture
def b():
    return Builder()


def names(graph):
    return [call.name for call in graph.calls if call.name != "sym_size.int"]


def described(graph):
    """Program, further tensors, numbers of the one finished product, and whether it takes another's shape."""
    (call,) = [c for c in graph.calls if c.name in (LINEAR, MATMUL, CONVOLUTION)]
    program, tensors, numbers, like = (graph.values[a] for a in call.args[-4:])
    return program.value, tensors.ids, [graph.values[n] for n in numbers.ids], not isinstance(like, Null)


def test_epilogue_activation_is_fused(b):
    out = b.relu(b.linear())
    after = b.finish(out)
    assert names(after) == [LINEAR] and after.calls[-1].outs == (out,)
    assert described(after) == ("f32 aten.relu.default x0\n= v0", (), [], False)


def test_epilogue_residual_and_activation_are_fused(b):
    residual = b.tensor(S, N)
    b.call("aten.linear.default", (b.x, b.weight(N, K), b.null()), residual)
    second = b.tensor(3)  # something that keeps the first product in use
    b.call("aten.sum.dim_IntList", (residual, b.list(b.number(0)), b.add(Bool(False)), b.null()), second)
    after = b.finish(b.relu(b.plus(b.linear(), residual)), second)
    program, tensors, _, _ = described(after)
    assert program == "f32 aten.add.Tensor x0 x1 1\nf32 aten.relu.default v0\n= v1"
    assert tensors == (residual,)


def test_epilogue_of_two_products_later_one_takes_it(b):
    first, second = b.linear(), b.linear()
    after = b.finish(b.product("aten.mul.Tensor", (first, second), S, N))
    assert names(after) == ["aten.linear.default", LINEAR]
    assert described(after)[:2] == ("f32 aten.mul.Tensor x1 x0\n= v0", (first,))


def test_epilogue_broadcast_row_is_fused(b):
    row = b.weight(1, N)
    assert described(b.finish(b.plus(b.linear(), row)))[1] == (row,)


def test_views_come_after_the_work(b):
    turned = b.view(b.linear(), 1, S, N)
    out = b.relu(b.view(turned, S, N, 1), S, N, 1)
    after = b.finish(out)
    assert names(after) == [LINEAR, "aten.view_copy.default", "aten.view_copy.default"]
    product, first, second = after.calls[-3:]
    assert (first.args[0], second.args[0], second.outs) == (product.outs[0], first.outs[0], (out,))


def test_views_are_dropped_where_another_operand_has_the_shape(b):
    other = b.view(b.relu(b.linear()), 1, S, N)
    out = b.plus(b.view(b.linear(), 1, S, N), other, 1, S, N)
    after = b.finish(out)
    assert names(after) == [LINEAR, "aten.view_copy.default", LINEAR]
    *_, like = after.calls[-1].args
    assert like == other and after.calls[-1].outs == (out,)


def test_batches_with_a_mask(b):
    scores = b.product("aten.bmm.default", (b.view(b.x, 3, S, 4), b.view(b.x, 3, 4, S)), 3, S, S)
    mask = b.view(b.input(S, S, dynamic=True), 1, 1, S, S)
    masked = b.plus(b.view(scores, 1, 3, S, S), mask, 1, 3, S, S)
    after = b.finish(masked)
    assert described(after)[:2] == ("f32 aten.add.Tensor x0 x1 1\n= v0", (mask,))
    assert names(after)[-2:] == [MATMUL, "aten.view_copy.default"]


@pytest.mark.parametrize("clamped", [False, True])
def test_convolutions(b, clamped):
    image, weight = b.input(1, 6, S, 9, dynamic=True), b.weight(5, 6, 3, 3)
    ones = b.add(IntList((1, 1)))
    args = (image, weight, b.null(), ones, ones, ones, b.add(Bool(False)), b.add(IntList((0, 0))), b.number(1))
    name = "et_vk.conv_with_clamp.default" if clamped else "aten.convolution.default"
    value = b.product(name, (*args, b.number(0), b.null()) if clamped else args, 1, 5, S, 9)
    after = b.finish(b.plus(value, b.weight(5, 1, 1), 1, 5, S, 9))
    (call,) = [c for c in after.calls if c.name == CONVOLUTION]
    assert call.args[:9] == args and len(call.args) == 13
    program, *_ = described(after)
    added = "f32 aten.add.Tensor {} x1 1\n= v{}"
    clamp = "f32 aten.clamp.default x0 n0 -\n"
    assert program == (clamp + added.format("v0", 1) if clamped else added.format("x0", 0))


def test_images_that_repeat_along_a_line_are_not_read(b):
    image, ones = b.input(1, 6, S, 9), b.add(IntList((1, 1)))
    args = (image, b.weight(5, 6, 3, 3), b.null(), ones, ones, ones, b.add(Bool(False)), ones, b.number(1))
    value = b.product("aten.convolution.default", args, 1, 5, S, 9)
    assert CONVOLUTION not in names(b.finish(b.plus(value, b.weight(9), 1, 5, S, 9)))


def test_products_with_factors_keep_them(b):
    two, half = b.add(Int(2)), b.add(Double(0.5))
    row, matrix = b.weight(N), b.weight(K, N)
    after = b.finish(b.relu(b.product("aten.addmm.default", (row, b.x, matrix, two, half), S, N)))
    assert after.calls[-1].args[1:6] == (row, b.x, matrix, two, half)


def test_epilogue_returned_product_is_not_fused(b):
    linear = b.linear()
    assert LINEAR not in names(b.finish(linear, b.relu(linear)))


def test_epilogue_product_with_other_readers_is_not_fused(b):
    linear = b.linear()
    total = b.product("aten._softmax.default", (linear, b.number(1), b.add(Bool(False))), S, N)
    assert LINEAR not in names(b.finish(b.relu(linear), total))


def test_epilogue_equal_bounds_do_not_prove_equal_shapes(b):
    other = b.input(S, N, dynamic=True)  # may have another length than x
    assert LINEAR not in names(b.finish(b.plus(b.linear(), other)))


def test_rows_that_repeat_within_a_batch_are_not_read(b):
    x = b.input(2, S, K)
    linear = b.product("aten.linear.default", (x, b.weight(N, K), b.null()), 2, S, N)
    assert LINEAR not in names(b.finish(b.plus(linear, b.weight(S, N), 2, S, N)))


def test_epilogue_broadcast_of_product_is_not_fused(b):
    """The product has one row where the sum has many."""
    row = b.product("aten.linear.default", (b.weight(1, K), b.weight(N, K), b.null()), 1, N)
    assert LINEAR not in names(b.finish(b.plus(row, b.weight(5, N), 5, N)))


def test_epilogue_too_many_operands_are_not_fused(b):
    y = b.linear()
    for _ in range(4):
        y = b.plus(y, b.weight(S, N))
    x = b.input(S, K)  # of a fixed length, so that shapes are not obstacle
    z = b.product("aten.linear.default", (x, b.weight(N, K), b.null()), S, N)
    for _ in range(4):
        z = b.plus(z, b.weight(S, N))
    assert LINEAR not in names(b.finish(y, z))


def test_operands_that_change_keep_their_readers_where_they_are(b):
    cache = b.tensor(1, N, mutable=True)
    assert LINEAR not in names(b.finish(b.plus(b.linear(), cache)))


def test_factors_that_change_keep_the_product_where_it_is(b):
    cache = b.tensor(S, K, mutable=True)
    product = b.linear(cache)
    b.call("aten::copy_", (cache, b.x, b.add(Bool(False))), cache, kernel=True)
    assert names(b.finish(b.relu(product))) == ["aten.linear.default", "aten::copy_", "aten.relu.default"]


def test_methods_with_jumps_are_left_alone(b):
    graph = b.graph(b.inputs, [b.relu(b.linear())])
    jumping = Graph("f", graph.values, (*graph.steps, Jump(b.x, 0, Origin(9))), graph.inputs, graph.outputs)
    assert add_epilogues(jumping) is jumping


@pytest.mark.parametrize("packed", [False, True])
def test_constants_of_one_element_become_numbers(b, packed):
    with MappedFile.from_bytes("scale", np.float32(0.25).tobytes()) as file:
        scale = b.tensor(constant=Constant(Span(file, 0, 4), DType.FLOAT32, "scale"))
        if packed:
            scale = b.product("et_vk.prepack.default", (scale,))
        program, tensors, numbers, _ = described(b.finish(b.product("aten.mul.Tensor", (b.linear(), scale), S, N)))
    assert (program, tensors, numbers) == ("f32 aten.mul.Tensor x0 n0\n= v0", (), [Double(0.25)])


def test_epilogue_scalar_adding_dim_stays_tensor(b):
    with MappedFile.from_bytes("scale", np.float32(0.25).tobytes()) as file:
        scale = b.tensor(1, 1, 1, constant=Constant(Span(file, 0, 4), DType.FLOAT32, "scale"))
        wider = b.product("aten.mul.Tensor", (b.x, scale), 1, S, K)
        after = join_elementwise(b.graph(b.inputs, [b.relu(wider, 1, S, K)]))
    (call,) = [c for c in after.calls if c.name == ELEMENTWISE]
    assert b.x in after.value_list(call.args[1]) and scale in after.value_list(call.args[1])


def test_filled_scalars_become_numbers(b):
    low = b.product("aten.scalar_tensor.default", (b.add(Double(-1.5)), *[b.null()] * 4))
    mask = b.tensor(S, N, dtype=DType.BOOL, constant=Constant(NOWHERE, DType.BOOL, "m"))
    x = b.input(S, K)
    linear = b.product("aten.linear.default", (x, b.weight(N, K), b.null()), S, N)
    b.values[b.length] = Int(S)  # and the whole method is static
    b.values[b.x] = b.values[x]
    chosen = b.product("aten.where.self", (mask, low, linear), S, N)
    program, tensors, numbers, _ = described(b.finish(chosen))
    assert program == "f32 aten.where.self x1 n0 x0\n= v0"
    assert (tensors, numbers) == ((mask,), [Double(-1.5)])
