"""Continue a prompt with a language model, or answer it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from ..errors import InputError
from ..llm import LLM, Generation, Piece, Usage
from ..llm.batch_generator import BatchGenerator
from ..text import plural
from . import interrupts
from .generation_options import (
    adapter_settings,
    add_constraints,
    add_parse_special,
    add_settings,
    checked,
    constraints,
    settings,
)
from .output import dim, say
from .parsing import add_json, add_program
from .programs import open_source
from .terminal import bars


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, model=True)
    parser.add_argument("text", nargs="?", metavar="PROMPT", help="the prompt; - or nothing reads it from stdin")
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt, as an option")
    parser.add_argument(
        "--file",
        dest="prompts",
        metavar="JSONL",
        help="a file of prompts, one per line: a JSON string, or an object with prompt, messages or tokens, an id and "
        "settings; each result is printed as a JSON object when it is finished. - reads stdin",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument(
        "--image",
        dest="images",
        action="append",
        default=[],
        metavar="FILE",
        help="an image that the prompt is about; may be repeated",
    )
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    add_parse_special(parser)
    add_settings(parser)
    add_constraints(parser)
    add_json(parser, "print text, tokens and usage as JSON")
    parser.add_argument(
        "--top-logprobs",
        type=checked("top_logprobs", int),
        default=0,
        metavar="N",
        help="with --json, the N most likely tokens at each position (0)",
    )
    parser.set_defaults(refuse=parser.error)


def open_model(arguments: argparse.Namespace) -> LLM:
    """Load the language model of a command line."""
    with bars() as progress:
        return LLM.load(
            open_source(arguments.file, progress, arguments.max_context),
            arguments.tokenizer,
            arguments.data,
            progress=progress,
            kv_cache=arguments.kv_cache,
            adapters=dict(arguments.adapter),
        )


def run(arguments: argparse.Namespace) -> int:
    check_options(arguments)
    if arguments.prompts is not None:
        return run_file(arguments)
    top_logprobs = arguments.top_logprobs
    chosen = {**constraints(arguments), **adapter_settings(arguments)}
    options = settings(arguments, **chosen, logprobs=top_logprobs > 0, top_logprobs=top_logprobs)
    text = _prompt(arguments)
    interrupted = False
    with open_model(arguments) as llm:
        asked = prompt_arguments(llm, text, arguments)
        ask: Callable[..., Generation] = llm.complete if "text" in asked else llm.generate
        answer = ask(**asked, parse_special=arguments.parse_special, **options)
        pieces = []
        show = sys.stdout.isatty() and not arguments.json  # the thought, which a pipe does not get
        try:
            for piece in _pieces(answer):
                pieces.append(piece)
                if show and piece.reasoning:
                    print(dim(piece.reasoning), end="", flush=True)
                if show and piece.text and answer.text == piece.text and answer.reasoning:
                    say("\n")
                if not arguments.json:
                    say(piece.text, end="")
        except KeyboardInterrupt:
            interrupted = True  # the text generated so far is printed
        if arguments.json:
            report = _report(answer)
            report["logprobs"] = [_logprobs(piece) for piece in pieces] if top_logprobs else None
            print(json.dumps(report))
        else:
            print()
            print(summary(answer.usage), file=sys.stderr)
        if interrupted:
            interrupts.leave()
    return 0


def _pieces(answer: Generation) -> Iterator[Piece]:
    """Yield the pieces of an answer. Until the first one, a bar shows how much of the prompt is computed."""
    with bars() as progress:
        answer.report_prompt(progress)
        first = next(answer, None)
    if first is not None:
        yield first
        yield from answer


def check_options(arguments: argparse.Namespace) -> None:
    """Reject combinations of options, and move the positional prompt to `prompt`."""
    if arguments.text is not None and arguments.prompt is not None:
        arguments.refuse("argument PROMPT: not allowed with --prompt")
    arguments.prompt = arguments.text if arguments.prompt is None else arguments.prompt
    if arguments.prompt is not None and arguments.prompts is not None:
        arguments.refuse("argument --file: not allowed with a prompt")
    if arguments.system is not None and arguments.raw:
        arguments.refuse("argument --system: not allowed with --raw, which skips the chat template")
    if arguments.images and (arguments.raw or arguments.prompts is not None):
        arguments.refuse("argument --image: not allowed with --raw and --file")
    if arguments.top_logprobs and not arguments.json:
        arguments.refuse("argument --top-logprobs: requires --json")
    if arguments.prompts is not None and (arguments.json or arguments.top_logprobs):
        arguments.refuse("argument --json: not allowed with --file, which always prints JSON")
    if arguments.prompt is None and arguments.prompts is None and sys.stdin.isatty():
        arguments.refuse("argument PROMPT: required, unless --file is given or stdin is a pipe")
    if arguments.prompt == "":
        arguments.refuse("argument PROMPT: expected at least one character, got an empty string")


def _prompt(arguments: argparse.Namespace) -> str:
    """Return the prompt of the command line, or stdin without its last newline."""
    if arguments.prompt not in (None, "-"):
        return str(arguments.prompt)
    text = read_stdin().removesuffix("\n")
    if not text.strip():
        raise InputError(
            argument="stdin",
            expected="a prompt",
            got="nothing",
            hint="Pass PROMPT, or write a prompt to stdin.",
            code="empty_prompt",
        )
    return text


def read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, AttributeError) as error:  # there may be none
        raise InputError(
            f"cannot read stdin: {error}", hint="Pass PROMPT or --file JSONL.", code="unreadable"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"stdin is not valid UTF-8: {error}", hint="Convert it, for instance with iconv.", code="invalid_utf8"
        ) from error


def prompt_arguments(llm: LLM, text: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a prompt as an argument of an answer: messages, or with --raw and without chat template a text."""
    if llm.template is None and arguments.system is not None:
        raise InputError(
            "the model has no chat template",
            argument="--system",
            hint="Put the instructions into the prompt.",
            code="no_chat_template",
        )
    images = [{"type": "image", "path": path} for path in arguments.images]
    if not images and (llm.template is None or arguments.raw):
        return {"text": text}
    content = [*images, {"type": "text", "text": text}] if images else text
    first = [{"role": "system", "content": arguments.system}] if arguments.system is not None else []
    return {"prompt": [*first, {"role": "user", "content": content}]}


