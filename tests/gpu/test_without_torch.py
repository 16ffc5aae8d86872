"""Nothing we ship needs torch or ExecuTorch: a process where importing them fails loads, runs and inspects."""

from __future__ import annotations

from tests.gpu.test_loading import add_program
from tests.support.harness.children import run_python

CHILD = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "executorch", "torchao"):
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Refuse())
for name in ("torch", "executorch"):
    try:
        __import__(name)
    except ImportError:
        pass
    else:
        raise SystemExit(f"{name} was importable")

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


def test_load_run_and_inspect_without_torch(tmp_path):
    add_program(tmp_path / "p.pte")
    assert "aten.add.Tensor" in run_python(CHILD, tmp_path / "p.pte")
