"""Attention with and without a KV cache, and writing the cache."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.harness.cases import Case, Sym, T, case

HALF: dict[str, Any] = {"atol": 4e-3, "rtol": 2e-3}  # inputs and results are stored in 11 bits
CAUSAL = (None, 0.0, True)  # no mask, no dropout


def over_cache(
    batch: int, heads: int, kv_heads: int, width: int, start: Any, *, capacity: int = 16, mask: T | None = None, **more
) -> Case:
    """sdpa_with_kv_cache; `scale` and `dtype` may be given, and `causal`, which a mask replaces."""
    scale, dtype, causal = more.pop("scale", None), more.pop("dtype", "f32"), more.pop("causal", mask is None)
    q, k, v = (T(batch, "n", h, width, dtype=dtype) for h in (heads, kv_heads, kv_heads))
    kept = more.pop("kept", False)  # as state, which says that a head's width does not vary
    caches = [T(batch, capacity, kv_heads, width, dtype=dtype, constant=kept) for _ in "kv"]
    rest = (start, 1, mask, 0.0, causal, scale)
    return case("sdpa_with_kv_cache.default", q, k, v, *caches, *rest, **more)


def turned(batch: int, heads: int, kv_heads: int, width: int, start: Any, *, rotated: int = 0, **more) -> Case:
    """webpte.rotary_attention: neighbors by tables cut to the tokens or, with `table`, at that row of whole ones; with
    `rotated`, the halves of that many elements by whole tables.
    """
    table, capacity, dtype = more.pop("table", None), more.pop("capacity", 16), more.pop("dtype", "f32")
    q, k, v = (T(batch, "n", h, width, dtype=dtype) for h in (heads, kv_heads, kv_heads))
    kept = more.pop("kept", False)
    caches = [T(batch, capacity, kv_heads, width, dtype=dtype, constant=kept) for _ in "kv"]
    rows = "n" if table is None else capacity + 3
    tables = [T(rows, rotated or width // 2, dtype=dtype, constant=table is not None) for _ in "cs"]
    place = (table, None if table is None or rotated else Sym("n"), bool(rotated))
    values = (*(q, k, v, *caches), start, 0.0, True, more.pop("scale", None))
    return case("webpte.rotary_attention", *values, *tables, *place, **more)


def filled(heads: int, kv_heads: int, width: int, start: Any, *, batch: int = 1, mask: T | None = None, **more) -> Case:
    """custom_sdpa: the caches hold everything already."""
    scale, causal = more.pop("scale", None), more.pop("causal", mask is None)
    caches = [T(batch, 16, kv_heads, width) for _ in "kv"]
    q = T(batch, "n", heads, width)
    return case("custom_sdpa.default", q, *caches, start, mask, 0.0, causal, scale, **more)


def written(*dims: int | str, capacity: int, start: Any, dtype: str = "f32", **sizes: Any) -> Case:
    cache = (dims[0], capacity, *dims[2:])
    return case("update_cache.default", T(*dims, dtype=dtype), T(*cache, dtype=dtype), start, **sizes)


def plain(heads: int, kv_heads: int, width: int, mask: T | None = None, scale: float | None = None, **more) -> Case:
    """et_vk.sdpa over n queries and m keys."""
    batch, kv_batch = more.pop("batch", 2), more.pop("kv_batch", None)
    dtype, value_width = more.pop("dtype", "f32"), more.pop("value_width", width)
    q = T(batch, heads, "n", width, dtype=dtype)
    k = T(kv_batch or batch, kv_heads, "m", width, dtype=dtype)
    v = T(kv_batch or batch, kv_heads, "m", value_width, dtype=dtype)
    return case("et_vk.sdpa.default", q, k, v, mask, scale, **more)


def hide(every: int, value: float, rows: tuple[int, ...] = ()) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Return a mask that is `value` at every that many keys, and in the whole of some rows."""

    def make(dims: tuple[int, ...]) -> np.ndarray:
        mask = np.linspace(-1, 1, int(np.prod(dims))).reshape(dims)
        mask[..., every - 1 :: every] = value
        for row in rows:
            mask[..., row % dims[-2], :] = value
        return mask

    return make


