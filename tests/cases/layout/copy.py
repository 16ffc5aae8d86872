from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case
from webpte.container import DType

F32, F16, I32, BOOL = (DType[name].scalar_type for name in ("FLOAT32", "FLOAT16", "INT32", "BOOL"))
NO_OPTIONS = (None, None, None)  # layout, device, pin_memory

_SOURCES = {
    "f32": T("n", 5, make=among(-2.7, 2.7, -0.3, 0, -0.0, 3e4, 1e-3)),
    "f16": T("n", 5, dtype="f16", make=among(-2.7, 2.7, -0.3, 0, 3e4, 1e-3)),
    "i32": T("n", 5, dtype="i32", make=among(-7, 0, 1, 60000, 2**24 + 1)),
    "bool": T("n", 5, dtype="bool"),
}
_HALF_OVERFLOWS = T("n", 5, dtype="i32", make=among(-7, 0, 1, 2049))

CASES = [
    case(
        name, _HALF_OVERFLOWS if (source, target) == ("i32", F16) else x, target, *NO_OPTIONS, False, None, n=(7, 3, 1)
    )
    for name in ("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
    for source, x in _SOURCES.items()
    for target in (F32, F16, I32, BOOL)
]
CASES += [
    case("aten._to_copy.default", T("n", 5), None, *NO_OPTIONS, False, None, n=(7, 3, 1)),
    case("aten._to_copy.default", T(make=among(3.9)), I32, *NO_OPTIONS, False, None),
    case("aten._to_copy.default", T(4, make=among(float("nan"), INFINITE, 1e-40, 0)), BOOL, *NO_OPTIONS, False, None),
    case("aten._to_copy.default", T(3, make=among(INFINITE, -INFINITE, 1e6)), F16, *NO_OPTIONS, False, None),
    case("aten._to_copy.default", T(3, dtype="f16", make=among(INFINITE, -1, 6e-8)), F32, *NO_OPTIONS, False, None),
    case("dim_order_ops._to_dim_order_copy.default", T("n", 5), F32, *NO_OPTIONS, False, [0, 1], n=(7, 3, 1)),
    case("dim_order_ops._clone_dim_order.default", T("n", 5), False, [0, 1], n=(7, 3, 1)),
    case("dim_order_ops._clone_dim_order.default", T("n", 5, dtype="bool"), False, None, n=(7, 3, 1)),
]
_BYTES = {
    "i8": T("n", 5, dtype="i8", make=among(-128, -3, 0, 1, 127)),
    "u8": T("n", 5, dtype="u8", make=among(0, 1, 128, 255)),
}
_WORDS = {
    "i32": T("n", 5, dtype="i32", make=among(-129, -1, 0, 127, 128, 300, 2**31 - 1)),
    "bool": T("n", 5, dtype="bool"),
}
CASES += [
    case("aten._to_copy.default", x, DType[target].scalar_type, *NO_OPTIONS, False, None, n=(7, 3, 1))
    for targets, sources in (
        (("FLOAT32", "FLOAT16", "INT32", "BOOL", "INT8", "UINT8"), _BYTES),
        (("INT8", "UINT8"), _WORDS),
    )
    for x in sources.values()
    for target in targets
]
for _name in ("alias_copy", "detach_copy", "lift_fresh_copy"):
    CASES += [
        case(f"aten.{_name}.default", T("n", 5), n=(7, 3, 1)),
        case(f"aten.{_name}.default", T("n", 3, dtype="i32", low=-5, high=5), n=(7, 3, 1)),
    ]
CASES += [
    case("aten.clone.default", T("n", 5), None, n=(7, 2, 1)),
    case("aten.clone.default", T(3, "n", dtype="f16"), None, n=(7, 2, 1)),
    case("aten.copy.default", T("n", 5), T("n", 5), False, n=(7, 2, 1)),
    case("aten.copy.default", T("n", 5), T(5), False, n=(7, 2, 1)),
    case("aten.copy.default", T("n", 5), T("n", 1, dtype="i32", low=-9, high=9), False, n=(7, 2, 1)),
    case("aten.copy.default", T("n", 5, dtype="i32", low=0, high=1), T("n", 5, low=-9, high=9), False, n=(7, 2, 1)),
    case("aten.copy.default", T("n", 5, dtype="bool"), T(dtype="f16"), False, n=(7, 2, 1)),
]
CASES += [case("webpte.copy", source, n=(7, 3, 1)) for source in _SOURCES.values()]
