"""Examine programs and machines: check, inspect, compare, profile, doctor. The functions return plain data.

This module imports neither NumPy nor wgpu, either of which may be broken when `show_versions` is needed.
"""

from __future__ import annotations

import platform
import sys
from typing import TextIO

from ..errors import InputError
from ..version import __version__


def show_versions(file: TextIO | None = None) -> None:
    """Print versions, adapters, drivers and limits to stdout or to a `file`, for a bug report.

    It runs nothing on the device. If something cannot be determined, the reason is printed and no error is raised.
    `webpte doctor` also tests the device.
    """
    out = sys.stdout if file is None else file
    if not hasattr(out, "write"):
        raise InputError(
            argument="file", expected="a text file open for writing, or None", got=type(out).__name__, code="wrong_type"
        )
    print(_report(), file=out)


def _report() -> str:
    try:
        from .doctor import bug_report, examine

        return bug_report(examine(self_test=False))
    except Exception as error:  # a broken machine is what it is for
        known = f"webpte {__version__}, python {platform.python_version()}, os {platform.platform()}"
        return f"{known}\nno more is known: {type(error).__name__}: {error}"
