import numpy as np

from tests.support.harness.cases import T, case

NO_MASK = -1


def settings(*rows):
    """(temperature, top_k, top_p, min_p, seed, step) of each row as the op takes them, over again if too few."""

    def make(dims):
        bits = np.empty(dims, np.int32)
        for row, given in zip(bits, [rows[i % len(rows)] for i in range(dims[0])], strict=True):
            row.view(np.float32)[[0, 2, 3]] = given[0], given[2], given[3]
            row[[1, 4, 5, 6]] = given[1], *given[4:], NO_MASK
        return bits

    return T("n", 7, dtype="i32", make=make)


# temperature, top_k, top_p, min_p, seed, step
SETTINGS = [
    (0.0, 0, 1.0, 0.0, 0, 0),
    (1.0, 0, 1.0, 0.0, 7, 3),
    (0.7, 5, 1.0, 0.0, 7, 3),
    (1.3, 0, 0.8, 0.0, 11, 0),
    (0.9, 7, 0.6, 0.02, -5, 2),
    (0.5, 1000, 0.05, 0.0, 1, 1),
    (2.0, 0, 1.0, 0.1, 3, 3),
]
CASES = [
    case("webpte.sample", T("n", v, low=-6, high=6), settings(*given), advance, n=(7, 3, 1), variant=variant)
    for variant in ("narrow", "wide")
    for given, advance in (*(([one], 0) for one in SETTINGS), (SETTINGS, 5), (SETTINGS[::-1], 0))
    for v in (13, 1009, 2056)
]
CASES += [
    case("webpte.sample", T("n", v, dtype="f16", low=-6, high=6), settings(*given), 0, n=(5, 2))
    for given in (SETTINGS[:1], SETTINGS[1:2], SETTINGS[4:5], SETTINGS)
    for v in (13, 2056)
]
