"""GPUs whose compilers run here, and the processes that compile for them.

Mesa's drivers compile for a GPU that is not there: RADV by itself, the others with a stub of the kernel interface
(`build.py`). `null_driver.c` lets WebGPU accept RADV's device. The drivers of Apple's and NVIDIA's GPUs are of a newer
Mesa, with the libraries of a newer Debian (`debian_root.py`). Nothing is executed.

Reports are cached in `compilers` of webpte's cache folder, keyed by the kernel, the device, the driver and wgpu.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from webpte.folders import cache_folder
from webpte.wgsl import AMD, APPLE, ARM, INTEL, MANY_REGISTERS, VENDOR_REGISTERS, Caps, Kernel, render

from . import build, debian_root, parse

HERE = Path(__file__).parent
ICDS = Path("/usr/share/vulkan/icd.d")
VENDOR_IDS = {"amd": AMD, "apple": APPLE, "intel": INTEL, "mali": ARM}  # those that kernels are chosen by
SECONDS = 1800  # for all kernels of a program
CHECKED = "checked_"  # prefix of figures of a kernel that checks bounds
CHECKED_FIGURES = ("registers", "occupancy", "instructions", "spills", "loop_instructions")


HOST_MESA, NEWER_MESA = "mesa", "newer_mesa"  # names in reports of the versions of two packages


class CompilerError(Exception):
    """A driver is missing, or rejected a kernel."""


@dataclass(frozen=True)
class Source:
    """What a driver compiles. A file of WGSL has no workgroup size to set, and a layout that WebGPU derives."""

    text: str
    workgroup: int | None = None
    reads: int | None = None
    writes: int = 0

    @staticmethod
    def of(kernel: Kernel) -> Source:
        return Source(render(kernel), kernel.workgroup, kernel.reads, kernel.writes)


@dataclass(frozen=True)
class Device:
    """A GPU. `subgroup` is the width that plans rely on: 4 if the compiler chooses one for each kernel."""

    name: str
    title: str
    vendor: str  # a key of VENDORS
    code: str  # its name for the driver
    subgroup: int


DEVICES = {
    device.name: device
    for device in (
        Device("navi31", "Radeon RX 7900 (RDNA 3)", "amd", "navi31", 32),
        Device("navi21", "Radeon RX 6800 (RDNA 2)", "amd", "navi21", 32),
        Device("gfx1151", "Radeon 8060S (RDNA 3.5)", "amd", "gfx1151", 32),
        Device("gfx1201", "Radeon RX 9070 (RDNA 4)", "amd", "gfx1201", 32),
        Device("vega10", "Radeon RX Vega (GCN 5)", "amd", "vega10", 64),
        Device("polaris10", "Radeon RX 480 (GCN 4)", "amd", "polaris10", 64),
        Device("tgl", "Iris Xe of Tiger Lake (Xe-LP)", "intel", "tgl", 4),
        Device("dg2", "Arc A770M (Xe-HPG)", "intel", "dg2", 4),
        Device("lnl", "Arc 140V of Lunar Lake (Xe2)", "intel", "lnl", 4),
        Device("g610", "Mali-G610 (Valhall)", "mali", "a867", 16),
        Device("a740", "Adreno 740", "adreno", "740", 64),
        Device("m1", "Apple M1 (G13)", "apple", "g13g", 32),
        Device("m2", "Apple M2 (G14)", "apple", "g14g", 32),
        Device("turing", "GeForce RTX 20 (Turing)", "nvidia", "162", 32),
        Device("ampere", "GeForce RTX 30 (Ampere)", "nvidia", "172", 32),
    )
}


@dataclass(frozen=True)
class Vendor:
    """How one driver is started, and how its reports are read."""

    driver: str  # what reports and documents call it
    missing: Callable[[], str | None]  # why it cannot be used here
    environment: Callable[[Device], dict[str, str]]
    parse: Callable[[str], dict[str, int]]
    mesa: str = HOST_MESA  # the package that has the driver
    # Variables with which the driver adds checks of bounds to a kernel, if that changes its instructions. Figures with
    # checks have the prefix CHECKED.
    checks: Mapping[str, str] | None = None
    revision: int = 1  # of the parser: a change of its figures needs another number, because figures are cached


# ---------------------------------------------------------------- the drivers


def folder() -> Path:
    return cache_folder() / "compilers"


def _missing_radv() -> str | None:
    if not (ICDS / "radeon_icd.json").exists():
        return "RADV is not installed: apt-get install mesa-vulkan-drivers"
    if not shutil.which("cc"):
        return "there is no C compiler: apt-get install gcc libc6-dev"
    if not Path("/usr/include/vulkan/vk_icd.h").exists():
        return "Vulkan's headers are not installed: apt-get install libvulkan-dev"
    return None


@functools.cache
def _null_driver() -> Path:
    """Return the description of the null driver, which is compiled once per version of its source."""
    source = HERE / "null_driver.c"
    target = folder() / f"null-driver-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    icd = target / "icd.json"
    if not icd.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as partial:
            library = Path(partial) / "libnull_driver.so"
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
            about = {"api_version": "1.4.305", "library_path": str(target / library.name)}
            (Path(partial) / icd.name).write_text(json.dumps({"file_format_version": "1.0.0", "ICD": about}))
            shutil.copytree(partial, target, dirs_exist_ok=True)
    return icd


def _radv(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(_null_driver()),
        "RADV_FORCE_FAMILY": device.code,
        "RADV_DEBUG": "shaderstats,asm,nocache",
    }


def _missing_anv() -> str | None:
    if not (ICDS / "intel_icd.json").exists():
        return "ANV is not installed: apt-get install mesa-vulkan-drivers"
    return build.missing("intel")


def _anv(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(ICDS / "intel_icd.json"),
        "LD_PRELOAD": str(build.library("intel", "drm_shim.so")),
        "INTEL_STUB_GPU_PLATFORM": device.code,
        "INTEL_DEBUG": "cs",
        "MESA_SHADER_CACHE_DISABLE": "1",
    }


def _panvk(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(build.icd("mali")),
        "LD_PRELOAD": str(build.library("mali", "drm_shim.so")),
        "PAN_GPU_ID": device.code,
        "PAN_I_WANT_A_BROKEN_VULKAN_DRIVER": "1",
        "BIFROST_MESA_DEBUG": "shaderdb",
        "MESA_SHADER_CACHE_DISABLE": "1",
    }


def _turnip(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(build.icd("adreno")),
        "LD_PRELOAD": str(build.library("adreno", "drm_shim.so")),
        "FD_GPU_ID": device.code,
        "IR3_SHADER_DEBUG": "cs",
        "MESA_SHADER_CACHE_DISABLE": "1",
    }


def _asahi(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(debian_root.icd("asahi")),
        "LD_PRELOAD": str(build.library("apple", "stub.so")),
        "AGX_STUB": device.code,
        "AGX_MESA_DEBUG": "shaderdb,shaders",
        "HK_PERFTEST": "norobust",
        "MESA_SHADER_CACHE_DISABLE": "1",
    }


def _nvk(device: Device) -> dict[str, str]:
    return {
        "VK_ICD_FILENAMES": str(debian_root.icd("nouveau")),
        "LD_PRELOAD": str(build.library("nvidia", "drm_shim.so")),
        "NOUVEAU_CHIPSET": device.code,
        "NVK_I_WANT_A_BROKEN_VULKAN_DRIVER": "1",
        "NAK_DEBUG": "print",
        "MESA_SHADER_CACHE_DISABLE": "1",
    }


VENDORS = {
    "amd": Vendor("RADV", _missing_radv, _radv, parse.radv),
    "intel": Vendor("ANV", _missing_anv, _anv, parse.anv),
    "mali": Vendor("panvk", functools.partial(build.missing, "mali"), _panvk, parse.panvk),
    "adreno": Vendor("turnip", functools.partial(build.missing, "adreno"), _turnip, parse.turnip),
    "apple": Vendor(
        "Honeykrisp",
        functools.partial(build.missing, "apple"),
        _asahi,
        parse.agx,
        mesa=NEWER_MESA,
        checks={"HK_PERFTEST": ""},
    ),
    "nvidia": Vendor("NVK", functools.partial(build.missing, "nvidia"), _nvk, parse.nak, mesa=NEWER_MESA),
}


def missing(device: Device) -> str | None:
    """Return why kernels cannot be compiled for a device here; None if they can."""
    return VENDORS[device.vendor].missing()


# ---------------------------------------------------------------- compiling

_BLOCK = re.compile(r"^@@ begin (\d+)\n(.*?)^@@ end$", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"^@@ error (.*)$", re.MULTILINE)


def _run(
    device: Device, sources: Sequence[Source], variables: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Start a worker; return what its adapter is, and the report of every kernel."""
    vendor = VENDORS[device.vendor]
    if (reason := vendor.missing()) is not None:
        raise CompilerError(f"{device.name}: {reason}")
    dropped = ("WEBPTE_DEVICE", "WEBPTE_ADAPTER", "VK_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT", "LD_PRELOAD")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    python = debian_root.python() if vendor.mesa == NEWER_MESA else [sys.executable]
    with tempfile.TemporaryDirectory() as runtime:
        worker = subprocess.run(
            [*python, HERE / "worker.py"],
            input=json.dumps([asdict(source) for source in sources]).encode(),
            capture_output=True,
            timeout=SECONDS,
            env={**environment, "XDG_RUNTIME_DIR": runtime, **vendor.environment(device), **(variables or {})},
        )
    errors = worker.stderr.decode(errors="replace")
    blocks = {int(number): text for number, text in _BLOCK.findall(errors)}
    if worker.returncode or len(blocks) != len(sources):
        raise CompilerError(f"{device.name}: the compiler ended with {worker.returncode}: {errors[-2000:]}")
    adapter = json.loads(worker.stdout.decode().splitlines()[-1])
    if adapter["backend"] != "Vulkan" or "llvmpipe" in adapter["device"]:
        raise CompilerError(f"{device.name}: WebGPU selected {adapter['device']} ({adapter['backend']}) instead")
    return adapter, [blocks[number] for number in range(len(sources))]


