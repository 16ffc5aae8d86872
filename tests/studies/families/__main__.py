"""Export a tiny checkpoint of every family in f32 and in 4 bits, run both, and compare them with eager PyTorch.

With --gguf: build programs from quantized GGUF files of every family that has them, and compare them with transformers.
With --states: count dispatches, and what batches, prefixes, rewinds, drafts and chats compute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.support.harness.program_runs import run_programs
from tests.support.models.families import first, tinies
from tests.support.models.gguf_blocks import FORMATS
from tests.support.models.gguf_families import QUANTIZED

from . import gguf_files, gguf_page, states
from .measuring import TOLERANCE, measured
from .page import Errors, known, write


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.studies families",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="FAMILY", choices=list(tinies()), help="files in families/")
    parser.add_argument("--gguf", action="store_true", help="measure quantized GGUF files instead")
    parser.add_argument("--states", action="store_true", help="measure the slots of the engine instead")
    parser.add_argument("--write", action="store_true", help="put what was measured into the table of docs/models.md")
    options = parser.parse_args()
    if options.gguf:
        return measure_gguf([name for name in options.only or QUANTIZED if name in QUANTIZED], options.write)
    if options.states:
        return measure_states(options.only or list(tinies()), options.write)
    errors: dict[str, Errors] = {}

    def judge(name: str) -> tuple[str, str]:
        f32, four_bits = (measured(first(name), quantize).error() for quantize in (None, "4w"))
        errors[name] = Errors(f32, four_bits)
        return "right" if max(f32, four_bits) <= TOLERANCE else "wrong", f"f32 {f32:.1e}, 4w {four_bits:.1e}"

    counts = run_programs((name, partial(judge, name)) for name in options.only or tinies())
    if options.write:
        write({**known(), **errors})
    return int(counts["right"] < counts.total())


def measure_gguf(names: Iterable[str], write_page: bool) -> int:
    """Measure each family in each format, print the errors, and return 1 if one is too large."""
    errors: dict[tuple[str, str], gguf_files.Errors] = {}

    def judge(name: str, kind: str) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            result = errors[name, kind] = gguf_files.measure(gguf_files.write_file(name, kind, Path(folder)))
        details = f"f32 {result.floats:.1e}, default {result.default:.1e}, divergence {result.divergence:.1e}"
        return "right" if result.are_right(name, kind) else "wrong", details

    counts = run_programs((f"{name} {kind}", partial(judge, name, kind)) for name in names for kind in FORMATS)
    if write_page:
        gguf_page.write(errors)
    return int(counts["right"] < counts.total())


def measure_states(names: list[str], write_page: bool) -> int:
    """Measure the slots and chats of each family, and count the dispatches of published models of these families."""
    results: dict[str, states.States] = {}
    chats: dict[str, states.Chat] = {}

    def judge(name: str) -> tuple[str, str]:
        result = results[name] = states.measure(name)
        return "right" if result.batch and result.drafts else "wrong", str(tuple(result))

    def talk(name: str) -> tuple[str, str]:
        chat = chats[name] = states.measure_chat(name)
        return "right" if chat.most < states.CHAT_LIMIT else "wrong", str(tuple(chat))

    counts = run_programs((name, partial(judge, name)) for name in names)
    counts += run_programs((f"{name}, chat", partial(talk, name)) for name in names if name in states.CHATS)
    models = {name: states.count_published(model) for name, model in states.PUBLISHED.items() if model.family in names}
    if write_page:
        states.write(results, models, chats)
    return int(counts["right"] < counts.total())


if __name__ == "__main__":
    sys.exit(main())
