"""Build what Debian's packages lack, once, into the cache: `python -m bench.compilers.build intel|mali|adreno`.

    intel           a stub of the kernel interface of Intel's GPUs: a minute. The compiler is in mesa-vulkan-drivers.
    mali, adreno    a driver and the stub that it needs: some minutes each on two cores

The source is Mesa's, of the version that is installed, from the archive that apt uses. It needs these packages:
apt-get install -t bookworm-backports gcc meson ninja-build pkg-config bison flex python3-mako python3-yaml libdrm-dev
and for adreno: libarchive-dev libxml2-dev
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from webpte.cache import cache_folder

MESA = "25.0.7"
SHA256 = "592272df3cf01e85e7db300c449df5061092574d099da275d19e97ef0510f8a6"
COMMON = (
    "-Dgallium-drivers=", "-Dplatforms=", "-Dglx=disabled", "-Degl=disabled", "-Dgbm=disabled", "-Dopengl=false",
    "-Dgles1=disabled", "-Dgles2=disabled", "-Dllvm=disabled", "-Dvideo-codecs=",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The options of meson, and the files that are built."""

    options: tuple[str, ...]
    files: tuple[str, ...]


TARGETS = {
    "intel": Target(
        ("-Dvulkan-drivers=", "-Dtools=intel,drm-shim", "-Dbuildtype=plain"),
        ("src/intel/tools/libintel_noop_drm_shim.so",),
    ),
    "mali": Target(
        ("-Dvulkan-drivers=panfrost", "-Dtools=drm-shim", "-Dbuildtype=plain", "-Db_ndebug=true"),
        ("src/panfrost/vulkan/libvulkan_panfrost.so", "src/panfrost/drm-shim/libpanfrost_noop_drm_shim.so"),
    ),
    "adreno": Target(
        ("-Dvulkan-drivers=freedreno", "-Dtools=drm-shim", "-Dbuildtype=plain", "-Db_ndebug=true"),
        ("src/freedreno/vulkan/libvulkan_freedreno.so", "src/freedreno/drm-shim/libfreedreno_noop_drm_shim.so"),
    ),
}


def folder(name: str) -> Path:
    """Return where the files of a target are, or will be."""
    options = " ".join((*COMMON, *TARGETS[name].options))
    key = hashlib.sha256(f"{SHA256} {options}".encode()).hexdigest()[:12]
    return cache_folder() / "compilers" / f"mesa-{name}-{key}"


def library(name: str, file: str) -> Path:
    """Return the path of a file of a target, by the end of its name."""
    (path,) = (path for path in TARGETS[name].files if path.endswith(file))
    return folder(name) / Path(path).name


def icd(name: str) -> Path:
    """Return the description of a driver for Vulkan's loader."""
    return folder(name) / "icd.json"


def missing(name: str) -> str | None:
    """Return why a target cannot be used; None if it is built."""
    built = all((folder(name) / Path(path).name).exists() for path in TARGETS[name].files)
    return None if built else f"Mesa's part is not built: python -m bench.compilers.build {name}"


def build(name: str) -> Path:
    """Build a target unless it is in the cache, and return its folder."""
    target = folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "build.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if missing(name) is not None:
            _build(name, target)
    return target


def _build(name: str, target: Path) -> None:
    source = _source(target.parent)
    work = target.parent / f"build-{name}"
    shutil.rmtree(work, ignore_errors=True)
    # Mesa's generators need the modules of Debian's Python, which a virtual environment hides.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"/usr/bin:{environment['PATH']}"
    options = [*COMMON, *TARGETS[name].options]
    subprocess.run(["meson", "setup", work, *options], cwd=source, env=environment, check=True)
    subprocess.run(["ninja", "-C", work, *TARGETS[name].files], env=environment, check=True)
    target.mkdir(exist_ok=True)
    for path in TARGETS[name].files:
        shutil.copy(work / path, target)
    driver = next((Path(path).name for path in TARGETS[name].files if "vulkan" in path), None)
    if driver is not None:
        about = {"api_version": "1.4.305", "library_path": str(target / driver)}
        icd(name).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": about}))
    shutil.rmtree(work)
    shutil.rmtree(source)


def _source(parent: Path) -> Path:
    """Download and unpack Mesa's source."""
    uri = subprocess.run(
        ["apt-get", "download", "--print-uris", "mesa-vulkan-drivers"], capture_output=True, text=True, check=True
    )
    package = re.match(r"'(.*)/[^/]*'", uri.stdout)
    if package is None:
        raise RuntimeError(f"apt-get names no address of mesa-vulkan-drivers: {uri.stdout!r}")
    with urllib.request.urlopen(f"{package[1]}/mesa_{MESA}.orig.tar.xz") as response:
        data = response.read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise RuntimeError(f"mesa_{MESA}.orig.tar.xz: its SHA-256 is not {SHA256}")
    archive = parent / "mesa.tar.xz"
    archive.write_bytes(data)
    subprocess.run(["tar", "-C", parent, "-xf", archive], check=True)
    archive.unlink()
    return parent / f"mesa-{MESA}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compilers.build", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=TARGETS)
    print(build(parser.parse_args().name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
