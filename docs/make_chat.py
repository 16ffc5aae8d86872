"""Records the chat of `chat.md`: `python -m docs.make_chat smollm2.pte`, from the root of the repository.

A real `webpte chat` in a pseudo-terminal of 80 x 24, whose screen, with what has scrolled away, becomes the page's.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.support.harness.screen import Screen

PAGE = Path(__file__).parent / "chat.md"
SAID = (
    "What is the capital of France?",
    "And of Italy?",
    "/undo",
    "/set temperature 0.5",
    "Name three colors, as a list.",
    "/tokens",
)


def record(model: str) -> str:
    command = ["webpte", "chat", model, "--max-new-tokens", "48"]
    with tempfile.TemporaryDirectory() as state, Screen(command, 80, 24, {"XDG_STATE_HOME": state}) as screen:
        screen.wait(waiting, timeout=300)
        for number, text in enumerate(SAID, 1):
            screen.say(text)
            screen.wait(partial(answered, number), timeout=300)
        lines = screen.all_lines
        while not lines[-2].strip():  # between the prompt and the last line of the screen
            del lines[-2]
        screen.say("/exit")
        screen.ended()
    return "\n".join([f"$ webpte chat {Path(model).name} --max-new-tokens 48", *lines])


def waiting(screen: Screen) -> bool:
    return screen.prompt_line == ">" and " tokens " in screen.lines[-1]


def answered(number: int, screen: Screen) -> bool:
    return waiting(screen) and sum(line.startswith("> ") for line in screen.all_lines) == number


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    recorded = re.sub(r"```text\n\$ .*?```", lambda _: f"```text\n{record(sys.argv[1])}\n```", page, flags=re.DOTALL)
    PAGE.write_text(recorded, encoding="utf-8")
