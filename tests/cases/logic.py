import numpy as np

from tests.support.cases import T, case


def _masked(dims):
    """Numbers among which some are minus infinity."""
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims) - 3
    return np.where(values % 3 == 0, -np.inf, values)


CASES = [
    case("aten.eq.Scalar", T("n", 5, make=_masked), float("-inf"), n=(7, 2)),
    case("aten.eq.Scalar", T("n", 5, make=_masked), 1, n=(7, 2)),
    case("aten.eq.Scalar", T("n", 5, dtype="i32", low=-2, high=2), 1, n=(7, 2)),
    case("aten.eq.Scalar", T("n", 5, dtype="i32", low=-2, high=2), 0.5, n=(7, 2)),
    case("aten.eq.Scalar", T("n", 5), float("nan"), n=(7, 2)),
    case("aten.logical_not.default", T("n", 5, dtype="bool"), n=(7, 2)),
    case("aten.logical_not.default", T("n", 5, dtype="i32", low=-1, high=1), n=(7, 2)),
    case("aten.where.self", T("n", 1, dtype="bool"), T("n", 5), T("n", 5), n=(7, 2)),
    case("aten.where.self", T("n", 5, dtype="bool"), T(), T(5, make=_masked), n=(7, 2)),
    case("aten.any.dim", T("n", 5, dtype="bool"), -1, True, n=(7, 2)),
    case("aten.any.dim", T(3, "n", 2, make=lambda d: np.arange(np.prod(d)).reshape(d) % 7), 1, False, n=(7, 2)),
    case("aten.scalar_tensor.default", 1.5, None, None, None, None),
    case("aten.full_like.default", T("n", 5), 2.5, None, None, None, None, None, n=(7, 2)),
    case("aten.full_like.default", T("n", 5, dtype="i32", low=0, high=3), -2, None, None, None, None, None, n=(7, 2)),
]
