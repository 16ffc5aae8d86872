from tests.support.harness.cases import T, case

NAME = "webpte.index_check"
EXACT = {"atol": 0, "rtol": 0}


def _i(*dims, low=-9, high=9):
    return T(*dims, dtype="i32", low=low, high=high)


CASES = [
    case(NAME, _i("n"), T(3, 7), 1, True, None, n=(29, 5, 1), **EXACT),
    case(NAME, _i("n"), T(3, 7), 0, False, None, n=(29, 5, 1), **EXACT),
    case(NAME, _i(2, 3), T(), 0, True, None, **EXACT),
    case(NAME, _i("n", low=0, high=6), T(3, 7), -1, False, None, n=(1037, 5), **EXACT),  # nothing is wrong
    case(NAME, _i("n", low=-(2**31), high=2**31 - 1), T(5), 0, True, None, n=(1037,), **EXACT),
]
