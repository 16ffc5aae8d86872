from tests.support.cases import T, case

CASES = [
    case(f"aten.{name}.default", *args, **sizes)
    for name in ("relu", "sigmoid")
    for args, sizes in [
        ((T("n", 29, low=-30, high=30),), {"n": (11, 7, 1)}),
        ((T(),), {}),
        ((T(2, 3, 5, 7),), {}),
    ]
]
