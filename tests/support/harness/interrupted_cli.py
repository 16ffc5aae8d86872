"""`webpte` that gets Ctrl-C at a chosen moment: `python -m tests.support.harness.interrupted_cli MOMENT chat MODEL`.

The moment is a module that is about to be imported, such as `wgpu`, or a stage of loading that has begun, such as
`compile`. So the signal comes neither too early nor too late, however fast the machine is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from webpte import cli, progress

MOMENT = sys.argv.pop(1)


def reached(moment: str) -> None:
    if moment == MOMENT:
        os.kill(os.getpid(), signal.SIGINT)


class Importing(MetaPathFinder):
    """Finds nothing, but is asked first."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        reached(fullname)


class Told(progress.Progress):
    def __init__(self, stage: str, *arguments: Any) -> None:
        super().__init__(stage, *arguments)
        reached(stage)


if __name__ == "__main__":
    sys.meta_path.insert(0, Importing())
    setattr(progress, "Progress", Told)  # noqa: B010
    cli.entry()
