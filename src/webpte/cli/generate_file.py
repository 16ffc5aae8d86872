"""`webpte generate --file`: a file of prompts, computed side by side."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..llm import LLM, Generation
from ..llm.generation import BatchGenerator
from . import interrupts
from .bars import bars
from .constraints import constraints
from .generate import messages_or_text, open_model, read_stdin
from .settings import settings


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