def causal(dims: tuple[int, ...]) -> np.ndarray:
    """Token t sees the first t keys: the first row sees none."""
    return np.arange(dims[1]) < np.arange(dims[0])[:, None]


INF, LOWEST = -np.inf, float(np.finfo(np.float32).min)

CASES = [
    over_cache(1, 4, 2, 16, 2, n=(7, 3, 1)),
    over_cache(2, 3, 3, 5, 0, capacity=11, scale=0.25, n=(11, 5)),
    over_cache(1, 6, 2, 12, Sym("n"), n=(8, 5, 1)),  # up to the last position
    over_cache(3, 4, 1, 7, Sym("n"), n=(5, 2, 1)),
    over_cache(1, 2, 1, 256, 1, capacity=5, n=(3, 1)),
    over_cache(1, 2, 1, 251, 1, capacity=5, n=(3, 1)),
    over_cache(2, 2, 2, 6, 3, causal=False, n=(7, 2)),
    over_cache(2, 4, 2, 8, 3, mask=T("n", 16, make=hide(3, INF)), n=(7, 2)),
    over_cache(2, 3, 1, 6, Sym("n"), dtype="f16", n=(7, 2), **HALF),
    over_cache(1, 4, 2, 8, 2, dtype="f16", n=(5, 1), **HALF),
    filled(4, 2, 16, 5, n=(7, 3, 1)),
    filled(3, 1, 5, Sym("n"), batch=2, n=(8, 3, 1)),
    filled(2, 2, 6, 4, causal=False, scale=0.5, n=(7, 2)),
    filled(4, 2, 8, 0, mask=T("n", 16, make=hide(2, INF, rows=(0,))), batch=2, n=(7, 2)),
    written(1, "n", 2, 5, capacity=16, start=3, n=(11, 7, 1)),
    written(3, "n", 2, 4, capacity=14, start=Sym("n"), n=(7, 2)),
    written(2, "n", 3, 7, capacity=9, start=0, dtype="f16", n=(5, 1)),
    written(1, "n", 2, 5, capacity=16, start=3, dtype="i8", n=(11, 7, 1)),
    written(1, "n", 3, 1, capacity=13, start=Sym("n"), dtype="i8", n=(5, 2, 1)),
    written(3, "n", 2, 4, capacity=14, start=1, dtype="i8", n=(7, 2)),
    plain(3, 3, 8, n=(11, 7, 1), m=(13, 5, 2)),
    plain(4, 2, 5, scale=0.3, n=(7, 2, 1), m=(11, 3, 1)),
    plain(6, 1, 16, batch=1, n=(5, 2), m=(7, 1)),
    plain(2, 2, 4, kv_batch=1, batch=3, n=(5, 2), m=(7, 3)),
    plain(2, 1, 6, value_width=9, n=(5, 2), m=(7, 3)),
    plain(2, 2, 8, value_width=12, n=(5, 2), m=(7, 3)),
    plain(1, 1, 256, batch=1, n=(3, 2), m=(5, 3)),
    plain(1, 1, 253, batch=1, n=(3, 2), m=(5, 3)),
    plain(3, 3, 8, T(2, 3, "n", "m"), n=(11, 7, 1), m=(13, 5, 2)),
    plain(4, 2, 6, T(1, 4, "n", "m"), n=(7, 2), m=(11, 3)),
    plain(4, 2, 6, T(2, 1, 1, "m", make=hide(2, INF)), n=(7, 2), m=(11, 3)),
    plain(4, 2, 6, T(1, 1, "n", 1), n=(7, 2), m=(11, 3)),
    plain(4, 2, 8, T("n", "m", make=hide(3, INF, rows=(1,))), n=(7, 2), m=(11, 3)),
    plain(4, 2, 8, T(1, 1, "n", "m", make=hide(3, LOWEST, rows=(1,))), n=(7, 2), m=(11, 3)),
    plain(2, 2, 8, T(1, 1, "n", "m", low=-1e30, high=1e30), n=(7, 2), m=(11, 3)),
    plain(4, 2, 8, T(2, 1, "n", "m", dtype="bool"), n=(7, 2), m=(11, 3)),
    plain(4, 2, 8, T("n", "m", dtype="bool", make=causal), n=(7, 2), m=(5, 3)),
    plain(4, 2, 8, T(1, 1, "n", "m", dtype="f16", make=hide(2, INF, rows=(0,))), n=(7, 2), m=(11, 3)),
    plain(4, 2, 8, T(1, 1, "n", "m", dtype="f16"), dtype="f16", n=(7, 2), m=(11, 3), **HALF),
    plain(2, 1, 5, dtype="f16", n=(7, 2), m=(11, 3), **HALF),
    plain(2, 2, 8, T(1, 1, "n", "m"), 8.0, n=(5, 2), m=(97, 3)),
]

