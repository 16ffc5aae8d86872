"""Newer Mesa drivers than the system's: packages of Debian forky, unpacked into the cache.

Mesa 25 of Debian bookworm and trixie has no drivers for Apple's and NVIDIA's GPUs that run here; Mesa 26 has. Its
packages need a newer C library than the system's, so the process that compiles is started with the loader and the
libraries of the packages. They are unpacked and not installed: no privileges, no scripts of packages, and no chroot.

apt verifies the packages with Debian's keyring. It uses the mirror and the proxy that the system's apt uses.
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
from collections.abc import Mapping, Sequence
from pathlib import Path

from webpte.cache import cache_folder

SUITE = "forky"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DRIVERS = "mesa-vulkan-drivers"
PACKAGES = (DRIVERS, "libvulkan1", "libdrm-dev", "linux-libc-dev")  # the last two have headers that a stub needs
SECONDS = 1800  # for one command
_REVISION = 1  # of this file: another number builds another root
_VERSIONS = "packages.json"  # written last


class BuildError(Exception):
    """A part that a compiler needs cannot be built here."""


def run(
    purpose: str, command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a command and return its output. Raise BuildError with its last lines if it is missing or fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=SECONDS,
            cwd=cwd,
            env=env,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{purpose}: {error.filename} is not installed.") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{purpose}: {command[0]} did not end within {SECONDS} s.") from error
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-12:])
        raise BuildError(f"{purpose}: {command[0]} ended with {done.returncode}:\n{end}")
    return done.stdout


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
    loader = _loader(folder())
    return [str(loader), "--library-path", str(loader.parent), "--argv0", sys.executable, sys.executable]


def _loader(root: Path) -> Path:
    """Return the loader of programs; it lies in the folder of the libraries."""
    loaders = sorted(root.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise BuildError(f"Debian {SUITE}: expected a loader in usr/lib of {root}, got none. Delete that folder.")
    return loaders[0]


# ---------------------------------------------------------------- building


def build() -> Path:
    """Download, verify and unpack the packages unless they are there. The caller holds the lock of the cache."""
    target = folder()
    if missing() is None:
        return target
    if not KEYRING.exists():
        raise BuildError(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"debian-{SUITE}-") as partial:
        work, root = Path(partial) / "apt", Path(partial) / "root"
        packages = _download(work)
        root.mkdir()
        known = {}
        for package in packages:
            run(f"unpacking {package.name}", ["dpkg", "-x", package, root])
            name, version, _ = package.stem.split("_")
            known[name] = version.replace("%3a", ":")
        _loader(root)
        (root / _VERSIONS).write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # what an interrupted build left
        root.rename(target)
    return target


def _download(work: Path) -> list[Path]:
    """Return the files of the packages and of all that they need."""
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()  # nothing is installed
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main\n", encoding="utf-8")
    options = [part for option in _apt_options(work) for part in ("-o", option)]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(f"the index of Debian {SUITE}", ["apt-get", "-q", *options, "update"], env=environment)
    install = ["install", "-y", "--download-only", "--no-install-recommends", *PACKAGES]
    run(f"the packages of Debian {SUITE}", ["apt-get", "-q", *options, *install], env=environment)
    packages = sorted((work / "archives").glob("*.deb"))
    if not any(package.name.startswith(f"{DRIVERS}_") for package in packages):
        raise BuildError(f"Debian {SUITE}: apt-get downloaded {len(packages)} packages, without {DRIVERS}.")
    return packages


def _apt_options(work: Path) -> list[str]:
    """Return options that separate apt from the system's packages, and that require signatures."""
    return [
        f"Dir::Etc::sourcelist={work / 'sources.list'}",
        "Dir::Etc::sourceparts=/dev/null",
        "Dir::Etc::preferences=/dev/null",
        "Dir::Etc::preferencesparts=/dev/null",
        f"Dir::State={work}",
        f"Dir::State::status={work / 'status'}",
        f"Dir::Cache={work}",
        "APT::Default-Release=",
        "APT::Sandbox::User=",  # the folder is the user's
        "APT::Update::Error-Mode=any",
        "Acquire::AllowInsecureRepositories=false",
        "Acquire::AllowWeakRepositories=false",
        "Acquire::AllowDowngradeToInsecureRepositories=false",
        "APT::Get::AllowUnauthenticated=false",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
    ]


def _mirror() -> str:
    """Return the address of Debian's archive that the system's apt uses."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN)", "Created-By: Packages"]
    return mirror_of(run("the mirror of apt", command))


def mirror_of(sites: str) -> str:
    """Return the first archive of Debian among lines with an address and an origin; security updates are another."""
    sites_of_debian = re.findall(r"^(\S+) Debian$", sites, re.MULTILINE)
    return next((site for site in sites_of_debian if "security" not in site), "https://deb.debian.org/debian")
