"""Norms by the input's own statistics or by stored ones."""

from typing import Any

import numpy as np

from tests.support.harness.cases import Sym, T, case


def _far_from_zero(dims):
    """A mean far larger than the spread: the sum of squares alone would lose every digit of the variance."""
    return 1000 + np.random.default_rng(3).uniform(-1, 1, dims)


def _optional(size: int | tuple[int, ...], **options: Any) -> list[tuple[T | None, T | None]]:
    dims = (size,) if isinstance(size, int) else size
    weight, bias = T(*dims, **options), T(*dims, **options)
    return [(weight, bias), (weight, None), (None, bias), (None, None)]


HALF: dict[str, Any] = {"dtype": "f16", "low": -1, "high": 1}
ROUGH = {"atol": 2e-3, "rtol": 2e-3}
CASES = [
    case("et_vk.rms_norm.default", T(1, "n", 29), T(29, constant=True), 1e-5, n=(11, 7, 1)),
    case("et_vk.rms_norm.default", T("n", 64, low=-1e-4, high=1e-4), T(64), 1e-6, n=(5, 2)),
    case("et_vk.rms_norm.default", T(2, "n", 3, 4), T(4), 1e-6, n=(5, 3, 1)),
    case("et_vk.rms_norm.default", T("n", 29, **HALF), T(29, **HALF), 1e-5, n=(11, 7, 1), **ROUGH),
    case("et_vk.rms_norm.default", T("n", 29, **HALF), T(29), 1e-5, n=(11, 7, 1), **ROUGH),
    case("webpte.rms_norm_residual", T(1, "n", 29), T(29, constant=True), 1e-5, T(1, "n", 29), n=(11, 7, 1)),
    case("webpte.rms_norm_residual", T("n", 64), T(64), 1e-6, T("n", 64), n=(5, 2)),
    case("webpte.rms_norm_residual", T("n", 32, **HALF), T(32), 1e-5, T("n", 32, **HALF), n=(11, 1), **ROUGH),
]

LAYER = "aten.native_layer_norm.default"
CASES += [
    case(LAYER, T(2, "n", 29), [29], weight, bias, 1e-5, n=(11, 7, 1))
    for weight, bias in [*_optional(29), *_optional(29, constant=True)]
]
CASES += [case(LAYER, T("n", 3, 7), [3, 7], weight, bias, 1e-6, n=(7, 3, 1)) for weight, bias in _optional((3, 7))]
CASES += [
    case(LAYER, T(5, 7), [5, 7], None, None, 1e-5),
    case(LAYER, T(2, 3, 2, 1, 2, 3, 1, 5), [3, 1, 5], T(3, 1, 5), None, 1e-5),
    case(LAYER, T("n", 1), [1], T(1), T(1), 1e-5, n=(7, 2)),
    case(LAYER, T("n", 1031), [1031], None, None, 1e-5, n=(5, 2)),
    case(LAYER, T("n", 13, make=_far_from_zero), [13], None, None, 1e-5, n=(7, 2), atol=1e-3, rtol=1e-3),
    case(LAYER, T("n", 29, **HALF), [29], T(29, **HALF), T(29, **HALF), 1e-5, n=(11, 7), **ROUGH),
]

# The batch and the spatial size of a group norm are arguments, so a live size has to be passed as such.
GROUP = "aten.native_group_norm.default"
CASES += [
    case(GROUP, T(3, 6, 5, 7), weight, bias, 3, 6, 35, groups, 1e-5)
    for groups in (1, 2, 3, 6)
    for weight, bias in _optional(6)
]
CASES += [
    case(GROUP, T("n", 6, 5, 7), T(6, constant=True), T(6), Sym("n"), 6, 35, 3, 1e-5, n=(5, 3, 1)),
    case(GROUP, T(2, 6, "n"), T(6), T(6), 2, 6, Sym("n"), 3, 1e-5, n=(11, 7, 1)),
    case(GROUP, T("n", 10), T(10), None, Sym("n"), 10, 1, 5, 1e-5, n=(7, 3)),
    case(GROUP, T(2, 4, 3, 2, 5), T(4), T(4), 2, 4, 30, 2, 1e-6),
    case(GROUP, T(2, 2, 37, 41), T(2), T(2), 2, 2, 37 * 41, 1, 1e-6),
    case(GROUP, T(2, 6, 5, **HALF), T(6, **HALF), T(6, **HALF), 2, 6, 5, 3, 1e-5, **ROUGH),
]

BATCH = "aten._native_batch_norm_legit_no_training.default"
MEAN, VARIANCE = T(5, constant=True), T(5, low=0.1, high=3, constant=True)
HALVES = T(5, **HALF), T(5, dtype="f16", low=0.5, high=3)
CASES += [
    case(BATCH, x, weight, bias, MEAN, VARIANCE, 0.1, 1e-5, n=(7, 3, 1))
    for x in (T("n", 5), T("n", 5, 3), T("n", 5, 3, 7))
    for weight, bias in _optional(5, constant=True)
]
CASES += [
    case(BATCH, T("n", 5, 3, "n", 2), T(5), T(5), T(5), T(5, low=0.1, high=3), 0.1, 1e-3, n=(7, 3, 1)),
    case(BATCH, T("n", 5, 3, **HALF), T(5), T(5), MEAN, VARIANCE, 0.1, 1e-3, n=(7, 3), **ROUGH),
    case(BATCH, T("n", 5, 3, **HALF), T(5, **HALF), None, *HALVES, 0.1, 1e-3, n=(7, 3), **ROUGH),
]

# Every number of invocations that may share a row, of widths that are loaded in fours and not.
CASES += [
    form
    for variant in ("alone", "by 8", "by 64")
    for form in (
        case("et_vk.rms_norm.default", T(1, "n", 576), T(576), 1e-5, n=(67, 5, 1), variant=variant),
        case("et_vk.rms_norm.default", T("n", 29), T(29), 1e-5, n=(11, 1), variant=variant),
        case("et_vk.rms_norm.default", T("n", 68, **HALF), T(68, **HALF), 1e-5, n=(11, 1), variant=variant, **ROUGH),
        case(LAYER, T("n", 388), [388], T(388), T(388), 1e-5, n=(67, 1), variant=variant),
        case(LAYER, T("n", 1031), [1031], T(1031), None, 1e-5, n=(5, 1), variant=variant),
        case(LAYER, T("n", 64, **HALF), [64], T(64, **HALF), None, 1e-5, n=(11, 1), variant=variant, **ROUGH),
        case(GROUP, T(3, 6, 5, 8), T(6), T(6), 3, 6, 40, 2, 1e-5, variant=variant),
        case(GROUP, T(3, 8, 5, 7), T(8), None, 3, 8, 35, 2, 1e-5, variant=variant),
    )
]
