"""The memory trace: hand-computed figures, planted faults in a real kernel, and unchanged results."""

from __future__ import annotations

import numpy as np
import pytest

from bench.trace import RewriteError, by_site, by_variable, rewrite, trace
from bench.trace.run import TraceError, run_untraced
from tests.support.harness.cases import planned_cases
from webpte.ops.matmul.product import ProductParams
from webpte.wgsl import render

HEAD = """
@group(0) @binding(0) var<storage, read> x: array<{type}>;
@group(0) @binding(1) var<storage, read_write> y: array<{type}>;
{shared}
@compute @workgroup_size({size})
fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) w: vec3<u32>) {{
    {body}
}}
"""


def run(body, type="f32", shared="", size=32, groups=1, count=4096, **options):
    """Trace a kernel with the arrays x and y, and compare its results with those of the kernel as it is."""
    text = HEAD.format(type=type, shared=shared, size=size, body=body)
    if type.startswith("f16"):
        text = "enable f16;" + text
    words = np.random.default_rng(0).integers(0, 1 << 13, count, dtype=np.uint32)  # also small floats
    buffers = {"x": words, "y": np.zeros_like(words)}
    traced = trace(text, buffers, groups, **options)
    np.testing.assert_array_equal(traced.outputs["y"], run_untraced(text, buffers, groups)["y"])
    return traced


def figures(traced, variable="x", direction="load"):
    (one,) = [f for f in by_variable(traced) if (f.variable, f.direction) == (variable, direction)]
    return one


# Body, subgroup of 32: share of segments, segments relative to the minimum; subgroup of 64: share.
SEGMENTS = {
    "contiguous": ("y[i] = x[i];", "f32", 1, 1, 1),
    "stride 2": ("y[i] = x[i * 2u];", "f32", 1 / 2, 2, 1 / 2),
    "stride 16": ("y[i] = x[i * 16u];", "f32", 1 / 16, 16, 1 / 16),
    "vec4": ("y[i] = x[i];", "vec4<f32>", 1, 1, 1),
    "vec4, every second": ("y[i] = x[i * 2u];", "vec4<f32>", 1 / 2, 2, 1 / 2),
    "component of vec4": ("y[i].x = x[i].z;", "vec4<f32>", 1 / 4, 4, 1 / 4),
    "swizzle loads the vector": ("let v = x[i].zy; y[i] = vec4<f32>(v, v);", "vec4<f32>", 1, 1, 1),
    "dynamic component": ("y[i] = vec4<u32>(x[0][i & 3u]);", "vec4<u32>", 1 / 4, 1, 1 / 4),
    "rows of a matrix": ("for (var k = 0u; k < 16u; k++) { y[i] += x[k * 64u + i]; }", "u32", 1, 1, 1),
    "columns of a matrix": ("for (var k = 0u; k < 16u; k++) { y[i] += x[i * 16u + k]; }", "u32", 1 / 16, 16, 1 / 16),
    "broadcast": ("y[i] = x[5];", "f32", 1 / 16, 1, 1 / 16),
    "misaligned by one": ("y[i] = x[i + 1u];", "f32", 128 / 192, 1.5, 256 / 320),
    "halves": ("y[i] = x[i];", "f16", 1, 1, 1),
    "halves, stride 2": ("y[i] = x[i * 2u];", "f16", 1 / 2, 2, 1 / 2),
    "packed halves": ("y[i] = pack2x16float(unpack2x16float(x[i / 2u]));", "u32", 1, 1, 1),
    "signed index": ("let at = i32(i) * 2; y[at] = x[at];", "i32", 1 / 2, 2, 1 / 2),
    "index from memory": ("y[i] = x[x[i] & 0u];", "u32", (128 + 4) / (128 + 64), 1, (256 + 4) / (256 + 64)),
}


@pytest.mark.parametrize("case", SEGMENTS)
def test_segments_by_pattern_are_hand_computed(case, device):
    body, type, share, segments, wide_share = SEGMENTS[case]
    if type == "f16" and "shader-f16" not in device.caps.features:
        pytest.skip("the adapter has no f16")
    loads = figures(run(body, type, size=64))
    assert loads.by_subgroup[32].share == pytest.approx(share)
    assert loads.by_subgroup[32].segments == pytest.approx(segments)
    assert loads.by_subgroup[64].share == pytest.approx(wide_share)


# Index of a workgroup array, its elements: degree, sum of the degrees relative to the minimum.
BANKS = {
    "stride 1": ("i", "f32", 1, 1),
    "stride 2": ("i * 2u", "f32", 2, 2),
    "stride 3": ("i * 3u", "f32", 1, 1),
    "stride 32": ("i * 32u", "f32", 32, 32),
    "stride 33": ("i * 33u", "f32", 1, 1),
    "broadcast": ("7", "f32", 1, 1),
    "two addresses of one bank": ("(i & 1u) * 32u", "f32", 2, 2),
    "vec4 contiguous": ("i", "vec4<f32>", 4, 1),
    "vec4 stride 2": ("i * 2u", "vec4<f32>", 8, 2),
    "transposed tile": ("(i % 8u) * 32u + i / 8u", "f32", 8, 8),
}


