"""Scores of logits, and whether a program is the one that the file beside it describes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..runtime import ArgumentInfo, Method

Floats = NDArray[np.float32]


def softmax(logits: Floats) -> Floats:
    """Along the last dim."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


def sigmoid(logits: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of e**-x, whose inverse is then 0
        return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def check_program(
    method: Method, path: Path, inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
) -> int:
    """The most pictures of a call, if inputs and outputs have these dims behind those of the batch."""
    bounds = [_bound(argument) for argument in (*method.inputs, *method.outputs)]
    wanted = [*inputs, *outputs]
    if [bound[1:] for bound in bounds] != wanted or len(method.inputs) != len(inputs):
        raise FormatError(
            f"{path} has arguments of {bounds}; by the file beside it they are {wanted}, each with a batch before. The "
            "two are not of one export.",
            code="other_export",
        )
    return bounds[0][0]


def _bound(argument: ArgumentInfo) -> tuple[int, ...]:
    return argument.bound or ()
