"""Make the outputs and images that the READMEs of `examples/` show.

python -m tests.support.harness.shown_examples             # show which examples print something else
python -m tests.support.harness.shown_examples --write     # write outputs and images
"""

from __future__ import annotations

import math
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.models import example_models
from tests.support.models.example_models import EXAMPLES, ROOT, run_script

DEMO = ROOT / "docs" / "demo" / "model.pte"
QUESTIONS = ("What is webpte?", "What is a plan?", "How fast is it?")
_BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Example:
    """A folder of examples: where its programs come from, and the commands whose last one is shown."""

    name: str
    picture: str
    programs: Callable[[], Path] | None
    commands: Sequence[Sequence[str | Path]]
    drawing: Sequence[str | Path] = ()  # nothing where the commands draw it
    tolerance: float = 0.0  # of numbers, absolute
    varying: str = ""  # what differs from run to run, as a regular expression

    @property
    def readme(self) -> Path:
        return EXAMPLES / self.name / "README.md"

    @property
    def shown(self) -> str:
        (block,) = _BLOCK.findall(self.readme.read_text(encoding="utf-8"))
        return str(block)

    def run(self, folder: Path) -> str:
        """Run an example; return its output. Its image is in `folder`."""
        shutil.copytree(EXAMPLES / self.name, folder, dirs_exist_ok=True)
        (folder / self.picture).unlink(missing_ok=True)
        if self.programs is not None:
            shutil.copytree(self.programs(), folder, dirs_exist_ok=True)
        printed = [run_script(folder, *command) for command in self.commands]
        if self.drawing:
            run_script(folder, *self.drawing)
        return printed[-1]

    def agrees(self, printed: str) -> bool:
        """Return whether this is what the README shows, but for rounding and for what varies."""
        result, shown = (re.sub(self.varying, "#", text) if self.varying else text for text in (printed, self.shown))
        if _NUMBER.sub("#", result).strip() != _NUMBER.sub("#", shown).strip():
            return False
        pairs = zip(_NUMBER.findall(result), _NUMBER.findall(shown), strict=True)
        return all(math.isclose(float(a), float(b), rel_tol=0, abs_tol=self.tolerance + 1e-9) for a, b in pairs)


ALL = (
    Example(
        "semantic_search",
        "meaning.png",
        example_models.semantic_search,
        [["search.py", "minilm.pte"]],
        ["picture.py", "minilm.pte", "meaning.png"],
        tolerance=0.01,
    ),
    Example(
        "face_detection",
        "marked.png",
        example_models.face_detection,
        [["draw.py"], ["detect.py", ".", "faces.png", "marked.png"]],
        tolerance=1,
    ),
    Example(
        "own_op",
        "waves.png",
        example_models.own_op,
        [["run.py", "snake.pte"]],
        ["picture.py", "snake.pte", "waves.png"],
    ),
    Example(
        "chat",
        "cache.png",
        None,
        [["chat.py", DEMO, *QUESTIONS]],
        ["picture.py", DEMO, "cache.png", *QUESTIONS],
        varying=r"at \d+\.\d a second",
    ),
)


def difference(first: Path, second: Path) -> float:
    """Return how far two images are from each other, 0 to 1; 1 if they differ in size."""
    from PIL import Image

    a, b = (np.asarray(Image.open(path).convert("RGB"), np.float32) / 255 for path in (first, second))
    return float(np.abs(a - b).mean()) if a.shape == b.shape else 1.0


def main(arguments: Sequence[str]) -> int:
    wrong = 0
    for example in ALL:
        with tempfile.TemporaryDirectory() as folder:
            printed = example.run(Path(folder))
            right = example.agrees(printed)
            wrong += not right
            print(f"{example.name}: {'as shown' if right else 'differs'}", flush=True)
            if arguments == ["--write"]:
                shutil.copy(Path(folder) / example.picture, example.readme.parent)
                if not right:
                    text = example.readme.read_text(encoding="utf-8")
                    example.readme.write_text(text.replace(example.shown, printed.strip() + "\n"), encoding="utf-8")
    return int(wrong > 0 and arguments != ["--write"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
