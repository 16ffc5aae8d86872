"""Packages of Debian that are downloaded and unpacked into a folder, and not installed.

No privileges, no scripts of packages, and no chroot. apt verifies the packages with Debian's keyring. It uses the
mirror and the proxy that the system's apt uses.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SECONDS = 1800  # for one command


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


def download(work: Path, suite: str, packages: Sequence[str], *, expected: str, needs: bool = True) -> list[Path]:
    """Return the files of packages, and of all that they need if `needs` is set. `expected` must be among them."""
    if not KEYRING.exists():
        raise BuildError(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
    archives = work / "archives"
    (archives / "partial").mkdir(parents=True)
    (work / "lists/partial").mkdir(parents=True)
    (work / "status").touch()  # nothing is installed
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {suite} main\n", encoding="utf-8")
    options = [part for option in apt_options(work) for part in ("-o", option)]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(f"the index of Debian {suite}", ["apt-get", "-q", *options, "update"], env=environment)
    install = ["install", "-y", "--download-only", "--no-install-recommends"] if needs else ["download"]
    command = ["apt-get", "-q", *options, *install, *packages]
    run(f"the packages of Debian {suite}", command, cwd=archives, env=environment)
    files = sorted(archives.glob("*.deb"))
    if not any(file.name.startswith(f"{expected}_") for file in files):
        raise BuildError(f"Debian {suite}: apt-get downloaded {len(files)} packages, without {expected}.")
    return files


def unpack(files: Sequence[Path], root: Path) -> dict[str, str]:
    """Unpack packages into a folder. Return the version of each."""
    root.mkdir(parents=True, exist_ok=True)
    versions = {}
    for file in files:
        run(f"unpacking {file.name}", ["dpkg", "-x", file, root])
        name, version, _ = file.stem.split("_")
        versions[name] = version.replace("%3a", ":")
    return versions


def loader(root: Path) -> Path:
    """Return the loader of programs among unpacked packages; it lies in the folder of the libraries."""
    loaders = sorted(root.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise BuildError(f"Debian: expected a loader in usr/lib of {root}, got none. Delete that folder.")
    return loaders[0]


def apt_options(work: Path) -> list[str]:
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
