"""Continue a prompt with a language model, or answer it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from ..llm import LLM, Piece, Usage
from . import interrupts
from .bars import bars
from .constraints import add_constraints, constraints
from .say import say

SETTINGS = (
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt", metavar="TEXT", help="what to say to the model")
    asked.add_argument(
        "--file",
        dest="prompts",
        metavar="JSONL",
        help="many prompts, one a line: a JSON string, or an object with prompt, messages or tokens, an id and "
        "settings; answers are printed as they are finished, a JSON object each",
    )
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_settings(parser)
    add_constraints(parser)
    parser.add_argument("--json", action="store_true", help="print text, tokens and usage as JSON")
    parser.add_argument(
        "--top-logprobs", type=int, default=0, metavar="N", help="with --json, the N likeliest tokens beside each (0)"
    )


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
    parser.add_argument(
        "--min-p", type=float, default=0.0, metavar="P", help="and from those P times as likely as the likeliest (0)"
    )
    _add_changes(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same text (0)")
    parser.add_argument(
        "--speculate", choices=("on", "off"), help="verify drafts out of the text so far: always, never (where it pays)"
    )
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")


def _add_changes(parser: argparse.ArgumentParser) -> None:
    """Options that change what the model gives."""
    parser.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="X", help="above 1: what was there is less likely (1)"
    )
    parser.add_argument(
        "--presence-penalty", type=float, default=0.0, metavar="X", help="taken from logits of tokens in the answer (0)"
    )
    parser.add_argument(
        "--frequency-penalty", type=float, default=0.0, metavar="X", help="the same, as often as they are in it (0)"
    )
    parser.add_argument(
        "--logit-bias", type=_bias, action="append", default=[], metavar="TOKEN=X", help="add X to a logit; repeatable"
    )


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    speculate = {"on": True, "off": False}.get(arguments.speculate)
    more = {"logit_bias": dict(arguments.logit_bias), "speculate": speculate}
    return {name: getattr(arguments, name) for name in SETTINGS} | more


def _bias(text: str) -> tuple[int, float]:
    """`17=-2.5`: a token and what is added to its logit."""
    token, _, number = text.partition("=")
    try:
        return int(token), float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not TOKEN=NUMBER") from None


def open_model(arguments: argparse.Namespace) -> LLM:
    with bars() as progress:
        return LLM.load(
            arguments.file, arguments.tokenizer, arguments.data, progress=progress, kv_cache=arguments.kv_cache
        )


def run(arguments: argparse.Namespace) -> int:
    if arguments.prompts is not None:
        from .generate_file import run_file

        return run_file(arguments)
    interrupted = False
    with open_model(arguments) as llm:
        templated = llm.template is not None and not arguments.raw
        prompt = [{"role": "user", "content": arguments.prompt}] if templated else arguments.prompt
        tops = arguments.top_logprobs
        given = settings(arguments) | constraints(arguments)
        answer = llm.generate(prompt, **given, logprobs=tops > 0, top_logprobs=tops)
        pieces = []
        try:
            for piece in answer:
                pieces.append(piece)
                if not arguments.json:
                    say(piece.text, end="")
        except KeyboardInterrupt:
            interrupted = True  # what came so far is printed
        if arguments.json:
            found = {"text": answer.text, "tokens": answer.tokens, "usage": asdict(answer.usage)}
            print(json.dumps(found | ({"logprobs": [_logprobs(piece) for piece in pieces]} if tops else {})))
        else:
            print()
            print(summary(answer.usage), file=sys.stderr)
        if interrupted:
            interrupts.leave()
    return 0


def _logprobs(piece: Piece) -> dict[str, Any]:
    return {"token": piece.token, "logprob": piece.logprob, "top": piece.top_logprobs}


def summary(usage: Usage) -> str:
    reused = f", {usage.reused_tokens} reused" if usage.reused_tokens else ""
    return (
        f"[{usage.prompt_tokens} prompt tokens{reused}, {usage.prefill_rate:.1f} tok/s; "
        f"{usage.completion_tokens} generated, {usage.decode_rate:.1f} tok/s; {usage.finish_reason or 'cancelled'}]"
    )
