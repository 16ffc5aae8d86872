"""Continue a prompt with a language model, or answer it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from ..llm import LLM, Usage
from . import interrupts
from .bars import bars
from .say import say


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--prompt", required=True, metavar="TEXT", help="what to say to the model")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print text, tokens and usage as JSON")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Options that `generate` and `chat` share."""
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json, if it is not beside the program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--kv-cache", choices=("f32", "f16"), default="f32", help="f16 halves the cache's memory (f32)")
    parser.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="tokens to generate at most (256)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token (0)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest tokens (0: all)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from the likeliest that sum to P (1)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same text (0)")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop")
    return {name: getattr(arguments, name) for name in names}


def open_model(arguments: argparse.Namespace) -> LLM:
    with bars() as progress:
        return LLM.load(
            arguments.file, arguments.tokenizer, arguments.data, progress=progress, kv_cache=arguments.kv_cache
        )


def run(arguments: argparse.Namespace) -> None:
    interrupted = False
    with open_model(arguments) as llm:
        templated = llm.template is not None and not arguments.raw
        prompt = [{"role": "user", "content": arguments.prompt}] if templated else arguments.prompt
        answer = llm.generate(prompt, **settings(arguments))
        try:
            for piece in answer:
                if not arguments.json:
                    say(piece.text, end="")
        except KeyboardInterrupt:
            interrupted = True  # what came so far is printed
        if arguments.json:
            print(json.dumps({"text": answer.text, "tokens": answer.tokens, "usage": asdict(answer.usage)}))
        else:
            print()
            print(summary(answer.usage), file=sys.stderr)
        if interrupted:
            interrupts.leave()


def summary(usage: Usage) -> str:
    reused = f", {usage.reused_tokens} reused" if usage.reused_tokens else ""
    return (
        f"[{usage.prompt_tokens} prompt tokens{reused}, {usage.prefill_rate:.1f} tok/s; "
        f"{usage.completion_tokens} generated, {usage.decode_rate:.1f} tok/s; {usage.finish_reason or 'cancelled'}]"
    )
