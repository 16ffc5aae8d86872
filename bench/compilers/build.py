"""Build what Debian's packages lack, once, into the cache: `python -m bench.compilers.build apple nvidia`.

    intel           a stub of the kernel interface of Intel's GPUs: a minute. The compiler is in mesa-vulkan-drivers.
    mali, adreno    a driver and the stub that it needs: some minutes each on two cores
    apple           Mesa 26 of Debian forky, unpacked into the cache (350 MB), and a stub: half a minute
    nvidia          the same drivers, and a stub from Mesa's source: two minutes

The source is Mesa's, of the version that is installed, from the archive that apt uses. It needs these packages:
apt-get install -t bookworm-backports gcc meson ninja-build pkg-config bison flex python3-mako python3-yaml libdrm-dev
and for adreno: libarchive-dev libxml2-dev glslang-tools
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.debian import BuildError, run
from webpte.folders import cache_folder

from . import debian_root

HERE = Path(__file__).parent
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
    "nvidia": Target(  # meson uses the last of two settings of an option
        ("-Dvulkan-drivers=", "-Dgallium-drivers=nouveau", "-Dtools=drm-shim", "-Dbuildtype=plain"),
        ("src/nouveau/drm-shim/libnouveau_noop_drm_shim.so",),
    ),
}
APPLE = "libasahi_stub.so"
NAMES = (*TARGETS, "apple")
OF_DEBIAN_ROOT = ("apple", "nvidia")  # their drivers are in the newer Mesa


def folder(name: str) -> Path:
    """Return where the files of a target are, or will be."""
    if name == "apple":
        parts = f"{(HERE / 'asahi_stub.c').read_bytes()!r} {debian_root.folder().name}"
        return cache_folder() / "compilers" / f"asahi-stub-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
    options = " ".join((*COMMON, *TARGETS[name].options))
    key = hashlib.sha256(f"{SHA256} {options}".encode()).hexdigest()[:12]
    return cache_folder() / "compilers" / f"mesa-{name}-{key}"


def _files(name: str) -> list[Path]:
    """Return the files of a target that is built."""
    names = [APPLE] if name == "apple" else [Path(path).name for path in TARGETS[name].files]
    return [folder(name) / file for file in names]


def library(name: str, file: str) -> Path:
    """Return the path of a file of a target, by the end of its name."""
    (path,) = (path for path in _files(name) if path.name.endswith(file))
    return path


def icd(name: str) -> Path:
    """Return the description of a driver for Vulkan's loader."""
    return folder(name) / "icd.json"


def missing(name: str) -> str | None:
    """Return why a target cannot be used; None if it is built."""
    built = all(path.exists() for path in _files(name))
    if built and name in OF_DEBIAN_ROOT:
        built = debian_root.missing() is None
    return None if built else f"Mesa's part is not built: python -m bench.compilers.build {name}"


def build(name: str) -> Path:
    """Build a target unless it is in the cache, and return its folder. Raise BuildError if it cannot be built."""
    target = folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "build.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name in OF_DEBIAN_ROOT:
            debian_root.build()
        if missing(name) is not None:
            _compile_stub(target) if name == "apple" else _build(name, target)
    return target


def _compile_stub(target: Path) -> None:
    """Compile the stub of the kernel interface of Apple's GPUs with the system's C library and newer headers."""
    newer = debian_root.include()
    target.mkdir(exist_ok=True)
    partial = target / f"{APPLE}.partial"
    options = ["-O1", "-shared", "-fPIC", f"-I{newer / 'libdrm'}", "-idirafter", str(newer), "-o", str(partial)]
    run("the stub of Apple's kernel interface", ["cc", *options, HERE / "asahi_stub.c"])
    partial.replace(target / APPLE)


def _build(name: str, target: Path) -> None:
    source = _source(target.parent)
    work = target.parent / f"build-{name}"
    shutil.rmtree(work, ignore_errors=True)
    # Mesa's generators need the modules of Debian's Python, which a virtual environment hides.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"/usr/bin:{environment['PATH']}"
    options = [*COMMON, *TARGETS[name].options]
    run(f"the configuration of {name}", ["meson", "setup", work, *options], cwd=source, env=environment)
    run(f"the build of {name}", ["ninja", "-C", work, *TARGETS[name].files], env=environment)
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
    uris = run("the address of Mesa's source", ["apt-get", "download", "--print-uris", "mesa-vulkan-drivers"])
    package = re.search(r"^'(.*)/[^/]*'", uris, re.MULTILINE)
    if package is None:
        raise BuildError(f"apt-get names no address of mesa-vulkan-drivers: {uris!r}")
    address = f"{package[1]}/mesa_{MESA}.orig.tar.xz"
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            data = response.read()
    except OSError as error:
        raise BuildError(f"Mesa's source: {address}: {error}") from error
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise BuildError(f"{address}: its SHA-256 is not {SHA256}")
    archive = parent / "mesa.tar.xz"
    archive.write_bytes(data)
    run("unpacking Mesa's source", ["tar", "-C", parent, "-xf", archive])
    archive.unlink()
    return parent / f"mesa-{MESA}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compilers.build", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    try:
        for name in parser.parse_args().names:
            print(build(name), flush=True)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
