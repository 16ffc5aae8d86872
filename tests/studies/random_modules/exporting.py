"""Programs, exports and answers in the cache, each kept as long as what makes it stays the same.

`programs-*/SEED.json` is what the maker gives for a seed; `exports/*/` a program with its .pte, or why there is none,
and the answers of eager. So a change of the maker exports anew only those programs that it changed, and
a change of the tolerances none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from tests.support.export.archive import restore
from tests.support.export.exporting import versions
from tests.support.export.sources import source_hash

from .program import Program

HERE = Path(__file__).parent


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "random_modules"


def _key(*parts: str | Path) -> str:
    """Return the hash of texts and of definitions in files."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for part in parts:
        digest.update((source_hash(part) if isinstance(part, Path) else part).encode())
    return digest.hexdigest()[:16]


def maker_key() -> str:
    """Names what makes programs of seeds."""
    names = ("maker.py", "module.py", "names.py", "program.py")
    return _key(*(HERE / name for name in names), *sorted((HERE / "families").glob("*.py")))


def program_of(seed: int) -> Program:
    path = cache_root() / f"programs-{maker_key()}" / f"{seed:06d}.json"
    if not path.exists():
        from .maker import make_program

        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(make_program(seed).to_json())
        partial.replace(path)
    return Program.from_json(path.read_text())


def folder_of(program: Program) -> Path:
    """Return the folder of a program, keyed by its text and its lowering."""
    key = _key(program.to_json(), program.to_python(), HERE / "lowering.py", HERE / "names.py")
    return cache_root() / "exports" / key


def answers_in(folder: Path) -> Path:
    return folder / f"answers-{_key(HERE / 'module.py', HERE / 'names.py')}.npz"


def export(program: Program, folder: Path | None = None) -> Path:
    """The folder of a program with its .pte and answers, made now if need be. It appears when all of it is there."""
    folder = folder or folder_of(program)
    if not folder.exists() and not restore(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
        try:
            _export_into(program, partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    if not answers_in(folder).exists():
        np.savez(answers_in(folder), **_arrays(program))  # type: ignore[arg-type]
    return folder


def _export_into(program: Program, folder: Path) -> None:
    from .lowering import lower
    from .threads import one_thread

    (folder / "program.json").write_text(program.to_json())
    (folder / "program.py").write_text(program.to_python())
    try:
        with one_thread():
            (folder / "program.pte").write_bytes(lower(program))
    except Exception as error:  # the exporter raises whatever it likes
        (folder / "refused.json").write_text(json.dumps([type(error).__name__, str(error)[:2000]]))


def _arrays(program: Program) -> dict[str, np.ndarray]:
    """Named METHOD.SEQUENCE.CALL.{in,out,off}NUMBER."""
    from .module import answers

    arrays: dict[str, np.ndarray] = {}
    for name in program.methods:
        for s, sequence in enumerate(answers(program, name)):
            for c, answer in enumerate(sequence):
                for kind, values in (("in", answer.inputs), ("out", answer.outputs), ("off", answer.tolerances)):
                    arrays |= {f"{name}.{s}.{c}.{kind}{i}": value for i, value in enumerate(values)}
    return arrays
