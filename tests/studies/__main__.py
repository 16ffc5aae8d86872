"""Programs that people run by hand or by night. `python -m tests.studies` lists them; with a name it runs one.

A study is a package or a module below this folder. Its name may have dots: `python -m tests.studies soak.threads`.
"""

from __future__ import annotations

import ast
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent


def studies() -> dict[str, str]:
    """Return the first sentence of each study by its name."""
    packages = {path.parent.name: path for path in sorted(FOLDER.glob("*/__main__.py"))}
    folders = [path.parent for path in sorted(FOLDER.glob("*/__init__.py")) if path.parent.name not in packages]
    modules = {f"{folder.name}.{path.stem}": path for folder in folders for path in sorted(folder.glob("[a-z]*.py"))}
    runnable = {name: path for name, path in modules.items() if "__main__" in path.read_text(encoding="utf-8")}
    return {name: _purpose(path) for name, path in sorted((packages | runnable).items())}


def _purpose(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    return " ".join(text.split("\n\n")[0].split())


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        for name, purpose in studies().items():
            print(f"{name:24} {purpose}")
        return 0
    name = f"{__package__}.{arguments[0]}"
    try:
        known = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        known = False
    if not known:
        print(f"study: expected one of {', '.join(studies())}, got {arguments[0]}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m {__package__} {arguments[0]}", *arguments[1:]]
    runpy.run_module(name, run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