CASES += [
    turned(1, 4, 2, 16, 2, n=(7, 3, 1)),
    turned(2, 3, 1, 8, Sym("n"), table=Sym("n"), n=(7, 2, 1)),
    turned(1, 2, 2, 4, 0, table=2, scale=0.3, n=(11, 1)),
    turned(2, 6, 2, 16, 3, table=3, rotated=16, n=(7, 2, 1)),
    turned(1, 5, 1, 20, 1, table=Sym("n"), rotated=8, n=(5, 1)),
    turned(1, 2, 1, 16, 1, table=1, rotated=12, n=(5, 1)),  # halves that are not multiple of 4
    turned(1, 4, 2, 6, 2, n=(5, 1)),
    turned(2, 2, 1, 10, 2, table=0, rotated=6, n=(5, 1)),
    turned(1, 4, 2, 8, 2, table=1, dtype="f16", n=(5, 1), **HALF),
    turned(1, 4, 2, 16, 2, table=1, rotated=8, dtype="f16", n=(5, 1), **HALF),
]

# Every kernel: with 1 to 8 query heads per key head, one token and more, and more keys than a workgroup takes at once.
TOKEN = ("broadcast", "broadcast split", "rows", "lanes")
LONG: dict[str, Any] = {"capacity": 601, "kept": True, "n": (3, 1)}
CASES += [
    form
    for variant in TOKEN
    for form in (
        over_cache(2, 5, 1, 12, 290, variant=variant, **LONG),
        over_cache(1, 2, 2, 64, 0, variant=variant, **LONG),
        turned(1, 8, 2, 32, 596, table=590, variant=variant, **LONG),
        turned(1, 7, 1, 64, 41, table=590, rotated=32, variant=variant, **LONG),
        turned(1, 6, 2, 256, 131, table=2, dtype="f16", variant=variant, **LONG, **HALF),
    )
]
# A GPU divides the keys of rows of 256 elements from 1,024 on.
CASES += [
    over_cache(1, 3, 1, 256, start, capacity=1201, kept=True, variant="lanes split", n=(2, 1), **more)
    for start, more in ((1023, {}), (1024, {}), (1199, {"dtype": "f16", **HALF}))
]
CASES += [
    form
    for variant in ("broadcast", "rows", "tile")
    for form in (
        over_cache(1, 6, 2, 64, 61, capacity=130, variant=variant, n=(37, 13, 2)),
        over_cache(2, 3, 3, 20, 3, capacity=70, variant=variant, n=(67, 5)),
        over_cache(1, 4, 2, 128, 2, capacity=45, dtype="f16", variant=variant, n=(41, 5), **HALF),
        over_cache(1, 2, 2, 256, 0, capacity=45, causal=False, variant=variant, n=(41, 5)),
        plain(2, 1, 32, value_width=64, variant=variant, n=(33, 1), m=(67, 3)),
    )
]
# With a mask, or rows that cannot be loaded in fours.
CASES += [
    form
    for variant in ("rows", "tile")
    for form in (
        over_cache(2, 3, 3, 5, 3, capacity=70, variant=variant, n=(67, 5)),
        over_cache(1, 2, 1, 251, 1, capacity=5, variant=variant, n=(3, 1)),
        plain(4, 2, 8, T(2, 1, "n", "m", make=hide(3, INF)), variant=variant, n=(37, 2), m=(67, 3)),
    )
]
