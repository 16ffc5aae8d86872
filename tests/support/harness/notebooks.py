"""Run the notebooks of the documentation, and write their outputs.

python -m tests.support.harness.notebooks [NOTEBOOK...]            # show which cells show something else
python -m tests.support.harness.notebooks --write [NOTEBOOK...]    # and write it there
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.support.harness.pages import ROOT, masked

FOLDER = ROOT / "docs" / "notebooks"
TIMEOUT = 600  # seconds for a cell: an export on a busy machine
_VARYING = re.compile(r"0x[0-9a-f]+|id=\"[^\"]*\"")


def names() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.ipynb"))


def executed(name: str, folder: Path) -> Any:
    """Return a notebook with the outputs of now, run beside the model of the demo."""
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "docs" / "demo", folder / "demo", dirs_exist_ok=True)
    notebook = nbformat.read(FOLDER / name, as_version=4)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    resources = {"metadata": {"path": str(folder / "notebooks")}}
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # when it ran
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    return notebook


def merged(outputs: Sequence[Any]) -> list[Any]:
    """Return what a cell prints comes in pieces that differ from run to run; what goes to stderr is not shown."""
    kept = [output for output in outputs if output.get("name") != "stderr"]
    printed = "".join(output.text for output in kept if output.output_type == "stream")
    rest = [output for output in kept if output.output_type != "stream"]
    return ([nbformat.v4.new_output("stream", name="stdout", text=printed)] if printed else []) + rest


def shown(cell: Any) -> list[str]:
    """Return the output of a cell without numbers, because times and sizes differ."""
    texts = []
    for output in cell.get("outputs", ()):
        texts += [output.text] if output.output_type == "stream" else list(output.get("data", {}).values())
    return masked(_VARYING.sub("", "\n".join(texts)))


def differences(name: str, result: Any) -> list[str]:
    stored = nbformat.read(FOLDER / name, as_version=4)
    pairs = zip(stored.cells, result.cells, strict=True)
    return [f"{name}, cell {n}:\n{b.source}" for n, (a, b) in enumerate(pairs) if shown(a) != shown(b)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.harness.notebooks", description=__doc__)
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="such as first-steps.ipynb; all of them")
    parser.add_argument("--write", action="store_true", help="store the outputs")
    chosen = parser.parse_args(arguments)
    wrong = 0
    for name in chosen.notebooks or names():
        with tempfile.TemporaryDirectory() as folder:
            result = executed(name, Path(folder))
        problems = differences(name, result)
        wrong += len(problems)
        print(f"{name}: {len(problems)} cells differ", flush=True)
        if chosen.write:
            (FOLDER / name).write_text(nbformat.writes(result, indent=1) + "\n", encoding="utf-8")
        else:
            print("\n\n".join(problems))
    return int(wrong > 0 and not chosen.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
