"""What the last bits of the inputs decide in a program that rounds rows to codes while it runs.

Sums in another order differ in their last bits. A sum between two codes becomes one in one runtime and its neighbor in
another, so that results differ by a step of a code. How much that is depends on the network, and the executorch wheel
shows it alone: by what its results change if the last bits of its inputs do.
"""

from __future__ import annotations

import numpy as np

from tests.support.export.exporting import Exported

from .outcome import difference

VARIANTS = 16  # of the inputs of a call


def largest_change(exported: Exported) -> float:
    """Return the largest change of the wheel's results if each float of the inputs moves to a neighbor, up or down."""
    import executorch.kernels.quantized  # noqa: F401  # registers what is left outside delegates
    import torch
    from executorch.extension.pybindings import portable_lib

    wheel, random = portable_lib._load_for_executorch(str(exported.path)), np.random.default_rng(0)
    changes = [0.0]
    for step in exported.steps:
        for _ in range(VARIANTS):
            inputs = [torch.from_numpy(moved(array, random)) for array in step.inputs]
            results = [np.asarray(result) for result in wheel.forward(inputs)]
            changes.append(difference(results, step.outputs)[0])
    return max(changes)


def moved(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array.copy()
    return np.nextafter(array, random.choice([-np.inf, np.inf], array.shape).astype(array.dtype))