def _cached(parts: Mapping[str, object], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    path = _cache_path(parts)
    if not path.exists():
        _store(path, make())
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def _cache_path(parts: Mapping[str, object]) -> Path:
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    return folder() / "reports" / key[:2] / f"{key}.json"


def _store(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(content))
    partial.replace(path)


@functools.cache
def mesa_version(package: str) -> str:
    """Return the version of the drivers in the system (HOST_MESA) or in the root of a newer Debian (NEWER_MESA)."""
    if package == NEWER_MESA:
        return debian_root.versions()[debian_root.DRIVERS]
    return subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", debian_root.DRIVERS], capture_output=True, text=True
    ).stdout


def versions(devices: Iterable[Device]) -> dict[str, str]:
    """Return the versions that reports of these devices depend on."""
    packages = sorted({VENDORS[device.vendor].mesa for device in devices})
    return {**{package: mesa_version(package) for package in packages}, "wgpu": version("wgpu")}


@functools.cache
def _code() -> str:
    """Return a hash of the files that reports depend on besides parsers, which have revisions."""
    names = ("worker.py", "null_driver.c", "asahi_stub.c")
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in names)).hexdigest()


def _key(device: Device) -> dict[str, object]:
    """Return what reports of a device depend on besides kernel and parser."""
    return {"device": asdict(device), "code": _code(), **versions((device,))}


