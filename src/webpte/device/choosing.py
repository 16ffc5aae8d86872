"""WEBPTE_ADAPTER: which adapter programs run on, by its number in `webpte doctor`; unless set, the fastest."""

from __future__ import annotations

import os
from typing import Any

import wgpu

from ..errors import DeviceError

VARIABLE = "WEBPTE_ADAPTER"


def open_adapter() -> Any:
    """The adapter of that number, or the one that WebGPU recommends."""
    number = os.environ.get(VARIABLE, "").strip()
    if not number:
        return wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    found = wgpu.gpu.enumerate_adapters_sync()
    if not number.isdecimal() or int(number) >= len(found):
        names = ", ".join(f"{place}: {adapter.info['device']}" for place, adapter in enumerate(found))
        raise DeviceError(
            f"{VARIABLE} is {number!r}; this machine has the adapters {names or 'of none'}", code="unknown_adapter"
        )
    return found[int(number)]
