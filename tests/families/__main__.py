"""Export a tiny checkpoint of every family in f32 and in 4 bits, run both, and compare them with eager PyTorch.

With --gguf: build programs from quantized GGUF files of every family that has them, and compare them with transformers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.models.families import first, tinies
from tests.support.models.gguf_blocks import FORMATS
from tests.support.models.gguf_families import QUANTIZED

from . import gguf_files, gguf_page
from .measuring import TOLERANCE, measured
from .page import Errors, known, write


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.families", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="FAMILY", choices=list(tinies()), help="files in families/")
    parser.add_argument("--gguf", action="store_true", help="measure quantized GGUF files instead")
    parser.add_argument("--write", action="store_true", help="put what was measured into the table of docs/models.md")
    options = parser.parse_args()
    if options.gguf:
        return measure_gguf([name for name in options.only or QUANTIZED if name in QUANTIZED], options.write)
    errors: dict[str, Errors] = {}
    wrong: list[str] = []
    for name in options.only or tinies():
        results = [measured(first(name), quantize).error() for quantize in (None, "4w")]
        errors[name] = Errors(*results)
        wrong += [name] * any(error > TOLERANCE for error in results)
        print(f"{name}: f32 {results[0]:.1e}, 4w {results[1]:.1e}", flush=True)
    if options.write:
        write({**known(), **errors})
    return 1 if wrong else 0


def measure_gguf(names: Iterable[str], write_page: bool) -> int:
    """Measure each family in each format, print the errors, and return 1 if one is too large."""
    errors: dict[tuple[str, str], gguf_files.Errors] = {}
    for name in names:
        for kind in FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                file = gguf_files.write_file(name, kind, Path(folder))
                result = errors[name, kind] = gguf_files.measure(file)
            right = "" if result.are_right(kind) else "  WRONG"
            print(
                f"{name} {kind}: f32 {result.floats:.1e}, default {result.default:.1e}, "
                f"divergence {result.divergence:.1e}{right}",
                flush=True,
            )
    if write_page:
        gguf_page.write(errors)
    return 0 if all(result.are_right(kind) for (_, kind), result in errors.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
