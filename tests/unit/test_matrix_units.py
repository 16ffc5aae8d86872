"""Plans for matrix units: which devices get them, which layers, and what is written about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import webpte
from tests.cases.q4.linear_q4 import gated, joined, rounded
from tests.support.harness.cases import OneOp, T, planned_kernels
from tests.support.harness.matrix_units import caps_with, every_variant, variant
from webpte.bundles.methods import MATRIX_TARGETS
from webpte.ops.q4.linear_q4_kernels import MATRICES, MATRIX_DEPTH, SHARED, SHARED_HALVES
from webpte.plan.plan_writer import features_of
from webpte.runtime import Bundle, load_program
from webpte.runtime.bundle import choose
from webpte.wgsl import APPLE_MATRIX, MATRIX_SHAPES, Caps, matrices_of, matrix_feature, render

LAYER = joined(T("n", 64), (37,), normed=True, residual=T("n", 37), n=(40, 17))
FEATURE = matrix_feature(*APPLE_MATRIX)


def matrices(layer, folder, caps):
    """Return the features of the matrix units that a layer's kernels use."""
    return {matrices_of(render(kernel)) for kernel in planned_kernels(layer, folder, caps)} - {None}


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_many_rows_run_on_matrix_units_of_the_device(shape, tmp_path):
    assert matrices(LAYER, tmp_path, caps_with(shape)) == {matrix_feature(*shape)}


@pytest.mark.parametrize(
    "caps",
    [
        Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=32),
        replace(caps_with(APPLE_MATRIX), exact=True),
        Caps(features=frozenset({"subgroup", FEATURE}), subgroup=32),
        Caps(features=frozenset({"shader-f16", FEATURE})),
        replace(caps_with(APPLE_MATRIX), kind="cpu"),
    ],
    ids=["no feature", "exact", "no f16", "no subgroups", "software"],
)
def test_device_without_requirement_has_no_kernels_of_matrix_units(caps, tmp_path):
    assert matrices(LAYER, tmp_path, caps) == set()
    assert matrices(replace(LAYER, variant=variant(64, APPLE_MATRIX)), tmp_path, caps_with(APPLE_MATRIX)) == {FEATURE}


@pytest.mark.parametrize(
    "layer",
    [
        joined(T("n", 64), (37,), n=(16, 1)),
        joined(T("n", 64), (37,), row=rounded("n"), n=(40, 1)),
        joined(T("n", 12), (5,), group=4, n=(40, 1)),
    ],
    ids=["few rows", "rows in int8", "groups of no whole words"],
)
def test_layer_without_own_rows_or_words_stays_off_matrix_units(layer, tmp_path):
    assert matrices(layer, tmp_path, caps_with(APPLE_MATRIX)) == set()


def test_variants_of_one_shape_have_one_order():
    assert {v.name for v in MATRICES.values()} == {name for name, _ in every_variant()}
    orders = {shape: {v.order for (_, s), v in MATRICES.items() if s == shape} for shape in MATRIX_SHAPES}
    assert all(len(order) == 1 for order in orders.values())
    others = {v.order for v in (*SHARED.values(), *SHARED_HALVES.values())}
    assert len(set.union(others, *orders.values())) == len(others) + len(MATRIX_SHAPES)


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
@pytest.mark.parametrize("make", [joined, gated])
def test_kernels_of_matrix_units_fit_browser_limits(make, shape, tmp_path):
    columns = 64 if make is gated else (64,)
    for size in (32, 64):
        layer = make(T("n", 64), columns, variant=variant(size, shape), n=(67,))
        for kernel in planned_kernels(layer, tmp_path, caps_with(shape)):
            text = render(kernel)
            if matrices_of(text) is not None:
                m = shape[0]
                assert 2 * 2 * size * MATRIX_DEPTH + 4 * 32 * m * size // 16 <= 16 << 10
                assert kernel.workgroup == 2 * size <= 256 and kernel.reads + kernel.writes <= 8
                assert features_of([text]) == ["shader-f16", "subgroup", matrix_feature(*shape)]


@pytest.fixture
def bundled(tmp_path):
    """Return how to bundle a layer."""

    def write(layer, **options):
        OneOp(layer).write(tmp_path / "layer.pte")
        with load_program(tmp_path / "layer.pte") as program:
            shapes = [[t.at(sizes) for t in layer.tensors if not t.constant] for sizes in layer.sizes]
            return webpte.bundle(program, tmp_path / "site", shapes={"forward": shapes}, **options)

    return write


def opened(folder):
    site = webpte.load(folder)
    assert isinstance(site, Bundle)
    return site


def test_bundle_has_plans_for_matrix_units_if_asked(bundled):
    with opened(bundled(LAYER)) as site:
        plain = [variant.features for variant in site.manifest.methods["forward"]]
        assert not any("matrix" in name for features in plain for name in features)
    with opened(bundled(LAYER, matrix_units=True)) as site:
        variants = site.manifest.methods["forward"]
        assert [variant.features for variant in variants[len(MATRIX_SHAPES) :]] == plain
        expected = [("shader-f16", "subgroup", matrix_feature(*shape)) for shape in MATRIX_SHAPES]
        assert [variant.features for variant in variants[: len(MATRIX_SHAPES)]] == expected
        for caps, own in zip(MATRIX_TARGETS, variants, strict=False):
            assert choose(variants, caps, "layer") is own
            assert site.plan(caps=caps).kernels
        half = Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=32)
        assert choose(variants, half, "layer").features == plain[0]
        assert str(variants[0]) == f"gpu, shader-f16, subgroups of 32, {FEATURE}"


def test_bundle_without_layers_for_matrix_units_has_no_plans_for_them(bundled):
    with opened(bundled(joined(T("n", 64), (37,), n=(3, 1)), matrix_units=True)) as site:
        assert all("matrix" not in str(variant) for variant in site.manifest.methods["forward"])
