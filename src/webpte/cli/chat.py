"""Talk to a language model. /reset forgets, /save FILE writes it down, /exit leaves; Ctrl-C stops an answer."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..errors import Error, InputError
from ..llm import LLM
from .generate import add_settings, open_model, settings, summary

Messages = list[dict[str, str]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--system", metavar="TEXT", help="instructions that stand before the conversation")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    with open_model(arguments) as llm:
        if llm.template is None:
            raise InputError("the model has no chat template; use webpte generate")
        first: Messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
        messages = list(first)
        print("/reset forgets, /save FILE writes the conversation, /exit leaves, Ctrl-C stops an answer.")
        while True:
            line = _read()
            if line is None or line == "/exit":
                return
            if line == "/reset":
                messages = list(first)
                llm.reset()
                print("(forgotten)")
            elif line.startswith("/save"):
                _save(line.removeprefix("/save").strip(), messages)
            elif line.startswith("/"):
                print(f"(there is no command {line.split()[0]})")
            elif line:
                _answer(llm, messages, line, settings(arguments))


def _read() -> str | None:
    """A line; None at the end of input. Ctrl-C drops what was typed: it may have been meant for an answer."""
    try:
        return input("> ").strip()
    except KeyboardInterrupt:
        print("\n(/exit or Ctrl-D leaves)")
        return ""
    except EOFError:
        print()
        return None


def _answer(llm: LLM, messages: Messages, line: str, chosen: dict[str, Any]) -> None:
    messages.append({"role": "user", "content": line})
    try:
        answer = llm.generate(messages, **chosen)
    except Error as error:
        messages.pop()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return
    try:
        for piece in answer:
            print(piece.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" (stopped)", end="")
    print()
    messages.append({"role": "assistant", "content": answer.text})
    print(summary(answer.usage), file=sys.stderr)


def _save(name: str, messages: Messages) -> None:
    if not name:
        print("(/save needs a file name)")
        return
    try:
        Path(name).write_text(json.dumps(messages, indent=2, ensure_ascii=False) + "\n")
        print(f"(saved {len(messages)} messages to {name})")
    except OSError as error:
        print(f"(cannot write {name}: {error.strerror})")
