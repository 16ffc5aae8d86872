"""Tensors larger than a binding: the text of kernels, and what is refused."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.cases import planned_cases
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.graph import Bool
from webpte.wgsl import Caps, render
from webpte.wgsl.arrays import declare, split

TEXT = """\
@group(1) @binding(0) var<storage, read> x: array<f32>;
@group(1) @binding(1) var<storage, read> indices: array<i32>;
@group(1) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
fn scaled(x: f32) -> f32 {
    return x * p.x[1];
}
@compute @workgroup_size(wg)
fn main() {
    y[i] = vec4<f32>(scaled(x[indices[i]]), x[2], 0.0, 1.0);
    y[i + 1u] += vec4<f32>(y[0].w);
    if (x[i] == 1.0) {
        y[i] = vec4<f32>();
    }
}
"""


NAMED = "var<storage> x: array<f32>;\n// x and y\nvar<storage> y: array<u32>;\n"


def test_declare_dispatch_decides_number_and_access():
    assert declare(NAMED, {"y": "read", "x": "read_write"}, "k") == (
        "@group(1) @binding(1) var<storage, read_write> x: array<f32>;\n"
        "// x and y\n"
        "@group(1) @binding(0) var<storage, read> y: array<u32>;\n"
    )


@pytest.mark.parametrize(
    "arrays", [{"x": "read"}, {"x": "read", "z": "read_write"}, {"x": "read", "y": "read_write", "z": "read_write"}]
)
def test_declare_other_names_than_the_dispatch_is_refused(arrays):
    with raises(webpte.GraphError, "kernel k", "arrays x, y,", f"binds {', '.join(arrays)}", code="array_names"):
        declare(NAMED, arrays, "k")


@pytest.mark.parametrize("head", ["@group(1) @binding(0) var<storage, read> ", "var<storage, read_write> "])
def test_declare_array_with_a_number_or_access_is_refused(head):
    with raises(webpte.GraphError, "kernel k", f"{head}x: array<f32>", code="numbered_array"):
        declare(NAMED.replace("var<storage> ", head, 1), {"x": "read", "y": "read_write"}, "k")


def test_split_each_access_uses_function():
    text = split(TEXT, (2, 1, 3), 1024, "k")
    bindings = [line for line in text.splitlines() if line.startswith("@group")]
    assert bindings == [
        "@group(1) @binding(0) var<storage, read> x_part0: array<f32>;",
        "@group(1) @binding(1) var<storage, read> x_part1: array<f32>;",
        "@group(1) @binding(2) var<storage, read> indices: array<i32>;",
        "@group(1) @binding(3) var<storage, read_write> y_part0: array<vec4<f32>>;",
        "@group(1) @binding(4) var<storage, read_write> y_part1: array<vec4<f32>>;",
        "@group(1) @binding(5) var<storage, read_write> y_part2: array<vec4<f32>>;",
    ]
    for line in (
        "    return x * p.x[1];",  # of a variable, and of the uniforms
        "    y_into_parts(u32(i), vec4<f32>(scaled(x_from_parts(u32(indices[i]))), x_from_parts(u32(2)), 0.0, 1.0));",
        "    y_into_parts(u32(i + 1u), y_from_parts(u32(i + 1u)) + (vec4<f32>(y_from_parts(u32(0)).w)));",
        "    if (x_from_parts(u32(i)) == 1.0) {",
        "    return x_part1[i - 256u];",
        "    if (i < 128u) {",  # the second part of y ends after 2 * 1024 / 16 elements
        "        y_part1[i - 64u] = v;",
    ):
        assert line in text.splitlines(), line
    assert "x_into_parts" not in text


def test_split_unsupported_text_is_refused():
    for text, code, expected in (
        (TEXT.replace("return x * p.x[1];", "return x[0];"), "shadowed_array", ["kernel k: x "]),
        (TEXT.replace("y[i] = vec4<f32>();", "y[i].x = 1.0;"), "member_assignment", ["of y,"]),
        (TEXT.replace("x: array<f32>", "x: array<Pair>"), "element_type", ["Pair"]),
    ):
        with raises(webpte.GraphError, "kernel k", *expected, code=code):
            split(text, (2, 1, 2), 1024, "k")


@pytest.mark.slow
def test_split_supports_each_kernel():
    kernels = {kernel for _, kernels in planned_cases() for kernel in kernels}
    for kernel in kernels:
        arrays = kernel.reads + kernel.writes
        text = split(render(kernel), (2,) * arrays, 1024, kernel.label)
        assert text.count("_part1: array<") == arrays, kernel.label


def two_in_a_row(elements: int) -> tuple[GraphBuilder, int, int]:
    b = GraphBuilder()
    x, y, z = b.tensor(elements), b.tensor(elements), b.tensor(elements)
    b.call("aten.relu.default", (x,), y)
    b.call("aten.tanh.default", (y,), z)
    return b, x, z


def test_split_large_tensor_bound_in_parts():
    b, x, z = two_in_a_row(1000)
    plan = b.plan([x], [z], Caps({"max-storage-buffer-binding-size": 2100}))
    assert {kernel.parts for kernel in plan.kernels} == {(2, 2)}
    assert {kernel.part_bytes for kernel in plan.kernels} == {2048}
    assert sorted({(b.offset, b.nbytes) for b in plan.bindings}) == [(0, 2048), (2048, 1952)]
    assert plan.limits["max-storage-buffer-binding-size"] == 2048
    assert plan.limits["max-storage-buffers-per-shader-stage"] == 4


def test_split_small_tensor_in_large_buffer_bound_alone():
    b = GraphBuilder()
    x, y, small, large, out = b.tensor(8, 1), b.tensor(8, 100), b.tensor(8, 1), b.tensor(8, 100), b.tensor(8, 100)
    b.call("aten.relu.default", (x,), small)
    b.call("aten.add.Tensor", (small, y, b.number(1)), large)
    b.call("aten.tanh.default", (large,), out)
    other = b.tensor(8, 1)
    b.call("aten.amax.default", (out, b.list(b.number(1)), b.add(Bool(True))), other)
    last = b.tensor(8, 1)
    b.call("aten.relu.default", (other,), last)
    plan = b.plan([x, y], [last], Caps({"max-storage-buffer-binding-size": 2048}))
    shared = [buffer for buffer in plan.buffers if {8 * 4, 8 * 400} <= {plan.stored_bytes(t) for t in buffer.tensors}]
    assert shared, "no small tensor shares a buffer with a large one"
    assert all(plan.bound_bytes(binding) <= 2048 for binding in plan.bindings)


def test_too_many_parts_are_refused_by_name():
    b, x, z = two_in_a_row(5000)
    caps = Caps({"max-storage-buffer-binding-size": 2048}, adapter="a small device")
    with raises(
        webpte.DeviceError,
        "a small device",
        "20 buffers",
        "allows 8",
        "f32[5000]",
        "20000 bytes",
        "max=N",
        code="over_limits",
    ):
        b.plan([x], [z], caps)
