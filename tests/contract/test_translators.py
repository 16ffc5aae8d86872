"""Translators of Metal and Direct3D 12 must accept the kernels, and reject planted faults.

The tests run where `python -m bench.translators.build` has run: it downloads 470 MB and compiles naga, which takes too
long for the gate, which has `test_accepted_kernels.py` instead. The nightly run builds it and translates all kernels.
"""

from __future__ import annotations

import pytest

from bench.translators import build, kernels, metal, targets
from bench.translators.kernels import GATE, Source

SETS = {name: kernels.FEATURES[name] for name in ("none", "both")}

KERNEL = """
override wg: u32 = 64u;
@group(0) @binding(0) var<uniform> count: u32;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
var<workgroup> tile: array<vec4<f32>, 64>;
fn live(v: u32) -> u32 {
    var value = v;
    if (v > 7u) { value = u32(x[v].x); }
    return value;
}
@compute @workgroup_size(wg)
fn main(@builtin(local_invocation_index) lane: u32) {
    for (var i = 0u; i < live(count); i++) {
        tile[lane] = x[i];
        workgroupBarrier();
        y[i] = tile[63u - lane];
        workgroupBarrier();
    }
}
"""
TWO_RETURNS = """
fn live(v: u32) -> u32 {
    if (v > 7u) { return u32(x[v].x); }
    return v;
}
"""


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    if reason := build.missing():
        pytest.skip(reason)


def errors(text: str, *names: str) -> dict[str, str]:
    """Return the error of a kernel for each target; empty if there is none."""
    source = Source("planted", text, 64)
    results = targets.translate([source], names or list(targets.TARGETS))
    return {target: result.error for (_, target), result in results.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", GATE)
def test_translators_accept_every_kernel_of_small_programs(name):
    sources = kernels.of_programs([name], SETS)
    results = targets.translate(sources, list(targets.TARGETS))
    assert len(sources) >= 6 and len(results) >= 2 * len(sources)
    rejected = [f"{target} {source.label}: {error}" for source, target, error in targets.failures(results)]
    assert not rejected, "\n".join(rejected)


def test_translators_accept_the_kernel_without_faults():
    assert errors(KERNEL) == {"msl": "", "hlsl-fxc": "", "hlsl-dxc": "", "tint-spirv": ""}


def test_fxc_function_with_two_returns_before_a_barrier_is_rejected():
    start, end = KERNEL.index("fn live"), KERNEL.index("@compute")
    results = errors(KERNEL[:start] + TWO_RETURNS + KERNEL[end:])
    assert "X3663" in results["hlsl-fxc"]
    assert results["msl"] == results["hlsl-dxc"] == results["tint-spirv"] == ""


def test_metal_more_threadgroup_memory_than_32_kb_is_rejected():
    large = KERNEL.replace("array<vec4<f32>, 64>;\nfn", "array<vec4<f32>, 2049>;\nfn")
    assert large != KERNEL
    assert "more threadgroup memory than Metal has" in errors(large, "msl")["msl"]


def test_metal_more_than_31_buffers_are_rejected():
    more = "".join(f"@group(1) @binding({i}) var<storage, read> b{i}: array<f32>;\n" for i in range(29))
    uses = " + ".join(f"b{i}[0]" for i in range(29))
    text = more + KERNEL.replace("y[i] = ", f"y[i] = vec4<f32>({uses}) + ")
    assert errors(text, "msl")["msl"] == "33 buffers; Metal has 31"


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("type", "metal::uint4 wrong = metal::float4(1.0);"),
        ("parts", "metal::float4 wrong = metal::float4(1.0, 2.0);"),
        ("function", "float wrong = metal::hypot(1.0, 2.0);"),
        ("double", "double wrong = 1.0;"),
        ("address space", "device float* wrong; thread float* copy = wrong;"),
        ("syntax", "float wrong = 1.0"),
    ],
)
def test_metal_text_with_an_error_is_rejected(tmp_path, name, statement):
    (text,) = targets.texts([Source("kernel", KERNEL, 64)], "msl")
    end = text.rindex("}")
    good, bad = tmp_path / "good.msl", tmp_path / "bad.msl"
    good.write_text(text, encoding="utf-8")
    bad.write_text(f"{text[:end]}    {statement}\n}}\n", encoding="utf-8")
    results = metal.check([good, bad])
    assert results[good] == ""
    assert "error:" in results[bad]


def test_metal_name_that_is_an_operand_of_two_packed_products_is_rejected():
    once = KERNEL.replace("y[i] = ", "let codes = count; y[i] = vec4<f32>(f32(dot4I8Packed(codes, lane))) + ")
    twice = once.replace("dot4I8Packed(codes, lane)", "dot4I8Packed(codes, lane) + dot4I8Packed(codes, 7u)")
    assert errors(once, "msl")["msl"] == ""
    assert "redefinition" in errors(twice, "msl")["msl"]


def test_tint_barrier_that_some_invocations_skip_is_rejected():
    varying = KERNEL.replace("i < live(count)", "i < lane")
    assert "uniform" in errors(varying, "tint-spirv")["tint-spirv"]


def test_trusted_text_of_metal_has_neither_clamps_nor_loop_counters():
    (checked,) = targets.texts([Source("kernel", KERNEL, 64)], "msl")
    (trusted,) = targets.texts([Source("kernel", KERNEL, 64)], "msl-trusted")
    assert "metal::min" in checked and "loop_bound" in checked
    assert "metal::min" not in trusted and "loop_bound" not in trusted


def test_translate_kernel_with_subgroups_is_not_offered_to_fxc():
    text = KERNEL.replace("index) lane: u32", "index) lane: u32, @builtin(subgroup_invocation_id) id: u32")
    assert errors(text) == {"msl": "", "hlsl-dxc": "", "tint-spirv": ""}
    assert not targets.offered(Source("k", text, 64), "hlsl-fxc")
