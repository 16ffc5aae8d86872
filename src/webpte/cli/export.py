"""Export a Llama-family checkpoint (.gguf, or a folder with config.json and safetensors) to a .pte program."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from ..export import export_llama
from ..tools.text import size
from .bars import bars
from .parsing import whole
from .say import print_json, say


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the checkpoint")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .pte program to write")
    parser.add_argument("--quantize", choices=("4w", "8da4w"), help="4-bit weights; 8da4w also rounds activations")
    parser.add_argument("--group-size", type=whole(0), default=32, metavar="N", help="weights that share a scale (32)")
    parser.add_argument("--embedding", metavar="BITS,GROUP", help="quantise the embedding, such as 4,32")
    parser.add_argument(
        "--max-context", type=whole(2), default=1024, metavar="N", help="tokens the KV cache holds (1024)"
    )
    parser.add_argument(
        "--max-tokens", type=whole(2), default=256, metavar="N", help="bound of tokens in one call (256)"
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> None:
    # ExecuTorch prints as it works; our own output is what was written, and may be JSON.
    with bars() as progress, contextlib.redirect_stdout(sys.stderr):
        path = export_llama(
            arguments.file,
            arguments.output,
            quantize=arguments.quantize,
            group_size=arguments.group_size,
            embedding=arguments.embedding,
            max_context=arguments.max_context,
            max_tokens=arguments.max_tokens,
            progress=progress,
        )
    written = [path, *(p for p in _companions(path) if p.exists())]
    if arguments.json:
        print_json({"files": [{"path": str(p), "bytes": os.path.getsize(p)} for p in written]})
        return
    for file in written:
        say(f"{file}  {size(os.path.getsize(file))}")


def _companions(path: Path) -> list[Path]:
    names = ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json")
    return [path.with_name(f"{path.stem}.{name}") for name in names]
