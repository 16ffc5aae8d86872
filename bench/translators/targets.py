"""Translate kernels and compile the results. Results are cached by the text of a kernel.

A run that is interrupted continues where it was: every chunk of kernels is stored when it is done.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from webpte.folders import cache_folder
from webpte.partial_files import atomic_file

from . import build, metal, tint
from .kernels import Source

CHUNK = 32  # kernels that are translated and compiled together
SECONDS = 600  # for one kernel by one compiler
SLOW = 5000  # milliseconds
_REVISION = 1  # of what is checked: another number makes all results again
TARGETS: Mapping[str, str] = {
    "msl": "Metal 3.1 by naga, compiled as C++ for its syntax and types",
    "hlsl-fxc": "HLSL 5.1 by naga, compiled by FXC",
    "hlsl-dxc": "HLSL 6.6 by naga, compiled by DXC with validation",
    "tint-spirv": "SPIR-V by Tint, in a pipeline of Dawn",
}
MODELS = {"hlsl-fxc": ("fxc", "cs_5_1"), "hlsl-dxc": ("dxc", "cs_6_6")}

CHECKS: Mapping[str, tuple[Path, ...]] = {  # what decides about a kernel
    "msl": (build.TRANSLATE, metal.HEADER, Path(metal.__file__)),
    "hlsl-fxc": (build.TRANSLATE, build.HLSL_COMPILE),
    "hlsl-dxc": (build.TRANSLATE, build.HLSL_COMPILE),
    "tint-spirv": (Path(tint.__file__),),
}


class TranslatorError(Exception):
    """A translator or a compiler cannot run."""


@dataclass(frozen=True)
class Result:
    """What a translator and a compiler made of a kernel for one target. `bytes` is the size of the compiled kernel."""

    error: str = ""
    milliseconds: int = 0
    bytes: int = 0
    text_bytes: int = 0


def offered(source: Source, target: str) -> bool:
    """Return whether a device with this target runs the kernel: shader model 5.1 has neither f16 nor subgroups."""
    return target != "hlsl-fxc" or not (source.f16 or source.subgroups)


Progress = Callable[[int, int], None]


def translate(
    sources: Iterable[Source], targets: Sequence[str], progress: Progress = lambda done, total: None
) -> dict[tuple[Source, str], Result]:
    """Return the result of every kernel and target that is offered. `progress` gets the number of pairs done."""
    pairs = [(source, target) for source in sources for target in targets if offered(source, target)]
    results = {}
    missing: dict[Source, list[str]] = {}
    for source, target in pairs:
        if (stored := _read(source, target)) is not None:
            results[source, target] = stored
        else:
            missing.setdefault(source, []).append(target)
    todo = list(missing)
    for start in range(0, len(todo), CHUNK):
        progress(len(results), len(pairs))
        for target in targets:
            chunk = [source for source in todo[start : start + CHUNK] if target in missing[source]]
            for source, result in zip(chunk, _translate(chunk, target), strict=True):
                _write(source, target, result)
                results[source, target] = result
    progress(len(results), len(pairs))
    return {pair: results[pair] for pair in pairs}


def texts(sources: Sequence[Source], target: str) -> list[str]:
    """Return naga's text of kernels for a target; `msl-trusted` is Metal's without checks. Raise on errors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, error in enumerate(_naga(folder, sources, target)):
            if error:
                raise TranslatorError(f"{sources[number].label}: {error}")
        return [_file(folder, number, target).read_text(encoding="utf-8") for number in range(len(sources))]


# ---------------------------------------------------------------- one chunk


def _translate(sources: Sequence[Source], target: str) -> list[Result]:
    if not sources:
        return []
    if target == "tint-spirv":
        return _tint(sources)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        errors = _naga(folder, sources, target)
        files = [_file(folder, number, target) for number, error in enumerate(errors) if not error]
        compiled = _metal(files) if target == "msl" else _hlsl(files, *MODELS[target])
        return [
            Result(error=error) if error else compiled[_file(folder, number, target)]
            for number, error in enumerate(errors)
        ]


