"""Whether draws follow a distribution."""

from __future__ import annotations

import numpy as np


def chi_square_limit(degrees: int) -> float:
    """Return the value that chance exceeds once in 10,000 runs, by Wilson and Hilferty's approximation."""
    return degrees * (1 - 2 / (9 * degrees) + 3.719 * np.sqrt(2 / (9 * degrees))) ** 3


def assert_follows(counts, expected):
    assert counts[expected == 0].sum() == 0, "a token that a filter excludes was drawn"
    common = expected >= 5  # the test's own condition; rarer tokens are counted together
    pooled = [np.append(v[common], v[~common].sum()) for v in (counts.astype(float), expected)]
    kept = pooled[1] > 0
    statistic = (((pooled[0] - pooled[1]) ** 2)[kept] / pooled[1][kept]).sum()
    assert statistic < chi_square_limit(int(kept.sum()) - 1)
