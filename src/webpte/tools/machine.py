"""Which software and which device a number was measured with."""

from __future__ import annotations

import platform
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ..device import adapter_caps, wgpu_versions
from ..version import __version__

OPTIONAL = ("torch", "executorch")


def versions() -> dict[str, str]:
    """Of webpte and what it stands on, and of what exports for it, where that is installed."""
    found = {"webpte": __version__, **wgpu_versions(), "numpy": np.__version__, "python": platform.python_version()}
    for package in OPTIONAL:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "os": platform.platform()}


def machine() -> dict[str, Any]:
    """The adapter, the versions and the time, for results that are kept."""
    return {
        "adapter": adapter_caps().adapter,
        "versions": versions(),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
