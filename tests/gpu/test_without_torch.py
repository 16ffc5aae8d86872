"""webpte needs torch only to export torch modules: a process where importing it fails does everything else."""

from __future__ import annotations

import json

from tests.gpu.test_loading import add_program
from tests.support.harness.children import run_python
from tests.support.models.tiny_checkpoint import write_checkpoint

WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "executorch", "torchao", "transformers"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Refuse())
for name in ("torch", "executorch"):
    try:
        __import__(name)
    except ImportError:
        pass
    else:
        raise SystemExit(f"{name} was importable")
"""

LOAD = """
import numpy as np
import webpte
from webpte.cli import main

x = np.ones((5, 7), np.float32)
with webpte.load(sys.argv[1]) as program:
    assert program.method()(x).shape == (5, 7)
assert main(["inspect", sys.argv[1]]) == 0
assert main(["inspect", sys.argv[1], "--json"]) == 0
assert "torch" not in sys.modules
"""

EXPORT = """
import webpte.builder.quality
from webpte.cli import main

webpte.builder.quality.evaluation_text = lambda: "the cat sat on the mat. " * 4  # the built-in one takes longer
assert main(sys.argv[1:]) == 0
assert main(["eval", "auto.pte", "--text", "text.txt"]) == 0
assert "torch" not in sys.modules
"""


def test_load_run_and_inspect_without_torch(tmp_path):
    add_program(tmp_path / "p.pte")
    assert "aten.add.Tensor" in run_python(WITHOUT_TORCH + LOAD, tmp_path / "p.pte")


def test_export_auto_with_quality_without_torch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path)
    (tmp_path / "text.txt").write_text("the dog looked at the cat, and the cat looked at the dog. " * 2)
    formats = ("--quantize", "auto", "--bits-per-weight", "8.1", "--group-size", "8", "--embedding", "4,32")
    sizes = ("--lm-head", "4", "--max-context", "64", "--max-prefill", "64", "--calibrate", "text.txt")
    text = run_python(WITHOUT_TORCH + EXPORT, "export", ".", "-o", "auto.pte", *formats, *sizes, "--quality")
    quality = json.loads((tmp_path / "auto.quality.json").read_text())
    assert quality["kl"]["value"] > 0 and quality["quantized"]["bits_per_weight"] <= 8.1
    assert quality["quantized"]["kinds"].keys() == {"8w", "4w in groups of 8", "4w in groups of 32"}
    assert "KL divergence from the float model" in text and "perplexity" in text
