from tests.support.harness.cases import T, case

# temperature, top_k, top_p, seed, step
SETTINGS = [
    (0.0, 0, 1.0, 0, 0),
    (1.0, 0, 1.0, 7, 3),
    (0.7, 5, 1.0, 7, 3),
    (1.3, 0, 0.8, 11, 0),
    (0.9, 7, 0.6, -5, 2),
    (0.5, 1000, 0.05, 1, 1),
]
CASES = [
    case("webpte.sample", T("n", v, low=-6, high=6), *settings, n=(7, 3, 1), variant=variant)
    for variant in ("narrow", "wide")
    for settings in SETTINGS
    for v in (13, 1009, 2056)
]
CASES += [
    case("webpte.sample", T("n", v, dtype="f16", low=-6, high=6), *settings, n=(5, 2))
    for settings in (SETTINGS[0], SETTINGS[1], SETTINGS[4])
    for v in (13, 2056)
]
