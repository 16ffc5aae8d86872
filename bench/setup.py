"""Install the peers, each into an environment of its own beside the caches: `python -m bench.setup [NAME…]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterable

from .workers import ENVIRONMENTS, Environment


def install(environment: Environment) -> None:
    print(f"{environment.name}: {environment.folder}", flush=True)
    if not environment.python.exists():
        venv.create(environment.folder, with_pip=True)
    pip = [str(environment.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "numpy", *environment.packages], check=True)


def main(names: Iterable[str] | None = None) -> int:
    peers = {name: environment for name, environment in ENVIRONMENTS.items() if environment.packages}
    parser = argparse.ArgumentParser(prog="python -m bench.setup", description=__doc__)
    parser.add_argument("peers", nargs="*", help=f"some of {', '.join(peers)}; all if none is named")
    chosen = parser.parse_args(None if names is None else list(names)).peers or list(peers)
    if unknown := sorted(set(chosen) - set(peers)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(peers)}")
    for name in chosen:
        install(peers[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
