import itertools

import numpy as np

from tests.support.harness.cases import T, case


def _edges(dims):
    """Corners, borders and positions far outside."""
    values = np.array([-1, 1, 0, -1.05, 1.1, 3.3, -7.7, 0.6, -1000.25, 640.1])
    return np.resize(values, dims)


SIZES = {"n": (7, 3), "m": (5, 2)}
MODES = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))
CASES = [
    case("aten.grid_sampler_2d.default", T(2, 3, "n", 5), T(2, "m", 7, 2, low=-1.7, high=1.7), *mode, **SIZES)
    for mode in MODES
]
CASES += [
    case("aten.grid_sampler_2d.default", T(1, 2, 3, 5), T(1, "m", 3, 2, make=_edges), *mode, atol=1e-3, m=(7, 5))
    for mode in MODES
]
CASES += [
    case("aten.grid_sampler_2d.default", T(1, 2, 1, 1), T(1, 3, 2, 2, low=-1.7, high=1.7), 0, 2, True),
    case(
        "aten.grid_sampler_2d.default",
        *(T(1, 2, "n", 5, dtype="f16"), T(1, 3, 4, 2, dtype="f16", low=-1, high=1)),
        *(0, 1, True),
        n=(7, 3),
        atol=2e-2,
    ),
    case("et_vk.grid_priors.default", T(1, 2, "n", 5), 8, 0.5, n=(7, 3, 1)),
    case("et_vk.grid_priors.default", T(3, "n"), 1, 0.0, n=(7, 3)),
    case("et_vk.grid_priors.default", T(2, 3, "n", "m"), 16, -0.25, n=(7, 3), m=(5, 2)),
]
