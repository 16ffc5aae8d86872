from tests.support.harness.cases import T, case


def tokens(*dims):
    return T(*dims, dtype="i32", low=-11, high=37)


CASES = [
    case("webpte.replaced_rows", T(1, "n", 7), tokens(1, "n"), T(11, 7), n=(13, 5, 1)),
    case("webpte.replaced_rows", T("n", 8, dtype="f16"), tokens("n"), T(11, 8, dtype="f16"), n=(13, 1)),
]
