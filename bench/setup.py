"""Install the peers, each into an environment of its own beside the caches: `python -m bench.setup [NAME…]`.

Those of a page come from npm, and only where they are named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from .rows import cache_root
from .workers import ENVIRONMENTS, Environment

NPM = {"onnxruntime-web": "onnxruntime-web@1.30.0"}


def npm_folder() -> Path:
    return cache_root().parent / "bench-npm"


def install_npm(package: str) -> None:
    print(f"{package}: {npm_folder()}", flush=True)
    npm_folder().mkdir(parents=True, exist_ok=True)
    where = ["--prefix", str(npm_folder()), "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(["npm", "install", *where, package], check=True)


def install(environment: Environment) -> None:
    print(f"{environment.name}: {environment.folder}", flush=True)
    if not environment.python.exists():
        venv.create(environment.folder, with_pip=True)
    pip = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "numpy", *environment.packages], check=True)


def main(names: Iterable[str] | None = None) -> int:
    peers = {name: environment for name, environment in ENVIRONMENTS.items() if environment.packages}
    parser = argparse.ArgumentParser(prog="python -m bench.setup", description=__doc__)
    known = [*peers, *NPM]
    parser.add_argument("peers", nargs="*", help=f"some of {', '.join(known)}; all of Python's if none is named")
    chosen = parser.parse_args(None if names is None else list(names)).peers or list(peers)
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    for name in chosen:
        if name in NPM:
            install_npm(NPM[name])
        else:
            install(peers[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
