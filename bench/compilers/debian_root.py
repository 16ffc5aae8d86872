"""Newer Mesa drivers than the system's: packages of Debian forky, unpacked into the cache.

Mesa 25 of Debian bookworm and trixie has no drivers for Apple's and NVIDIA's GPUs that run here; Mesa 26 has. Its
packages need a newer C library than the system's, so the process that compiles is started with the loader and the
libraries of the packages (`bench/debian.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench import debian
from webpte.folders import cache_folder

SUITE = "forky"
DRIVERS = "mesa-vulkan-drivers"
PACKAGES = (DRIVERS, "libvulkan1", "libdrm-dev", "linux-libc-dev")  # the last two have headers that a stub needs
_REVISION = 1  # of this file: another number builds another root
_VERSIONS = "packages.json"  # written last


def folder() -> Path:
    """Return where the packages are unpacked, or will be."""
    key = hashlib.sha256(f"{SUITE} {PACKAGES} {_REVISION}".encode()).hexdigest()[:12]
    return cache_folder() / "compilers" / f"debian-{SUITE}-{key}"


def missing() -> str | None:
    """Return why the packages cannot be used; None if they are unpacked."""
    return None if (folder() / _VERSIONS).exists() else f"the packages of Debian {SUITE} are not unpacked"


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the version of every unpacked package."""
    known: dict[str, str] = json.loads((folder() / _VERSIONS).read_text(encoding="utf-8"))
    return known


def icd(driver: str) -> Path:
    """Return the description of a driver for Vulkan's loader."""
    return folder() / "usr/share/vulkan/icd.d" / f"{driver}_icd.json"


def include() -> Path:
    """Return the folder of C headers."""
    return folder() / "usr/include"


def python() -> list[str]:
    """Return a command that runs this Python, with its packages, on the libraries of the root."""
    loader = debian.loader(folder())
    return [str(loader), "--library-path", str(loader.parent), "--argv0", sys.executable, sys.executable]


# ---------------------------------------------------------------- building


def build() -> Path:
    """Download, verify and unpack the packages unless they are there. The caller holds the lock of the cache."""
    target = folder()
    if missing() is None:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"debian-{SUITE}-") as partial:
        root = Path(partial) / "root"
        known = debian.unpack(debian.download(Path(partial) / "apt", SUITE, PACKAGES, expected=DRIVERS), root)
        debian.loader(root)
        (root / _VERSIONS).write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # what an interrupted build left
        root.rename(target)
    return target
