"""Attention over caches of int8 codes."""

from typing import Any

from tests.support.harness.cases import Case, T, case


def coded(*dims: int | str) -> tuple[T, T, T]:
    """Codes, zero points and scales."""
    rows = (*dims[:-1], 1)
    codes = T(*dims, dtype="i8", low=-128, high=127)
    return codes, T(*rows, dtype="i8", low=-20, high=20), T(*rows, low=0.01, high=0.03)


def over_codes(batch: int, heads: int, kv_heads: int, width: int, start: Any, mask: T | None = None, **more) -> Case:
    q, k, v = coded(batch, "n", heads, width), coded(batch, 16, kv_heads, width), coded(batch, 16, kv_heads, width)
    qparams = (*q[1:], *k[1:], *v[1:])
    rest = (mask, 0.0, mask is None, more.pop("scale", None), *qparams, False)
    return case("custom_quantized_sdpa.default", q[0], k[0], v[0], start, *rest, **more)


CASES = [
    over_codes(1, 4, 2, 16, 0, n=(7, 3, 1)),
    over_codes(1, 4, 2, 16, 5, n=(7, 1)),
    over_codes(2, 3, 1, 8, 3, n=(5, 1), scale=0.3),
    over_codes(1, 2, 2, 8, 0, T("n", 16), n=(5, 2)),
]