def _file(folder: Path, number: int, target: str) -> Path:
    return folder / f"{number:04}.{target}"


def _naga(folder: Path, sources: Sequence[Source], target: str) -> list[str]:
    """Write the text of each kernel for a target into a folder. Return the error of each."""
    for number, source in enumerate(sources):
        text = f"// workgroup {source.workgroup}\n{source.text}"
        _file(folder, number, "wgsl").write_text(text, encoding="utf-8")
    command = [*build.naga(), str(folder), target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    errors = {}
    for line in done.stdout.splitlines():
        name, _, error = line.split("\t", 2)
        errors[int(name)] = error
    if done.returncode or len(errors) != len(sources):
        raise TranslatorError(f"naga: expected {len(sources)} results, got {len(errors)}. {done.stderr[-500:]}")
    return [errors[number] for number in range(len(sources))]


def _tint(sources: Sequence[Source]) -> list[Result]:
    try:
        translated = [tint.translate(source) for source in sources]
    except (ImportError, OSError, RuntimeError) as error:
        raise TranslatorError(f"tint-spirv: {error}. It needs dawn-python: pip install --group dev") from error
    return [
        Result(error=error, milliseconds=milliseconds, text_bytes=len(text)) for text, error, milliseconds in translated
    ]


def _metal(files: Sequence[Path]) -> dict[Path, Result]:
    errors = metal.check(files)
    return {file: Result(error=error, text_bytes=file.stat().st_size) for file, error in errors.items()}


def _hlsl(files: Sequence[Path], compiler: str, model: str) -> dict[Path, Result]:
    """Compile files of HLSL. A file that ends the compiler has failed, and the others are compiled without it."""
    results: dict[Path, Result] = {}
    while left := [file for file in files if file not in results]:
        output, end = _wine([compiler, model, *(file.name for file in left)], left[0].parent, len(left))
        lines = {line.split("\t")[0]: line.split("\t") for line in output.splitlines() if line.count("\t") == 3}
        for file in left:
            if file.name not in lines:
                results[file] = Result(error=end, text_bytes=file.stat().st_size)
                break
            _, milliseconds, size, error = lines[file.name]
            results[file] = Result(error.strip(), int(milliseconds), int(size), file.stat().st_size)
    return results


def _wine(arguments: Sequence[str], folder: Path, files: int) -> tuple[str, str]:
    """Return what the program that compiles HLSL prints, and how it ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*build.hlsl_compiler(), *arguments],
            cwd=folder,
            env=build.wine_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            end = f"the compiler ended with status {process.wait(timeout=SECONDS * files)}"
        except subprocess.TimeoutExpired:
            end = f"the compiler did not end within {SECONDS * files} s"
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return output.read().decode("utf-8", "replace").replace("\r", ""), end


# ---------------------------------------------------------------- stored results


def _path(source: Source, target: str) -> Path:
    files = [path.read_text(encoding="utf-8") for path in CHECKS[target]]
    parts = [target, source.workgroup, source.text, dict(build.versions()), files, _REVISION]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return cache_folder() / "translators" / "results" / key[:2] / key[2:32]


def _read(source: Source, target: str) -> Result | None:
    try:
        return Result(**json.loads(_path(source, target).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # missing, or what an interrupted run left
        return None


def _write(source: Source, target: str, result: Result) -> None:
    path = _path(source, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as name:
        Path(name).write_text(json.dumps(asdict(result)), encoding="utf-8")


def failures(results: Mapping[tuple[Source, str], Result]) -> Iterator[tuple[Source, str, str]]:
    """Yield every kernel that a translator or a compiler rejects, with the target and the error."""
    for (source, target), result in results.items():
        if result.error:
            yield source, target, result.error
