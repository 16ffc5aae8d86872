"""Functions that examine programs and return plain data; the command line prints it."""

from __future__ import annotations

import platform
import sys
from typing import TextIO

from ..errors import InputError
from ..version import __version__


def show_versions(file: TextIO | None = None) -> None:
    """Print versions, adapters, drivers and limits, to stdout or to a `file`: paste it into a bug report.

    It runs nothing on the device, and never fails: what cannot be found out is told, with the reason.
    `webpte doctor` also tries whether the device works.
    """
    out = sys.stdout if file is None else file
    if not hasattr(out, "write"):
        raise InputError(
            f"file is a text file that is open for writing, or None, not {type(out).__name__}", code="wrong_type"
        )
    print(_report(), file=out)


def _report() -> str:
    try:
        from .doctor import bug_report, examine  # imports NumPy and wgpu, either of which may be what is broken

        return bug_report(examine(self_test=False))
    except Exception as error:  # it is for machines on which something is wrong
        known = f"webpte {__version__}, python {platform.python_version()}, os {platform.platform()}"
        return f"{known}\nthe rest cannot be told: {type(error).__name__}: {error}"
