"""The built-in texts. Lines at the start of a file that begin with # describe it and are not part of the text."""

from __future__ import annotations

import functools
import re
from importlib import resources


def evaluation_text() -> str:
    """Return the text for evaluation: prose, verse, dialogue, a letter, code, facts; about 2,900 tokens."""
    return _read("evaluation.txt")


def calibration_text() -> str:
    """Return the text for calibration: as varied, without a sentence of the text for evaluation."""
    return _read("calibration.txt")


def calibration_chats() -> list[list[dict[str, str]]]:
    """Return chats for the calibration of chat models: messages with `role` and `content`."""
    turns = re.split(r"^(user|assistant): ", _read("chats.txt"), flags=re.MULTILINE)[1:]
    chats: list[list[dict[str, str]]] = []
    ended = True
    for role, text in zip(turns[::2], turns[1::2], strict=True):
        if ended:
            chats.append([])
        chats[-1].append({"role": role, "content": text.strip()})
        ended = role == "assistant" and text.endswith("\n\n")
    return chats


@functools.cache
def _read(name: str) -> str:
    lines = resources.files(__name__).joinpath(name).read_text("utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[first:]).strip() + "\n"
