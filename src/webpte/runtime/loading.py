"""A file, or a folder, into a program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from ..container import MappedFile, parse_program, parse_tensors
from ..errors import InputError
from ..fusion import PASSES
from ..progress import CancelToken, OnProgress, Progress, ignore, stoppable
from .bundle import Bundle
from .log import log_loaded
from .manifest import is_bundle, read_manifest
from .program import Options, Program, Tune

PathLike = str | os.PathLike[str]


def load(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    fallback: Literal["cpu"] | None = None,
    limits: Mapping[str, int] | None = None,
    passes: Sequence[str] | None = None,
    tune: Tune = "cached",
    memory: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Program:
    """Open a .pte program, or a folder that `webpte bundle` wrote; `data` are .ptd files with constants of a program.

    GPU memory is taken when a method is asked for. An op inside a delegate that has no kernel is refused then, unless
    `fallback="cpu"`: it runs on the CPU, with a warning, and every such call costs a round trip through host memory.
    `limits` plans for a smaller device than this one, by names such as "max-storage-buffer-binding-size".
    `passes` are the names of graph rewrites to apply; all of them unless given, none with `passes=()`.
    `tune` says which kernels to run where there is a choice: "cached" those found fastest on this device before,
    "auto" also spends a few seconds on finding out, "off" the usual ones.
    `memory` is the most bytes that all programs of this process may take on the device; a method that would need more
    is refused before any is taken. Unless given it is what is free, for a software device, what the machine has, for an
    integrated GPU, and unlimited for a discrete one, whose memory WebGPU does not tell.
    """
    progress = stoppable(progress, cancel)
    if fallback not in (None, "cpu"):
        raise InputError(f'fallback is "cpu" or None, not {fallback!r}')
    if tune not in get_args(Tune):
        raise InputError(f"tune is one of {', '.join(get_args(Tune))}, not {tune!r}")
    if is_bundle(path):
        _refuse_planning(path, data, fallback, passes)
        return Bundle(read_manifest(path), limits or {}, memory)
    chosen_passes = tuple(PASSES) if passes is None else tuple(passes)
    options = Options(fallback == "cpu", limits or {}, chosen_passes, tune, memory)
    files = [MappedFile(path), *(MappedFile(p) for p in data)]
    try:
        total = sum(file.size for file in files)
        progress(Progress("read", 0, total, "bytes"))
        program = Program(parse_program(files[0]), [parse_tensors(f) for f in files[1:]], files, options)
        progress(Progress("read", total, total, "bytes"))
        log_loaded(files, program.method_names)
        return program
    except BaseException:
        for file in files:
            file.close()
        raise


def _refuse_planning(
    path: PathLike, data: Iterable[PathLike], fallback: str | None, passes: Sequence[str] | None
) -> None:
    given = {"data": list(data), "fallback": fallback, "passes": passes}
    if named := [name for name, value in given.items() if value not in (None, [])]:
        raise InputError(
            f"{os.fspath(path)} is a bundle: it was planned when it was written, and {', '.join(named)} would "
            "change nothing. Load the .pte program for that"
        )
