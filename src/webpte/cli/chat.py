"""Talk to a language model. /reset forgets, /save FILE writes it down, /exit leaves; Ctrl-C stops an answer.

Ctrl-C at the prompt, twice, leaves with exit code 130.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from ..errors import Error, InputError
from ..llm import LLM
from . import interrupts
from .generate import add_settings, open_model, settings, summary
from .say import say

Messages = list[dict[str, str]]
LONGEST_WAIT = 0.1  # seconds, until Python looks for signals


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--system", metavar="TEXT", help="instructions that stand before the conversation")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    with open_model(arguments) as llm:
        if llm.template is None:
            raise InputError("the model has no chat template; use webpte generate")
        first: Messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
        messages = list(first)
        print("/reset forgets, /save FILE writes the conversation, /exit leaves, Ctrl-C stops an answer.")
        if sys.stdin.isatty():
            interrupts.go_on_after()
        going, warned = True, False
        while going:
            try:
                going = _turn(llm, messages, first, settings(arguments))
                warned = False
            except KeyboardInterrupt:  # at the prompt, where it may have been meant for an answer
                if warned or not sys.stdin.isatty():
                    interrupts.leave()
                warned = True
                print("\n(Ctrl-C again, /exit or Ctrl-D leaves)")
                interrupts.handled()


def _turn(llm: LLM, messages: Messages, first: Messages, chosen: dict[str, Any]) -> bool:
    """Read a line and do what it says. False to leave."""
    try:
        line = _read_line().strip()
    except EOFError:
        print()
        return False
    if line == "/reset":
        messages[:] = first
        print("(forgotten)")
    elif line.startswith("/save"):
        _save(line.removeprefix("/save").strip(), messages)
    elif line.startswith("/") and line != "/exit":
        print(f"(there is no command {line.split()[0]})")
    elif line and line != "/exit":
        _answer(llm, messages, line, chosen)
    return line != "/exit"


def _read_line() -> str:
    if not sys.stdin.isatty() or os.name != "posix":
        return input("> ")
    print("> ", end="", flush=True)
    # In C's own reader a signal that comes just before it blocks goes unnoticed until the next key.
    while not select.select([sys.stdin], [], [], LONGEST_WAIT)[0]:
        pass
    return input()


def _answer(llm: LLM, messages: Messages, line: str, chosen: dict[str, Any]) -> None:
    answer = None
    try:
        answer = llm.generate([*messages, {"role": "user", "content": line}], **chosen)
        for piece in answer:
            say(piece.text, end="")
    except KeyboardInterrupt:
        if not sys.stdin.isatty():  # nobody is there to go on
            interrupts.leave()
        print(" (stopped)", end="")
        interrupts.handled()
    except Error as error:
        say(f"{type(error).__name__}: {error}", error=True)
        return
    print()
    if answer is not None:
        messages += [{"role": "user", "content": line}, {"role": "assistant", "content": answer.text}]
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
