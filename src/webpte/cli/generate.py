"""Continue a prompt with a language model, or answer it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..llm import LLM, Generation, Piece, Usage
from ..llm.generation import BatchGenerator
from . import interrupts
from .generation_options import add_constraints, add_parse_special, add_settings, checked, constraints, settings
from .output import say
from .terminal import bars


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--prompt", metavar="TEXT", help="what to say to the model; - or nothing reads it from stdin")
    asked.add_argument(
        "--file",
        dest="prompts",
        metavar="JSONL",
        help="many prompts, one a line: a JSON string, or an object with prompt, messages or tokens, an id and "
        "settings; answers are printed as they are finished, a JSON object each. - reads stdin",
    )
    parser.add_argument("--system", metavar="TEXT", help="instructions that stand before the prompt")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_parse_special(parser)
    add_settings(parser)
    add_constraints(parser)
    parser.add_argument("--json", action="store_true", help="print text, tokens and usage as JSON")
    parser.add_argument(
        "--top-logprobs",
        type=checked("top_logprobs", int),
        default=0,
        metavar="N",
        help="with --json, the N likeliest tokens beside each (0)",
    )
    parser.set_defaults(refuse=parser.error)


def open_model(arguments: argparse.Namespace) -> LLM:
    with bars() as progress:
        return LLM.load(
            arguments.file, arguments.tokenizer, arguments.data, progress=progress, kv_cache=arguments.kv_cache
        )


def run(arguments: argparse.Namespace) -> int:
    _check_together(arguments)
    if arguments.prompts is not None:
        return run_file(arguments)
    tops = arguments.top_logprobs
    given = settings(arguments, **constraints(arguments), logprobs=tops > 0, top_logprobs=tops)
    text = _prompt(arguments)
    interrupted = False
    with open_model(arguments) as llm:
        answer = llm.generate(messages_or_text(llm, text, arguments), parse_special=arguments.parse_special, **given)
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
            print(json.dumps(found | {"logprobs": [_logprobs(piece) for piece in pieces] if tops else None}))
        else:
            print()
            print(summary(answer.usage), file=sys.stderr)
        if interrupted:
            interrupts.leave()
    return 0


def _check_together(arguments: argparse.Namespace) -> None:
    """Options that are right alone, and wrong beside each other."""
    if arguments.system is not None and arguments.raw:
        arguments.refuse("argument --system: not allowed with --raw, which leaves the chat template out")
    if arguments.top_logprobs and not arguments.json:
        arguments.refuse("argument --top-logprobs: needs --json, which prints them")
    if arguments.prompts is not None and (arguments.json or arguments.top_logprobs):
        arguments.refuse("argument --json: not allowed with --file, which always prints JSON")
    if arguments.prompt is None and arguments.prompts is None and sys.stdin.isatty():
        arguments.refuse("argument --prompt: needed, unless --file is given or a prompt comes from a pipe")
    if arguments.prompt == "":
        arguments.refuse("argument --prompt: is empty; give the model something to say")


def _prompt(arguments: argparse.Namespace) -> str:
    """As it was given, or what stdin holds, without the newline that ends it."""
    if arguments.prompt not in (None, "-"):
        return str(arguments.prompt)
    text = read_stdin().removesuffix("\n")
    if not text.strip():
        raise InputError("stdin holds no prompt; pipe one in, or give --prompt TEXT")
    return text


def read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except (OSError, AttributeError) as error:  # there may be none
        raise InputError(f"stdin cannot be read: {error}. Give --prompt TEXT or --file JSONL") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"what comes from stdin is no UTF-8 text: {error}. Convert it, for instance by iconv"
        ) from error


def messages_or_text(llm: LLM, text: str, arguments: argparse.Namespace) -> str | list[dict[str, str]]:
    """A prompt as the model wants it."""
    if llm.template is None and arguments.system is not None:
        raise InputError("--system needs a chat template, and the model has none; put it into the prompt")
    if llm.template is None or arguments.raw:
        return text
    first = [{"role": "system", "content": arguments.system}] if arguments.system is not None else []
    return [*first, {"role": "user", "content": text}]


def _logprobs(piece: Piece) -> dict[str, Any]:
    return {"token": piece.token, "logprob": piece.logprob, "top": piece.top_logprobs}


def summary(usage: Usage) -> str:
    reused = f", {usage.reused_tokens} reused" if usage.reused_tokens else ""
    return (
        f"[{usage.prompt_tokens} prompt tokens{reused}, {usage.prefill_rate:.1f} tok/s; "
        f"{usage.completion_tokens} generated, {usage.decode_rate:.1f} tok/s; {usage.finish_reason or 'cancelled'}]"
    )


def run_file(arguments: argparse.Namespace) -> int:
    """Print an answer a line; 1 if some have failed. What is finished when Ctrl-C comes has been printed."""
    given = {**settings(arguments, **constraints(arguments)), "parse_special": arguments.parse_special}
    lines = read_prompts(arguments.prompts)
    output = sys.stdout  # while bars are drawn, what is printed goes where they are
    started, answers, failed, tokens = time.perf_counter(), 0, 0, 0
    interrupted = False
    with open_model(arguments) as llm:
        prompts = [_arguments(llm, line, arguments) for line in lines]
        try:
            with bars() as progress:
                many = BatchGenerator(llm, prompts, given, False, progress)
                for number, answer in many.run():
                    name = lines[number].get("id", number)
                    print(json.dumps(_report(name, answer)), file=output, flush=True)
                    answers += 1
                    failed += answer.error is not None
                    tokens += answer.usage.completion_tokens
        except KeyboardInterrupt:
            interrupted = True
        rate = tokens / (time.perf_counter() - started)
        print(
            f"[{answers} of {len(prompts)} answers, {failed} failed; {tokens} tokens, {rate:.1f} tok/s]",
            file=sys.stderr,
        )
        if interrupted:
            interrupts.leave()
    return 1 if failed else 0


def read_prompts(name: str) -> list[dict[str, Any]]:
    """The lines of a file of prompts, or of stdin, as objects."""
    try:
        texts = (read_stdin() if name == "-" else Path(name).read_text(encoding="utf-8")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--file {name} cannot be read: {error}") from error
    found = [_line(f"{name}:{number}", text) for number, text in enumerate(texts, 1) if text.strip()]
    if not found:
        raise InputError(f"--file {name} holds no prompts; it has one a line, each a JSON string or object")
    return found


def _line(where: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {error}", code="invalid_json") from error
    if isinstance(found, str):
        return {"prompt": found}
    if not isinstance(found, dict) or len({"prompt", "messages", "tokens"} & set(found)) != 1:
        raise InputError(
            f"{where} is neither a text nor an object with one of prompt, messages and tokens", code="invalid_prompt"
        )
    return found


def _arguments(llm: LLM, line: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """What `generate` is given for a line."""
    given = {name: value for name, value in line.items() if name not in ("id", "messages")}
    if "messages" in line:
        given["prompt"] = line["messages"]
    elif isinstance(line.get("prompt"), str):
        given["prompt"] = messages_or_text(llm, line["prompt"], arguments)
    return given


def _report(name: Any, answer: Generation) -> dict[str, Any]:
    error = f"{type(answer.error).__name__}: {answer.error}" if answer.error is not None else None
    return {"id": name, "text": answer.text, "tokens": answer.tokens, "usage": asdict(answer.usage), "error": error}
