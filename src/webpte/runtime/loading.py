"""A file, or a folder, into a program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypedDict, get_args

from ..container import MappedFile, parse_program, parse_tensors
from ..errors import DataError, InputError
from ..fusion import PASSES
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from .bundle import Bundle
from .checks import check_choice, check_limits, check_list, check_memory_limit, check_names
from .log import log_loaded
from .manifest import is_bundle, read_manifest
from .program import Options, Program, Tune
from .sources import Source, check_source, data_beside, open_source

PathLike = str | os.PathLike[str]


class LoadOptions(TypedDict, total=False):
    """What `load` takes by name, for those that pass it on."""

    data: Iterable[Source]
    fallback: Literal["cpu"] | None
    limits: Mapping[str, int] | None
    passes: Sequence[str] | None
    tune: Tune
    memory: int | None
    progress: OnProgress
    cancel: CancelToken | None


def load(
    source: Source,
    data: Iterable[Source] = (),
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

    Each is a path, bytes in memory, or a file that is open for reading bytes. A path is best: its file is mapped and
    never read whole. Bytes are used where they are and must not change; an open file is read into memory.

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
    check_source(source, "source")
    given = check_list(data, "data", "files", '["weights.ptd"]')
    for number, one in enumerate(given):
        check_source(one, f"data[{number}]")
    check_choice(fallback, "fallback", (None, "cpu"))
    check_choice(tune, "tune", get_args(Tune))
    chosen_limits, most = check_limits(limits), check_memory_limit(memory)
    chosen_passes = check_names(passes, "passes", tuple(PASSES))
    progress = cancellable(progress, cancel)
    if isinstance(source, (str, os.PathLike)) and is_bundle(source):
        _refuse_planning(source, given, fallback, passes)
        return Bundle(read_manifest(source), chosen_limits, most)
    options = Options(fallback == "cpu", chosen_limits, chosen_passes, tune, most)
    files: list[MappedFile] = []
    try:
        files.append(open_source(source, "source"))
        files += [open_source(one, f"data[{number}]") for number, one in enumerate(given)]
        return _read(files, options, progress)
    except BaseException as error:
        for file in files:
            file.close()
        if isinstance(error, DataError) and error.keys and isinstance(source, (str, os.PathLike)):
            raise _with_advice(error, source) from None
        raise


def _read(files: list[MappedFile], options: Options, progress: OnProgress) -> Program:
    total = sum(file.size for file in files)
    progress(Progress("read", 0, total, "bytes"))
    program = Program(parse_program(files[0]), [parse_tensors(f) for f in files[1:]], files, options)
    progress(Progress("read", total, total, "bytes"))
    log_loaded(files, program.method_names)
    return program


def _with_advice(error: DataError, path: PathLike) -> DataError:
    """The error with what to do about it, where a file beside the program has what is missing."""
    found = data_beside(path, error.keys)
    if not found:
        return error
    advice = f"Beside it is what has them: load({os.fspath(path)!r}, data={found!r})"
    return DataError(f"{error}\n{advice}", error.keys, code=error.reason)


def _refuse_planning(path: PathLike, data: list[Source], fallback: str | None, passes: Sequence[str] | None) -> None:
    given = {"data": bool(data), "fallback": fallback is not None, "passes": passes is not None}
    if named := [name for name, there in given.items() if there]:
        raise InputError(
            f"{os.fspath(path)} is a bundle: it was planned when it was written, and {', '.join(named)} would "
            "change nothing. Load the .pte program for that",
            code="already_planned",
        )
