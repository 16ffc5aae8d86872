"""Ops that only language models use."""

from tests.support.cases import T, case

CASES = [
    case(
        "aten.embedding.default",
        T(13, 7, constant=True),
        T(2, "n", dtype="i32", low=0, high=12),
        -1,
        False,
        False,
        n=(11, 3),
    ),
    case("aten.embedding.default", T(13, 7), T("n", dtype="i32", low=0, high=12), -1, False, False, n=(11, 3, 1)),
    case("et_vk.apply_rotary_emb.default", T(1, "n", 4, 16), T(1, "n", 2, 16), T("n", 8), T("n", 8), n=(11, 7, 1)),
    case("et_vk.apply_rotary_emb.default", T(2, "n", 3, 10), T(2, "n", 1, 10), T("n", 5), T("n", 5), n=(7, 2)),
    case(
        "sdpa_with_kv_cache.default",
        *(T(1, "n", 4, 16), T(1, "n", 2, 16), T(1, "n", 2, 16), T(1, 16, 2, 16), T(1, 16, 2, 16)),
        *(2, 1, None, 0, True, None),
        n=(7, 3, 1),
    ),
    case(
        "sdpa_with_kv_cache.default",
        *(T(2, "n", 3, 5), T(2, "n", 3, 5), T(2, "n", 3, 5), T(2, 11, 3, 5), T(2, 11, 3, 5)),
        *(0, 1, None, 0.0, True, 0.25),
        n=(11, 5),
    ),
]
