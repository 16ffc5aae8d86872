"""WEBPTE_DEVICE: use the machine's adapter as if it were another one, to see how programs run there.

WEBPTE_DEVICE=browser webpte run model.pte        # no more than a browser grants by default
WEBPTE_DEVICE=no-f16,gpu python script.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ..errors import DeviceError
from ..wgsl import BROWSER_LIMITS, Caps

VARIABLE = "WEBPTE_DEVICE"


def _without(caps: Caps, *features: str) -> Caps:
    left = caps.features.difference(features)
    return replace(caps, features=left, subgroup=caps.subgroup if "subgroup" in left else 0)


RESTRICTIONS: dict[str, Callable[[Caps], Caps]] = {
    "browser": lambda caps: _without(caps.within(BROWSER_LIMITS), "shader-f16", "subgroup"),
    "no-f16": lambda caps: _without(caps, "shader-f16"),
    "no-subgroups": lambda caps: _without(caps, "subgroup"),
    "gpu": lambda caps: replace(caps, kind="gpu"),  # kernels as a GPU would be given them, on any device
}


def restricted(caps: Caps) -> Caps:
    """What of an adapter may be used. Its name tells: kernels measured for one device are not for another."""
    asked = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if unknown := sorted(set(asked) - set(RESTRICTIONS)):
        raise DeviceError(f"{VARIABLE} names {', '.join(unknown)}; it takes {', '.join(RESTRICTIONS)}, and commas")
    for name in asked:
        caps = RESTRICTIONS[name](caps)
    return replace(caps, adapter=f"{caps.adapter} as {', '.join(asked)}") if asked else caps