class LogprobReport(TypedDict):
    """A token with its log probability."""

    token: int
    logprob: float | None
    top: Annotated[Any, "the most probable tokens with their log probabilities"]


class UsageReport(TypedDict):
    """Tokens and durations of a response."""

    prompt_tokens: int
    reused_tokens: Annotated[int, "of the prompt, already in the cache"]
    completion_tokens: int
    prefill_seconds: float
    decode_seconds: float
    finish_reason: Annotated[str | None, "stop, length or cancelled; null if it did not finish"]


class GenerationReport(TypedDict):
    """A response."""

    text: str
    tokens: list[int]
    usage: UsageReport
    reasoning: NotRequired[Annotated[str, "the thought before the text, if there is one"]]
    logprobs: NotRequired[
        Annotated[
            list[LogprobReport] | None,
            "with --top-logprobs one entry for each token, else null; not in lines of --file",
        ]
    ]
    id: NotRequired[Annotated[Any, "of a line of --file: the id in the line, or its number"]]
    error: NotRequired[
        Annotated[str | None, "of a line of --file: why there is no response, or not all of it; else null"]
    ]


def _logprobs(piece: Piece) -> LogprobReport:
    return {"token": piece.token, "logprob": piece.logprob, "top": piece.top_logprobs}


def summary(usage: Usage) -> str:
    """Return token counts and rates in one line."""
    reused = f", {usage.reused_tokens} reused" if usage.reused_tokens else ""
    return (
        f"[{plural(usage.prompt_tokens, 'prompt token')}{reused}, {usage.prefill_rate:.1f} tok/s; "
        f"{usage.completion_tokens} generated, {usage.decode_rate:.1f} tok/s; {usage.finish_reason or 'cancelled'}]"
    )


