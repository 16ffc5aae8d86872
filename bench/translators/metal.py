"""Check Metal's text without Metal's compiler: its syntax and types as C++, and the limits of the language.

`metal.h` has the types, address spaces and functions of Metal. What it lacks is an error. clang compiles the text with
it, and generates no code. So a wrong type or an unknown function is found, and no wrong result is.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import build

HEADER = Path(__file__).with_name("metal.h")
SECONDS = 600
MAX_BUFFERS = 31
MAX_THREADGROUP_BYTES = 32 << 10
# Metal has no double: literals without a suffix are float. _Float16 needs a target that has it.
OPTIONS = (
    *("-x", "c++", "-std=c++14", "--target=aarch64-none-elf", "-nostdinc", "-fsyntax-only", "-ferror-limit=3"),
    *("-Xclang", "-cl-single-precision-constant", "-Wno-unknown-attributes", "-Wno-user-defined-literals", "-include"),
)
_INCLUDE = re.compile(r"^#include.*$", re.MULTILINE)
_CONSTRUCTOR = re.compile(r"\b(?:metal::)?((?:bool|half|float|int|uint|short|ushort)[234])\(")
_BUFFER = re.compile(r"\[\[buffer\((\d+)\)\]\]")
_THREADGROUP = re.compile(r"^, threadgroup ([\w:]+)& \w+", re.MULTILINE)


def to_cpp(text: str) -> str:
    """Return C++ with the syntax and types of Metal's text, and an assertion on its threadgroup memory."""
    body = _CONSTRUCTOR.sub(r"check::construct<::\1>(", _INCLUDE.sub("", text))
    sizes = " + ".join(f"sizeof({name})" for name in _THREADGROUP.findall(text)) or "0"
    limit = f'static_assert({sizes} <= {MAX_THREADGROUP_BYTES}, "more threadgroup memory than Metal has");'
    return f"{body}\n{limit}\n"


def check(files: Sequence[Path]) -> dict[Path, str]:
    """Return the error of each file of Metal's text; empty if there is none."""
    errors = {}
    sources = {}
    for file in files:
        text = file.read_text(encoding="utf-8")
        slots = [int(slot) for slot in _BUFFER.findall(text)]
        errors[file] = (
            f"{max(slots) + 1} buffers; Metal has {MAX_BUFFERS}" if max(slots, default=0) >= MAX_BUFFERS else ""
        )
        source = file.with_suffix(".cpp")
        source.write_text(to_cpp(text), encoding="utf-8")
        sources[source] = file
    if output := _compile(list(sources)):
        for source, file in sources.items():  # errors in the header do not name the file that causes them
            if source.name in output and (error := _compile([source])):
                errors[file] = error
    return errors


def _compile(sources: Sequence[Path]) -> str:
    """Return what clang prints for files that it rejects; empty if it accepts all."""
    names = [source.name for source in sources]
    command: list[str | Path] = [*build.clang(), *OPTIONS, HEADER, *names]
    environment = build.clang_environment()
    done = subprocess.run(
        command, cwd=sources[0].parent, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    return done.stderr if done.returncode else ""