@pytest.mark.parametrize("case", BANKS)
def test_bank_conflicts_by_pattern_are_hand_computed(case):
    index, type, degree, conflicts = BANKS[case]
    body = f"for (var k = i; k < 1056u; k += 32u) {{ t[k] = x[k]; }} workgroupBarrier(); y[i] = t[{index}];"
    traced = run(body, type, f"var<workgroup> t: array<{type}, 1056>;", count=1056 * 4)
    loads = figures(traced, "t").by_subgroup[32]
    assert (loads.degree, loads.conflicts) == (degree, pytest.approx(conflicts))
    assert figures(traced, "t", "store").by_subgroup[32].conflicts == 1


def test_rereads_of_a_loop_count_every_load():
    loads = figures(run("for (var k = 0u; k < 7u; k++) { y[i] += x[i]; }"))
    assert (loads.accesses, loads.requested, loads.unique) == (7 * 32, 7 * 128, 128)
    assert (loads.rereads, loads.cached, loads.across) == (7, 7, 1)


def test_rereads_of_a_broadcast_are_merged_in_a_subgroup():
    loads = figures(run("y[i] = x[3];", size=64, groups=4))
    assert (loads.requested, loads.unique) == (4 * 64 * 4, 4)
    assert (loads.rereads, loads.cached, loads.across) == (64, 2, 4)


def test_rereads_across_workgroups_are_separate():
    loads = figures(run("y[w.x * 32u + i] = x[i + w.x * 16u];", groups=3))
    assert (loads.requested, loads.unique) == (3 * 128, 64 * 4)
    assert (loads.rereads, loads.cached, loads.across) == (1, 1, 1.5)


def test_guarded_loads_have_half_of_the_invocations_active():
    traced = run("if (i % 2u == 0u) { y[i] = x[i]; }")
    loads = figures(traced)
    assert (loads.accesses, loads.by_subgroup[32].active, loads.by_subgroup[32].share) == (16, 0.5, 0.5)
    assert figures(traced, "y", "store").requested == 64


def test_short_circuit_skips_the_load():
    assert figures(run("if (i < 4u && x[i] >= 0.0) { y[i] = 1.0; }")).accesses == 4


def test_stores_and_compound_assignments_have_both_directions():
    traced = run("y[i * 4u] = x[i]; y[i] += x[i]; y[i]++; y[i] <<= 1u; y[i] >>= 1u;", "u32")
    assert figures(traced, "y", "store").accesses == 5 * 32
    assert figures(traced, "y", "load").accesses == 4 * 32
    first = by_site(traced)[0]
    assert (first.site, first.direction, first.by_subgroup[32].share) == ("7: y[i * 4u]", "store", 0.25)


def test_atomics_are_loads_and_stores():
    # lavapipe does not set atomics of a workgroup to zero, so the kernel does.
    shared = "var<workgroup> bins: array<atomic<u32>, 4>; var<workgroup> all: atomic<u32>;"
    traced = run(
        "if (i < 4u) { atomicStore(&bins[i], 0u); } workgroupBarrier(); atomicAdd(&bins[i & 3u], x[i]);"
        "atomicMax(&all, 1u); workgroupBarrier(); y[i] = atomicLoad(&bins[i & 3u]);",
        "u32",
        shared,
    )
    bins = figures(traced, "bins", "store")
    assert (bins.accesses, bins.unique, bins.by_subgroup[32].degree) == (4 + 32, 16, 1)
    assert figures(traced, "bins").accesses == 64
    assert figures(traced, "all").unique == 4


def test_nested_arrays_and_single_variables_have_addresses():
    shared = "var<workgroup> t: array<array<vec4<f32>, 3>, 32>; var<workgroup> one: vec4<f32>;"
    body = """t[i][2u].y = x[i]; if (i == 0u) { one.z = 2.0; one[1] = 3.0; } workgroupBarrier();
    y[i] = t[i][x_index(i)].y + one.z;"""
    traced = run(body, shared=shared + "fn x_index(x: u32) -> u32 { let y = x; return y % 1u + 2u; }")
    sites = {s.text: i for i, s in enumerate(traced.sites)}
    addresses = {text: traced.records[traced.records["site"] == i]["address"] for text, i in sites.items()}
    assert sorted(addresses["t[i][2u].y"]) == [i * 48 + 36 for i in range(32)]
    assert sorted(addresses["t[i][x_index(i)].y"]) == [i * 48 + 36 for i in range(32)]
    assert list(addresses["one[1]"]) == [4] and set(addresses["one.z"]) == {8}