def run_file(arguments: argparse.Namespace) -> int:
    """Print each result as a line of JSON when it is finished. Return 1 if any has failed."""
    chosen = {**constraints(arguments), **adapter_settings(arguments)}
    options = {**settings(arguments, **chosen), "parse_special": arguments.parse_special}
    lines = read_prompts(arguments.prompts)
    output = sys.stdout  # while bars are drawn, sys.stdout is redirected
    started, answers, failed, tokens = time.perf_counter(), 0, 0, 0
    interrupted = False
    with open_model(arguments) as llm:
        prompts = [_arguments(llm, line, arguments) for line in lines]
        try:
            with bars() as progress:
                many = BatchGenerator(llm, prompts, options, False, progress)
                for number, answer in many.run():
                    name = lines[number].get("id", number)
                    print(json.dumps(_line_report(name, answer)), file=output, flush=True)
                    answers += 1
                    failed += answer.error is not None
                    tokens += answer.usage.completion_tokens
        except KeyboardInterrupt:
            interrupted = True
        rate = tokens / (time.perf_counter() - started)
        print(
            f"[{answers} of {plural(len(prompts), 'answer')}, {failed} failed; "
            f"{plural(tokens, 'token')}, {rate:.1f} tok/s]",
            file=sys.stderr,
        )
        if interrupted:
            interrupts.leave()
    return 1 if failed else 0


def read_prompts(name: str) -> list[dict[str, Any]]:
    """Return the lines of a file of prompts, or of stdin, as objects."""
    try:
        texts = (read_stdin() if name == "-" else Path(name).read_text(encoding="utf-8-sig")).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {name}: {error}", argument="--file", code="unreadable") from error
    prompts = [_line(f"{name}:{number}", text) for number, text in enumerate(texts, 1) if text.strip()]
    if not prompts:
        raise InputError(
            argument="--file",
            expected="a JSON string or object per line",
            got=f"no prompts in {name}",
            code="no_prompts",
        )
    return prompts


def _line(where: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {error}", code="invalid_json") from error
    if isinstance(value, str):
        return {"prompt": value}
    if not isinstance(value, dict) or len({"prompt", "messages", "tokens"} & set(value)) != 1:
        raise InputError(
            argument=where,
            expected="a JSON string, or an object with one of prompt, messages and tokens",
            got=f"{text[:60]}",
            code="invalid_prompt",
        )
    return value


def _arguments(llm: LLM, line: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `generate` for a line."""
    options = {name: value for name, value in line.items() if name not in ("id", "messages")}
    if "messages" in line:
        options["prompt"] = line["messages"]
    elif isinstance(prompt := options.pop("prompt", None), str):
        options |= prompt_arguments(llm, prompt, arguments)
    elif prompt is not None:
        options["prompt"] = prompt
    return options


def _report(answer: Generation) -> GenerationReport:
    usage = answer.usage
    report: GenerationReport = {
        "text": answer.text,
        "tokens": answer.tokens,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "reused_tokens": usage.reused_tokens,
            "completion_tokens": usage.completion_tokens,
            "prefill_seconds": usage.prefill_seconds,
            "decode_seconds": usage.decode_seconds,
            "finish_reason": usage.finish_reason,
        },
    }
    if answer.reasoning:
        report["reasoning"] = answer.reasoning
    return report


def _line_report(name: Any, answer: Generation) -> GenerationReport:
    error = f"{type(answer.error).__name__}: {answer.error}" if answer.error is not None else None
    return {"id": name, **_report(answer), "error": error}
