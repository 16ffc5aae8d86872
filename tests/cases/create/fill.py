from tests.cases.elementwise.unary import INFINITE
from tests.cases.layout.copy import BOOL, F16, F32, I32
from tests.support.harness.cases import T, case

NO_OPTIONS = (None, None, None)
X = T("n", 5)

CASES = [
    case("aten.scalar_tensor.default", 1.5, None, *NO_OPTIONS),
    case("aten.scalar_tensor.default", -INFINITE, F32, *NO_OPTIONS),
    case("aten.scalar_tensor.default", 7, I32, *NO_OPTIONS),
    case("aten.scalar_tensor.default", 2, BOOL, *NO_OPTIONS),
    case("aten.full.default", [3, 5], 2.5, None, *NO_OPTIONS),
    case("aten.full.default", [7], -3, I32, *NO_OPTIONS),
    case("aten.full.default", [], 0.1, F16, *NO_OPTIONS),
    case("aten.full.default", [2, 3], True, BOOL, *NO_OPTIONS),
    case("aten.full.default", [5], -3.4028234663852886e38, F32, *NO_OPTIONS),
    case("aten.full.default", [5], -INFINITE, F16, *NO_OPTIONS),
    case("aten.full.default", [70001], 1.25, F32, *NO_OPTIONS),
    case("aten.full_like.default", X, 2.5, None, *NO_OPTIONS, None, n=(7, 2, 1)),
    case("aten.full_like.default", X, -INFINITE, None, *NO_OPTIONS, None, n=(7, 2)),
    case("aten.full_like.default", X, 3, I32, *NO_OPTIONS, None, n=(7, 2)),
    case("aten.full_like.default", T("n", 5, dtype="i32", low=0, high=3), -2, None, *NO_OPTIONS, None, n=(7, 2)),
    case("aten.full_like.default", T("n", 5, dtype="f16"), 0.1, None, *NO_OPTIONS, None, n=(7, 2)),
    case("aten.full_like.default", T("n", 5, dtype="bool"), 1, None, *NO_OPTIONS, None, n=(7, 2)),
]
for _name in ("aten.empty.memory_format", "dim_order_ops._empty_dim_order.default"):
    CASES += [case(_name, [3, 5], None, *NO_OPTIONS, None), case(_name, [7], I32, *NO_OPTIONS, None)]
for _name in ("zeros", "ones"):
    CASES += [
        case(f"aten.{_name}.default", [3, 5], None, *NO_OPTIONS),
        case(f"aten.{_name}.default", [3, 5, 1, 2], I32, *NO_OPTIONS),
        case(f"aten.{_name}.default", [7], BOOL, *NO_OPTIONS),
        case(f"aten.{_name}.default", [7], F16, *NO_OPTIONS),
        case(f"aten.{_name}_like.default", X, None, *NO_OPTIONS, None, n=(7, 2, 1)),
        case(f"aten.{_name}_like.default", X, I32, *NO_OPTIONS, None, n=(7, 2)),
        case(f"aten.{_name}_like.default", T("n", dtype="bool"), None, *NO_OPTIONS, None, n=(7, 2)),
        case(f"aten.{_name}_like.default", T("n", dtype="f16"), None, *NO_OPTIONS, None, n=(7, 2)),
    ]
CASES += [
    case("aten.arange.start_step", 0, 11, 1, None, *NO_OPTIONS),
    case("aten.arange.start_step", 3, -8, -2, I32, *NO_OPTIONS),
    case("aten.arange.start_step", 2, 2, 1, I32, *NO_OPTIONS),
    case("aten.arange.start_step", 0.5, 7.1, 0.3, None, *NO_OPTIONS),
    case("aten.arange.start_step", 0, 29, 2, F32, *NO_OPTIONS),
    case("aten.arange.start_step", 1, 9, 1, F16, *NO_OPTIONS),
]
