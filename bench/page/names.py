"""Contenders by name, and how two of them compare."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

ORT, PAGE, NATIVE = "onnxruntime-web", "page", "native"
AS_GPU, UNCHECKED = "page, kernels for a GPU", "page, no bounds checks"


def ratio(row: Mapping[str, Any], one: str, other: str) -> float:
    """Of their times: the median of all turns, so that what disturbs a turn disturbs both."""
    turns: list[float] = [a / b for a, b in zip(row[one]["turns"], row[other]["turns"], strict=True)]
    return statistics.median(turns)
