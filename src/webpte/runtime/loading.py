"""Loading programs and bundles from paths, bytes in memory and open files."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Protocol, Self, TypedDict, Unpack, cast, get_args

from ..container import MappedFile, parse_program, parse_tensors
from ..container.flat import quoted_name
from ..errors import DataError, Error, InputError
from ..fusion import PASSES
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..sources import is_in_snapshot, local_program
from ..task_file import TaskFile, read_task
from ..typing import PathLike
from .bundle import Bundle, already_planned
from .checks import (
    check_bool,
    check_choice,
    check_limits,
    check_list,
    check_memory_limit,
    check_names,
    check_path,
    described,
    wrong_argument,
)
from .manifest import is_bundle, read_manifest
from .method import Method
from .program import PlanOptions, Program, Tune

MAX_DATA_FILES = 64  # .ptd files that are looked into
MAX_LISTED_DATA_FILES = 4


class BinaryFile(Protocol):
    """A file that is open for reading bytes: `open(path, "rb")`, a file of a zip archive, `io.BytesIO`."""

    def read(self, size: int = -1, /) -> bytes: ...


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile


def check_source(source: object, name: str) -> None:
    """Raise InputError unless a source is a path, bytes or a file, before any source is opened."""
    if isinstance(source, (str, os.PathLike)):
        check_path(source, name)
    elif not callable(getattr(source, "read", None)) and _bytes_of(source) is None:
        raise wrong_argument(name, "a path, bytes, or a file opened by open(path, 'rb')", source)


def open_source(source: Source, name: str) -> MappedFile:
    """Map a path, wrap bytes without a copy, or read the rest of an open file into memory."""
    check_source(source, name)
    if isinstance(source, (str, os.PathLike)):
        return MappedFile(source)
    data = _bytes_of(source)
    return MappedFile.from_bytes(f"<{name}>", data) if data is not None else _read_file(source, name)  # type: ignore[arg-type]


def _bytes_of(source: object) -> memoryview | None:
    """Return the bytes of a source in memory. An mmap counts as a file, because it has a position."""
    if callable(getattr(source, "read", None)):
        return None
    try:
        return memoryview(source).cast("B")  # type: ignore[arg-type]
    except TypeError:
        return None


def _read_file(file: BinaryFile, name: str) -> MappedFile:
    try:
        data = file.read()
    except Exception as error:  # whatever kind of file it is: closed, write-only, a connection that broke
        raise InputError(
            f"{name}: the file cannot be read: {error}", code="unreadable", hint="Open it with open(path, 'rb')."
        ) from error
    if isinstance(data, str):
        raise InputError(
            f"{name}: the file was opened as text", code="text_mode", hint="Open it with open(path, 'rb')."
        )
    contents = _bytes_of(data)
    if contents is None:
        raise InputError(
            argument=name,
            expected="a file whose read() returns bytes",
            got=f"one that returns {described(data)}",
            code="wrong_type",
            hint="Open it with open(path, 'rb').",
        )
    label = getattr(file, "name", None)
    return MappedFile.from_bytes(label if isinstance(label, str) else f"<{name}>", contents)


def data_beside(path: str | os.PathLike[str], keys: Collection[str]) -> list[str]:
    """Return the .ptd files beside a program that contain some of these keys, those with most keys first."""
    folder = os.path.dirname(os.fspath(path)) or os.curdir
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".ptd") and entry.is_file())
    except OSError:
        return []
    matches = {}
    for name in names[:MAX_DATA_FILES]:
        try:
            with MappedFile(os.path.join(folder, name)) as file:
                matches[name] = len(parse_tensors(file).entries.keys() & set(keys))
        except Error:  # the file may be of another format
            continue
    best = sorted((name for name in matches if matches[name]), key=lambda name: -matches[name])
    return [os.path.join(os.path.dirname(os.fspath(path)), name) for name in best[:MAX_LISTED_DATA_FILES]]


logger = logging.getLogger(__name__)


class _KeywordOptions(TypedDict, total=False):
    """The keyword-only options of `load`."""

    fallback: Literal["cpu"] | None
    limits: Mapping[str, int] | None
    passes: Sequence[str] | None
    tune: Tune
    memory: int | None
    exact: bool
    progress: OnProgress
    cancel: CancelToken | None


class LoadOptions(_KeywordOptions, total=False):
    """The options of `load`, for functions that pass them on."""

    data: Iterable[Source]


def load(
    source: Source,
    data: Iterable[Source] = (),
    *,
    fallback: Literal["cpu"] | None = None,
    limits: Mapping[str, int] | None = None,
    passes: Sequence[str] | None = None,
    tune: Tune = "cached",
    memory: int | None = None,
    exact: bool = False,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Program:
    """Open a .pte program, or a bundle: a folder that `webpte bundle` wrote, which is returned as a `Bundle`.

    `data` are .ptd files with constants of the program. Each source is a path, bytes in memory, or a file that is open
    for reading bytes. A path is best: its file is mapped and never read whole. Bytes are used without a copy and must
    not change; an open file is read into memory. `hf:org/name[/path/model.pte][@revision]` and the https: address of a
    .pte file are downloaded at first use. The .ptd files beside a program of the hub are used with it.

    GPU memory is allocated when a method is loaded. An op inside a delegate that has no kernel is refused then, unless
    `fallback="cpu"`: it runs on the CPU, with a warning, and every such call costs a round trip through host memory.
    `limits` plans for a smaller device than this one, by names such as "max-storage-buffer-binding-size".
    `passes` are the names of the graph rewrites to apply; all by default, none with `passes=()`.
    `tune` selects kernels where several can serve a call: "cached" uses those that were measured as the fastest on this
    device, "auto" also spends a few seconds on measuring, "off" uses the defaults.
    `memory` limits the bytes that all programs of this process allocate on the device; a method that needs more is
    refused before any is allocated. The default is the free memory for a software device, the machine's memory for an
    integrated GPU, and no limit for a discrete one, whose memory WebGPU does not report.
    `exact` computes in f32 what some GPUs with the feature "shader-f16" compute in f16: products of more than 16 rows
    with 4-bit weights.
    """
    check_source(source, "source")
    sources = check_list(data, "data", "files", '["weights.ptd"]')
    for number, one in enumerate(sources):
        check_source(one, f"data[{number}]")
    check_choice(fallback, "fallback", (None, "cpu"))
    check_choice(tune, "tune", get_args(Tune))
    check_bool(exact, "exact")
    device_limits, memory_limit = check_limits(limits), check_memory_limit(memory)
    chosen_passes = check_names(passes, "passes", tuple(PASSES))
    progress = cancellable(progress, cancel)
    source = local_program(source, progress)
    if isinstance(source, (str, os.PathLike)) and is_bundle(source):
        _refuse_planning(source, sources, fallback, passes, exact)
        # Typed as a Program: a union would burden every caller with what only the folder shows. See `load_source`.
        return cast(Program, Bundle(read_manifest(source), device_limits, memory_limit))
    options = PlanOptions(fallback == "cpu", device_limits, chosen_passes, tune, memory_limit, exact)
    try:
        return _open_and_read(source, sources, options, progress)
    except DataError as error:
        if not error.keys or not isinstance(source, (str, os.PathLike)):
            raise
        beside = data_beside(source, error.keys)
        if not sources and beside and is_in_snapshot(source):
            return _open_and_read(source, beside, options, progress)
        raise _with_advice(error, source, beside) from None


def _open_and_read(source: Source, data: Sequence[Source], options: PlanOptions, progress: OnProgress) -> Program:
    files: list[MappedFile] = []
    try:
        files.append(open_source(source, "source"))
        files += [open_source(one, f"data[{number}]") for number, one in enumerate(data)]
        return _read(files, options, progress)
    except BaseException:
        for file in files:
            file.close()
        raise


def _read(files: list[MappedFile], options: PlanOptions, progress: OnProgress) -> Program:
    total = sum(file.size for file in files)
    progress(Progress("read", 0, total, "bytes"))
    program = Program(parse_program(files[0]), [parse_tensors(f) for f in files[1:]], files, options)
    progress(Progress("read", total, total, "bytes"))
    _log_loaded(files, program.method_names)
    return program


def _with_advice(error: DataError, path: PathLike, files: list[str]) -> DataError:
    """Return the error with a hint, if files beside the program contain the missing constants."""
    if not files:
        return error
    hint = f"Files beside the program contain them: load({os.fspath(path)!r}, data={files!r})"
    return DataError(f"{error}\n{hint}", error.keys, code=error.reason)


def load_source(source: Source, data: Iterable[Source] = (), **options: Unpack[_KeywordOptions]) -> Program | Bundle:
    """Open a program or a bundle as `load` does, for callers that distinguish them."""
    return load(source, data, **options)


def load_program(source: Source, data: Iterable[Source] = (), **options: Unpack[_KeywordOptions]) -> Program:
    """Open a .pte program as `load` does, and refuse a bundle."""
    loaded = load_source(source, data, **options)
    if isinstance(loaded, Bundle):
        loaded.close()
        raise already_planned(loaded.path, "this operation")
    return loaded


def _refuse_planning(
    path: PathLike, data: list[Source], fallback: str | None, passes: Sequence[str] | None, exact: bool
) -> None:
    options = {"data": bool(data), "fallback": fallback is not None, "passes": passes is not None, "exact": exact}
    if names := [name for name, is_set in options.items() if is_set]:
        raise already_planned(os.fspath(path), ", ".join(names))


class TaskProgram:
    """Base of the programs for a task, such as `webpte.embed.Embedder`. Threads may share one."""

    _task: ClassVar[str]
    _main_method: ClassVar[str] = "forward"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        """Read all fields of `file`, and raise if they do not fit the program."""
        self._program = program
        self.path = path  #: of the program

    @classmethod
    def load(cls, path: PathLike, **options: Unpack[LoadOptions]) -> Self:
        """Open a program that `webpte export` wrote, with the files beside it. `options` are those of `webpte.load`."""
        file = Path(local_program(check_path(path, "path"), options.get("progress", ignore)))
        about = read_task(file, cls._task)
        program = load_program(file, **options)
        try:
            return cls(program, file, about)
        except BaseException:
            program.close()
            raise

    @property
    def _forward(self) -> Method:
        """Return the method that computes."""
        return self._program.method(self._main_method)

    @property
    def fingerprint(self) -> str:
        """Return the identity of the model."""
        return self._forward.fingerprint()

    @property
    def recoveries(self) -> int:
        """Return how often another device was opened after the loss of one."""
        return self._forward.recoveries

    def recover(self) -> bool:
        """Open another device after DeviceLost. Return False if no device was lost."""
        return self._program.recover()

    def close(self) -> None:
        """Release the GPU memory."""
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _log_loaded(files: list[MappedFile], methods: tuple[str, ...]) -> None:
    if logger.isEnabledFor(logging.INFO):
        files_text = ", ".join(f"{quoted_name(file.path)} ({file.size} bytes)" for file in files)
        logger.info(
            "loaded %s: %d methods, %s", files_text, len(methods), ", ".join(quoted_name(name) for name in methods)
        )
