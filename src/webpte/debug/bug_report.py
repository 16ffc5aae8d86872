"""Write what a maintainer needs to investigate a failure into one file, without user names, folders and weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..environment import PREFIX, variable, variables
from ..errors import Error
from ..typing import PathLike
from .check import check_file
from .doctor import ENVIRONMENT, DoctorReport, bug_report, self_test_child
from .inspect import inspect_file
from .selftest import LOG_OPTION

README = """\
doctor.txt, doctor.json  versions, adapters, features, limits and the self-test
environment.json         variables of webpte and of drivers
selftest.log             messages of a self-test, and how its process ended
inspect.json, check.json contents of the program and what prevents it from running; no weights
"""


def write_bug_report(
    path: PathLike, report: DoctorReport, program: PathLike | None = None, *, log: bool = True
) -> None:
    """Write a .zip file with a report of `doctor.examine`. `log` runs a self-test once more for its messages."""
    files: list[PathLike] = [] if program is None else [program]
    contents: dict[str, Any] = {
        "README.txt": README,
        "doctor.txt": bug_report(report) + "\n",
        "doctor.json": report,
        "environment.json": _environment(),
    }
    if log:
        contents["selftest.log"] = _self_test_log()
    for file in files:
        contents["inspect.json"] = _or_error(inspect_file, file)
        contents["check.json"] = _or_error(check_file, file)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            clean = without_personal_data(content, files)
            archive.writestr(name, clean if isinstance(clean, str) else json.dumps(clean, indent=2, default=str) + "\n")


def _environment() -> dict[str, str]:
    return variables(ENVIRONMENT, PREFIX)


def _self_test_log() -> str:
    try:
        child = self_test_child(LOG_OPTION)
    except subprocess.TimeoutExpired as error:
        return f"the device did not answer within {error.timeout:.0f} s\n"
    return f"{child.stderr}{child.stdout}the process ended with {child.returncode}\n"


def _or_error(function: Callable[[PathLike], Mapping[str, object]], path: PathLike) -> Mapping[str, object]:
    try:
        return function(path)
    except Error as error:
        return {"error": error.to_json()}


def without_personal_data(value: Any, files: Sequence[PathLike] = ()) -> Any:
    """Return a JSON value whose strings name neither the user nor the folders of the user and of `files`."""
    return _replaced(value, _personal_patterns(files))


Patterns = list[tuple[re.Pattern[str], str]]


def _replaced(value: Any, patterns: Patterns) -> Any:
    if isinstance(value, str):
        for pattern, replacement in patterns:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, Mapping):
        return {_replaced(key, patterns): _replaced(item, patterns) for key, item in value.items()}
    return [_replaced(item, patterns) for item in value] if isinstance(value, (list, tuple)) else value


def _personal_patterns(files: Sequence[PathLike]) -> Patterns:
    """Return what to replace: longer folders before those that contain them, and folders before names."""
    home, folder = os.path.expanduser("~"), os.getcwd()
    places = {path: os.path.basename(file) for file in files for path in (os.fspath(file), os.path.abspath(file))}
    places |= {os.path.dirname(os.path.abspath(file)): "." for file in files}
    places |= {folder: ".", tempfile.gettempdir(): "TMP", os.path.realpath(home): "~", home: "~"}
    names = {variable(name) for name in ("LOGNAME", "USER", "USERNAME")} | {os.path.basename(home)}
    patterns = [
        (re.compile(rf"(?<![\w.]){re.escape(place)}(?![\w-])"), mark)
        for place, mark in sorted(places.items(), key=lambda item: -len(item[0]))
        if len(place) > 1
    ]
    # "root" is not a personal name. Shorter names than three letters would match parts of other words.
    personal = sorted(name for name in names if len(name) > 2 and name != "root")
    return patterns + [(re.compile(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"), "USER") for name in personal]
