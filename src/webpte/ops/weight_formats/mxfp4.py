"""MXFP4 of the Open Compute Project: floats with a sign, two bits of exponent and one of mantissa (E2M1).

Its scales are bytes (E8M0), one for 32 numbers. The code of an even column is in the lower half of its byte.
"""

import numpy as np

from . import CodeFormat, nibbles

SIZES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
NUMBERS = np.array([*SIZES, *(-size for size in SIZES)])
FORMAT = CodeFormat(
    "mxfp4", "weight_formats/mxfp4.wgsl", 4, lambda codes: NUMBERS[nibbles(codes)], decodes=frozenset({"pairs"})
)
