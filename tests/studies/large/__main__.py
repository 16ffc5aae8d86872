"""Sizes of real models, which checks cannot afford.

`python -m tests.studies large vocabulary --bits 4`: Gemma 3 1B's embedding and head under a browser's limits.
`python -m tests.studies large llama FOLDER`: Llama-3.2-1B's shape with random weights is written to FOLDER, exported
in 4 bits,
loaded and asked for a token. Needs 3.5 GB of disk; prints time, memory by stage, and the memory foretold and taken.
It is not calibrated: a text shows nothing about random weights. Its kernels are translated before memory is
measured: that takes some 30 MB more, once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BROWSER = {"WEBPTE_DEVICE": "browser"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies large", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    vocabulary = commands.add_parser("vocabulary")
    vocabulary.add_argument("--bits", type=int, choices=(4, 8), default=4)
    llama = commands.add_parser("llama")
    llama.add_argument("folder", type=Path)
    llama.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    return _vocabulary(options.bits) if options.command == "vocabulary" else _llama(options.folder, options.layers)


def _vocabulary(bits: int) -> int:
    os.environ.update(BROWSER)  # read when a device is opened
    from .vocabulary import Vocabulary

    layer = Vocabulary(bits=bits)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        limits = layer.check(Path(folder) / "vocabulary.pte")
    print(f"{layer.rows} x {layer.width} in {bits} bits, {layer.bytes / 1e6:.0f} MB a table: as computed by NumPy")
    print({name: value for name, value in limits.items() if "buffer" in name}, f"{time.perf_counter() - began:.0f} s")
    return 0


def _llama(folder: Path, layers: int) -> int:
    from .checkpoints import LLAMA_1B, write_checkpoint
    from .running import first_token

    weights = write_checkpoint(folder / "checkpoint", LLAMA_1B | {"num_hidden_layers": layers})
    print(f"{weights / 1e9:.2f} billion weights")
    files = (str(folder / "checkpoint"), "-o", str(folder / "llama.pte"))
    recipe = ("--quantize", "4w", "--no-calibrate")
    subprocess.run([sys.executable, "-m", "webpte", "export", *files, *recipe], check=True)
    once = ("--input", "1x3:zeros", "--input", "1:zeros", "--repeat", "1")
    subprocess.run([sys.executable, "-m", "webpte", "run", str(folder / "llama.pte"), *once], check=True)
    return int(not first_token(folder / "llama.pte"))


if __name__ == "__main__":
    sys.exit(main())