def test_local_names_hide_variables():
    traced = run(
        "let x = x[i]; { let y = array<f32, 2>(x, x); _ = y[i & 1u]; }"
        "for (var y = 0u; y < 1u; y++) { for (var w = y; w < 1u; w++) { let w = y; } } y[i] = x;"
    )
    assert [site.text for site in traced.sites] == ["x[i]", "y[i]"]


def test_traced_workgroups_limit_the_records_only():
    traced = run("y[w.x * 32u + i] = x[w.x * 32u + i];", groups=8, traced_workgroups=2)
    assert len(traced.records) == 2 * 2 * 32
    assert np.count_nonzero(traced.outputs["y"]) > 2 * 32


def test_too_many_records_raise_with_the_number():
    with pytest.raises(TraceError, match=r"at most 63, got 64\b.*Set the number of records to 64"):
        run("y[i] = x[i];", max_records=63)


@pytest.mark.parametrize(
    ("body", "construct"),
    [
        ("let p = &x[i]; y[i] = *p;", "pointer to x"),
        ("let t = u; y[i] = t[i];", "whole array u"),
    ],
)
def test_constructs_without_a_rule_are_named(body, construct):
    text = HEAD.format(type="f32", shared="var<workgroup> u: array<f32, 32>;", size=32, body=body)
    with pytest.raises(RewriteError, match=construct):
        rewrite(text)
    with pytest.raises(RewriteError, match="type mat2x2"):
        rewrite(text.replace("array<f32>", "array<mat2x2<f32>>"))


# -- faults in a real kernel ------------------------------------------------------------------------------------------


# The text of the kernel, its replacement; variable and direction; subgroup figure or figure, before and after.
FAULTS = {
    "uncoalesced load": (
        ("quad = j / 32u;\n            let n = j % 32u;", "quad = j % 4u;\n            let n = j / 4u;"),
        ("b", "load", "share", 1, 1 / 2),
    ),
    "bank conflict": (
        ("b_tile[quad][n / 8u][(n % 8u) ^ (quad * 2u)] =", "b_tile[n / 8u][n % 4u][quad] ="),
        ("b_tile", "store", "degree", 4, 16),  # 4: what 32 vectors take
    ),
    "double read": (
        (
            "value = vec4<f32>(a[(a_start",
            "value = vec4<f32>(a[(a_start + (row + m) * p.a_row + k) / 4u]) + vec4<f32>(a[(a_start",
        ),
        ("a", "load", "cached", 1, 2),
    ),
}


@pytest.fixture(scope="module")
def matmul():
    """Return the text of the kernel for products of many rows, and the arguments of a product of 64 x 64 matrices."""
    kernels = (kernel for _, kernels in planned_cases("matmul") for kernel in kernels)
    flags = {"type": "f32", "by_rows": False, "added": False, "size": 32, "a_width": 4}
    kernel = next(
        k for k in kernels if k.label.startswith("matmul_shared[") and flags.items() <= dict(k.flags).items()
        and (k.reads, k.params) == (2, ProductParams.wgsl)
    )  # fmt: skip
    sizes = dict.fromkeys((name for name, _ in ProductParams._fields), 0) | dict.fromkeys(("a_row", "b_row"), 64)
    sizes |= dict.fromkeys(("rows", "inner", "columns", "y_row"), 64) | dict.fromkeys(("tile_rows", "tile_columns"), 4)
    params = ProductParams(**sizes | {"row_tiles": 2, "column_groups": 2, "depth": 4, "heads": 1, "alpha": 1.0})
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    block = np.frombuffer(params.pack(4 * kernel.workgroup), np.uint32)
    buffers = {"p": block, "sym": np.zeros((256, 4), np.int32), "a": a, "b": b, "y": np.zeros_like(a)}
    return render(kernel), buffers, (4, 1, 1), {"wg": kernel.workgroup}


@pytest.mark.slow
def test_memory_trace_kernel_result_is_unchanged(matmul):
    text, buffers, grid, constants = matmul
    y = trace(text, buffers, grid, constants=constants).outputs["y"]
    np.testing.assert_array_equal(y, run_untraced(text, buffers, grid, constants)["y"])
    assert np.abs(y).max() > 1


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_change_their_figure(matmul, fault):
    text, buffers, grid, constants = matmul
    (right, wrong), (variable, direction, name, before, after) = FAULTS[fault]
    assert text.count(right) == 1
    for version, value in ((text, before), (text.replace(right, wrong), after)):
        one = figures(trace(version, buffers, grid, constants=constants), variable, direction)
        source = one if hasattr(one, name) else one.by_subgroup[32]
        assert getattr(source, name) == pytest.approx(value)


@pytest.mark.slow
def test_memory_trace_rewrites_each_case_kernel():
    kernels = {kernel for _, kernels in planned_cases() for kernel in kernels}
    for kernel in kernels:
        try:
            assert rewrite(render(kernel)).sites
        except RewriteError as error:
            pytest.fail(f"{kernel.label}: {error}")
