"""The built-in texts. Lines at a file's beginning that start with # say what it is, and are no part of the text."""

from __future__ import annotations

import functools
import re
from importlib import resources


def evaluation_text() -> str:
    """What models are measured on: prose, verse, dialogue, a letter, code, facts; about 2,900 tokens."""
    return _read("evaluation.txt")


def calibration_text() -> str:
    """What quantising may look at: as varied, and no sentence of it is in the other."""
    return _read("calibration.txt")


def calibration_chats() -> list[list[dict[str, str]]]:
    """What a model that talks is shown through its chat template: messages with `role` and `content`."""
    turns = re.split(r"^(user|assistant): ", _read("chats.txt"), flags=re.MULTILINE)[1:]
    chats: list[list[dict[str, str]]] = []
    ended = True
    for role, said in zip(turns[::2], turns[1::2], strict=True):
        if ended:
            chats.append([])
        chats[-1].append({"role": role, "content": said.strip()})
        ended = role == "assistant" and said.endswith("\n\n")
    return chats


@functools.cache
def _read(name: str) -> str:
    lines = resources.files(__name__).joinpath(name).read_text("utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[first:]).strip() + "\n"