@functools.cache
def adapter(device: Device) -> dict[str, Any]:
    """Return what the adapter of a device is: its name, driver, features and limits."""
    if (reason := missing(device)) is not None:
        raise CompilerError(f"{device.name}: {reason}")
    return _cached({"adapter": True, **_key(device)}, lambda: _run(device, ())[0])


def caps(device: Device) -> Caps:
    """Return the capabilities that a plan for the device may use."""
    about = adapter(device)
    features = frozenset(about["features"])
    width = device.subgroup if "subgroup" in features else 0
    vendor = VENDOR_IDS.get(device.vendor, 0)
    registers = VENDOR_REGISTERS.get(vendor, MANY_REGISTERS)
    return Caps(about["limits"], features, about["device"], "gpu", width, registers, vendor)


def compile_all(device: Device, sources: Sequence[Source]) -> list[dict[str, int]]:
    """Return the figures of each kernel on a device, from the cache or compiled now in one process."""
    vendor = VENDORS[device.vendor]
    if (reason := vendor.missing()) is not None:
        raise CompilerError(f"{device.name}: {reason}")
    shared = {"revision": vendor.revision, **_key(device)}
    paths = [_cache_path({"source": asdict(source), **shared}) for source in sources]
    new = {path: source for path, source in zip(paths, sources, strict=True) if not path.exists()}
    if new:
        figures = _figures(device, list(new.values()))
        if vendor.checks is not None:
            checked = _figures(device, list(new.values()), vendor.checks)
            for plain, others in zip(figures, checked, strict=True):
                plain |= {f"{CHECKED}{name}": others[name] for name in CHECKED_FIGURES}
        for path, one in zip(new, figures, strict=True):
            _store(path, one)
    return [json.loads(path.read_text()) for path in paths]


def _figures(
    device: Device, sources: Sequence[Source], variables: Mapping[str, str] | None = None
) -> list[dict[str, int]]:
    """Compile kernels in one process and return the figures of each."""
    _, reports = _run(device, sources, variables)
    for source, report in zip(sources, reports, strict=True):
        if (error := _ERROR.search(report)) is not None:
            raise CompilerError(f"{device.name} rejects a kernel: {error[1]}\n{source.text[:200]}")
    return [VENDORS[device.vendor].parse(report) for report in reports]
