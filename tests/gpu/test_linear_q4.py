"""What the cases of 4-bit and 8-bit layers do not show: that each runs its own kernels, and small subgroups suffice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import webpte
from tests.cases.q4.linear_q4 import CASES, FUSED, INT8, LANES, by, gated, int8, joined, rounded, scales
from tests.support.harness.cases import OneOp, T, case, choosing, planned_kernels, run_case
from tests.support.harness.gate import slow_but, slow_rows_but
from webpte.device import adapter_caps
from webpte.ops.q4 import linear_q4_kernels

VARIANTS = ("broadcast", "tile", *LANES, "shared", "shared-64", "shared-wide", "packed", "packed-32", "packed-64")
IN_F16 = ("shared-f16", "shared-64-f16", "shared-wide-f16")
EIGHT = [c for c in CASES if c.op == INT8 and c.variant == "broadcast"][::2]


def test_linear_q4_variants_have_own_kernels(tmp_path):
    results: dict[str, set[str]] = {variant: set() for variant in (*VARIANTS, *IN_F16)}
    for some in CASES:
        if some.variant in results and some.op == FUSED:
            results[some.variant].update(kernel.label for kernel in planned_kernels(some, tmp_path))
    for variant, kernels in results.items():
        others = set().union(*(results[v] for v in results if v != variant))
        assert kernels - others, f"{variant} runs what others run"


@pytest.mark.parametrize("layer", slow_but([by("broadcast")[0], EIGHT[0]], [*by("broadcast")[::4], *EIGHT]), ids=str)
def test_subgroups_of_four_suffice(layer, tmp_path, device, monkeypatch):
    caps = adapter_caps()
    if not caps.subgroup:
        pytest.skip("the adapter has no subgroups")
    monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: dataclasses.replace(caps, subgroup=4))
    assert run_case(layer, tmp_path) >= 2


def test_linear_q4_without_subgroups_uses_tiles(tmp_path, device, monkeypatch):
    caps = dataclasses.replace(adapter_caps(), subgroup=0)
    monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: caps)
    with pytest.raises(AssertionError, match="no such variant"):
        run_case(by("broadcast")[0], tmp_path)
    assert run_case(by("tile")[0], tmp_path) >= 2


def test_layer_with_operands_in_f16_only_where_results_need_not_be_exact(tmp_path, device):
    if "shader-f16" not in adapter_caps().features or adapter_caps().exact:
        pytest.skip("the adapter has no f16")
    OneOp(joined(T("n", 576), (60, 7), n=(40, 1))).write(tmp_path / "layer.pte")
    x = np.random.default_rng(3).normal(size=(40, 576)).astype(np.float32)
    results = {}
    for exact in (False, True):
        with choosing("shared-f16"), webpte.load(tmp_path / "layer.pte", exact=exact) as program:
            method = program.method()
            results[exact] = [np.concatenate(method.run([x[:rows]]), axis=1) for rows in (40, 16)]
    assert np.array_equal(results[False][1], results[True][1])  # 16 rows
    error = np.abs(results[False][0] - results[True][0])
    size = np.sqrt(np.mean(results[True][0] ** 2))
    assert 1e-5 * size < np.sqrt(np.mean(error**2)) < 2e-3 * size


@pytest.mark.parametrize("inner", [576, 1536])  # SmolLM2's widths
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_products_of_halves_and_floats_are_nearly_exact(inner, mean, tmp_path, device):
    """Codes are multiplied with 24 added to their weights, and 24 times the sum of x is subtracted."""
    OneOp(joined(T("n", inner), (63,), n=(1, 1))).write(tmp_path / "layer.pte")
    x = np.random.default_rng(3).normal(mean, size=(1, inner)).astype(np.float32)
    results = {}
    for variant in ("lanes", "lanes-halves"):
        with choosing(variant), webpte.load(tmp_path / "layer.pte") as program:
            results[variant] = program.method().run([x])[0]
    error = np.sqrt(np.mean((results["lanes-halves"] - results["lanes"]) ** 2))
    assert 0 < error < 1e-6 * np.sqrt(np.mean(results["lanes"] ** 2))


@pytest.mark.parametrize("columns", [37, 40])
def test_workgroups_of_large_layers_have_eight_columns_of_one_row(columns, tmp_path, device, monkeypatch):
    monkeypatch.setattr(linear_q4_kernels, "LARGE_COLUMNS", columns)

    def layers(rows, **options):
        yield joined(T(rows, 2048), (columns,), normed=True, biased=True, variant="lanes-halves", atol=2e-4, **options)
        yield joined(T(rows, 256), (columns - 7, 7), offset=columns == 40, variant="lanes", atol=2e-4, **options)
        yield gated(T(rows, 256), columns, normed=True, variant="lanes-bytes", atol=2e-3, **options)

    for layer, *fixed in zip(layers("n", n=(5, 1)), layers(1), layers(5), strict=True):
        one, few = (dict[str, Any](planned_kernels(some, tmp_path)[0].flags) for some in fixed)
        assert (one["columns"] * one["weights"], one["tile"]) == (8, 1)
        assert (few["columns"] * few["weights"], few["tile"]) == (4, 4)
        assert one["words"] == few["words"] <= 2  # the order of their sums
        assert run_case(layer, tmp_path) >= 2


@pytest.mark.parametrize(
    ("inner", "words"), [(64, 1), (512, 1), (576, 2), (1024, 2), (1152, 4), (1536, 4), (2048, 4), (3072, 2), (8192, 4)]
)
def test_load_of_a_row_has_few_steps_and_idle_invocations(inner, words, tmp_path):
    (kernel,) = planned_kernels(joined(T(1, inner), (9,), variant="lanes"), tmp_path)
    assert dict(kernel.flags)["words"] == words


MAX_ROWS = {
    "broadcast": 35,
    "tile": 35,
    "lanes": 16,
    "packed": 16,
}  # rows that one kernel runs: beyond, GPUs have another
GROUPS = [("broadcast", 32), ("broadcast", 96), *((variant, 64) for variant in MAX_ROWS)]


@pytest.mark.parametrize(("variant", "group"), slow_rows_but([("broadcast", 96), ("tile", 64), ("packed", 64)], GROUPS))
@pytest.mark.parametrize("gate", slow_but([False], [False, True]))
def test_linear_row_independent_of_number_of_rows(gate, variant, group, tmp_path, device):
    """To the bit: a sequence that is decoded beside others gives what it gives alone."""
    if variant == "broadcast" and not adapter_caps().subgroup:
        pytest.skip("the adapter has no subgroups")
    inner, most = 576, MAX_ROWS[variant]
    options = {"group": group, "row": rounded("n") if variant == "packed" else None, "n": (most, 1)}
    x = T("n", inner)
    OneOp(gated(x, 67, **options) if gate else joined(x, (60, 7), **options)).write(tmp_path / "layer.pte")
    random = np.random.default_rng(group)
    inputs = [random.normal(size=(most, inner)).astype(np.float32)]
    if variant == "packed":
        inputs += [random.uniform(0.01, 0.02, most).astype(np.float32), random.integers(-9, 9, most).astype(np.int8)]
    assert_rows_alike(tmp_path / "layer.pte", variant, inputs)


@pytest.mark.parametrize("variant", slow_but(["broadcast", "tile"], ["broadcast", "tile", "lanes"]))
def test_nor_does_one_of_an_8_bit_layer(variant, tmp_path, device):
    if variant == "broadcast" and not adapter_caps().subgroup:
        pytest.skip("the adapter has no subgroups")
    most = MAX_ROWS[variant]
    OneOp(case(INT8, T("n", 576), int8(67, 576), scales(67), n=(most, 1))).write(tmp_path / "layer.pte")
    x = np.random.default_rng(8).normal(size=(most, 576)).astype(np.float32)
    assert_rows_alike(tmp_path / "layer.pte", variant, [x])


def assert_rows_alike(path, variant, inputs):
    most = len(inputs[0])
    with choosing(variant), webpte.load(path) as program:
        method = program.method()
        alone = [method.run([part[i : i + 1] for part in inputs]) for i in range(most)]
        for count in (*range(2, 17), 17, 24, most) if most > 16 else range(2, most + 1):
            actual = method.run([part[:count] for part in inputs])
            for i, result in enumerate(actual):
                expected = np.concatenate([row[i] for row in alone[:count]])
                assert np.array_equal(result, expected), f"{count} rows"
