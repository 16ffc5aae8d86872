"""Devices that the same tests run on: another driver, or the usual one with less to offer.

`pytest --configuration swiftshader tests/gpu/test_cases.py`; `python -m tests.studies devices` runs them all and writes
docs/devices.md. No wgpu here: what a configuration sets must be set before it is imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# Debian's chromium ships Google's software Vulkan driver.
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")


@dataclass(frozen=True)
class Configuration:
    """A device, or what of it may be used."""

    about: str
    device: str = ""  # WEBPTE_DEVICE
    driver: Path | None = None  # None is the one the system chooses
    bursts: bool = False  # generations take several tokens per submit, however long a step takes

    @property
    def missing(self) -> str | None:
        """Why it cannot be used here."""
        if self.driver is not None and not self.driver.exists():
            return f"{self.driver} does not exist; on Debian install chromium"
        return None

    @property
    def environment(self) -> dict[str, str]:
        driver = {} if self.driver is None else dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), str(self.driver))
        return {"WEBPTE_DEVICE": self.device} | driver

    def apply(self) -> None:
        os.environ.update(self.environment)


CONFIGURATIONS = {
    "usual": Configuration("the system's driver, all it offers"),
    "swiftshader": Configuration("no f16, subgroups of 4, 10 storage buffers", driver=SWIFTSHADER),
    "browser": Configuration("a browser's default limits, no f16, no subgroups", "browser"),
    "no-f16": Configuration("halves in words", "no-f16"),
    "no-subgroups": Configuration("values shared through workgroup memory", "no-subgroups"),
    "gpu-order": Configuration("kernels as a GPU is given them, products in f32", "gpu,exact"),
    "bursts": Configuration("several tokens per submit, always", bursts=True),
}
