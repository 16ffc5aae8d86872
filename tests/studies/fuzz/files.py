"""Kinds of untrusted files, each with what a program does to a mutant of it: `python -m tests.studies fuzz files`."""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.studies.fuzz import built, bundled, checkpoints, hubs, media, tokenizers
from tests.studies.fuzz.children import run_mutants
from webpte.image_files import open_image_file


def _run_tokenizer(bases: tuple[str, ...], random: Random) -> None:
    path = checkpoints.scratch() / f"tokenizer-{os.getpid()}.json"
    path.write_bytes(tokenizers.mutant_tokenizer(bases, random))
    tokenizers.use_tokenizer(path)


def prepare(kind: str, more: Sequence[Path] = ()) -> Callable[[Random], None]:
    """Return what a mutant is run by. What mutants start from is made and read here, before processes are forked."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
    if kind == "bundle":
        bundled.read_bundle(bundled.honest_bundle())
        return bundled.run_bundle
    if kind == "tokenizer":
        bases = (*tokenizers.honest_tokenizers(), *(path.read_text(encoding="utf-8") for path in more))
        for base in bases:
            path = checkpoints.scratch() / "tokenizer.json"
            path.write_text(base, encoding="utf-8")
            tokenizers.use_tokenizer(path)
        return functools.partial(_run_tokenizer, bases)
    if kind == "image":
        for data in media.image_files():
            open_image_file(data, "image")
        return media.run_image
    if kind == "audio":
        media.wav_files()
        return media.run_audio
    import torch

    torch.set_num_threads(1)
    if kind == "program":
        built.built_programs()
        return built.run_program
    if kind == "hub":
        hubs.root()
        return hubs.run_hub
    if kind == "gguf":
        for data in checkpoints.gguf_files():
            path = checkpoints.scratch() / "model.gguf"
            path.write_bytes(data)
            checkpoints.read(path)
        return checkpoints.run_gguf
    checkpoints.read(checkpoints.honest_folder())
    return checkpoints.run_folder


KINDS = ("gguf", "safetensors", "tokenizer", "hub", "bundle", "image", "audio", "program")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies fuzz files", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all unless given")
    parser.add_argument("--count", type=int, default=20_000, help="mutants of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutant of each kind")
    parser.add_argument("--tokenizer", type=Path, action="append", default=[], help="a tokenizer.json to change, too")
    args = parser.parse_args(arguments)
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        parser.error(f"unknown kind {unknown[0]!r}; expected {', '.join(KINDS)}")
    kinds, result = args.kinds or KINDS, False
    for kind in kinds:
        started, count = time.monotonic(), args.count // len(kinds)
        results = run_mutants(prepare(kind, args.tokenizer), count, args.seed, args.first)
        print(f"{kind}: {count} mutants in {time.monotonic() - started:.0f} s: {results}", flush=True)
        result |= bool(results.findings)
    return int(result)
