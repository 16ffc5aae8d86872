"""`webpte` with a language model that answers by a script: `python -m tests.support.harness.scripted_chat chat MODEL`.

What it says depends on the question alone, so screens can be compared; everything else is the real command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from webpte import cli
from webpte.cli import generate, interrupts
from webpte.errors import InputError
from webpte.llm import ContextFullError, Piece, Usage
from webpte.llm.settings import sampling_params_from
from webpte.progress import OnProgress, Progress, ignore

MARKDOWN = """# A title

Some **bold** words and `code`, over
two lines.

- one
- two
  - inside

| name | number |
|------|--------|
| a | 1 |

```python
def f(x):
    return x + 1
```

The end."""


THOUGHT = "thought: "  # before a piece that belongs to it


def answer_to(question: str, settings: dict[str, Any], turns: int) -> list[str]:
    """Pieces of what is said."""
    word, _, rest = question.partition(" ")
    if word == "long":
        return [f"line {n} of a long answer\n\n" for n in range(int(rest))]
    if word == "code":
        return ["```\n", *(f"code line {n}\n" for n in range(int(rest))), "```\n"]
    if word == "markdown":
        return [MARKDOWN[at : at + 5] for at in range(0, len(MARKDOWN), 5)]
    if word == "evil":
        return ["red \x1b[31m", "title \x1b]0;owned\x07", "clear \x1b[2J\x1b[H", "back \x08\x08", "<b>tag</b> end"]
    if word == "think":
        return [*(f"{THOUGHT}step {n} of my thought\n" for n in range(int(rest))), "The", " answer."]
    if word == "forever":
        return [f"word{n} " for n in range(100_000)]
    if word == "settings":
        return [", ".join(f"{name}={value}" for name, value in settings.items() if name in rest.split())]
    return [f"You said {question!r}", f", turn {turns}."]


class Scripted:
    """An answer."""

    def __init__(self, pieces: list[str], prompt: int, pause: float, most: int) -> None:
        self._pieces, self._pause = pieces[:most], pause
        self.text, self.reasoning, self.tokens, self.error = "", "", list[int](), None
        self.usage = Usage(prompt_tokens=prompt)
        self._report: OnProgress = ignore

    def report_prompt(self, progress: OnProgress) -> None:
        self._report = progress

    def __iter__(self) -> Iterator[Piece]:
        try:
            for computed in range(0, self.usage.prompt_tokens, 256)[1:]:
                self._report(Progress("prompt", computed, self.usage.prompt_tokens, "tokens"))
            for number, text in enumerate(self._pieces):
                time.sleep(self._pause)
                self.tokens.append(number)
                self.usage.completion_tokens += 1
                if text.startswith(THOUGHT):
                    self.reasoning += text.removeprefix(THOUGHT)
                    yield Piece("", number, reasoning=text.removeprefix(THOUGHT), kind="reasoning")
                else:
                    self.text += text
                    yield Piece(text, number)
            self.usage.finish_reason = "stop"
        finally:
            self.usage.finish_reason = self.usage.finish_reason or "cancelled"


class ScriptedLLM:
    """The part of an LLM that a chat needs. A character is a token."""

    template, capacity, vocabulary = "", 4096, 128
    text_model = SimpleNamespace(sampling_params=sampling_params_from, images=None)
    tokenizer = SimpleNamespace(encode=lambda text, **_: list(text), mark_special_tokens=lambda value: (value, False))

    def render(self, messages: list[dict[str, str]], tools: None = None) -> str:
        return "".join(f"{message['role'][0]}:{message['content']};" for message in messages)

    def generate(self, messages: list[dict[str, str]], **settings: Any) -> Scripted:
        result = sampling_params_from(settings, self.vocabulary)
        prompt = len(self.render(messages))
        if prompt >= self.capacity:
            raise ContextFullError(f"the prompt has {prompt} tokens; the model's context holds {self.capacity}")
        question = messages[-1]["content"]
        if question == "fail":
            raise InputError("the script says so; ask something else")
        turns = sum(message["role"] == "user" for message in messages)
        system = next((message["content"] for message in messages if message["role"] == "system"), None)
        pieces = [f"System {system!r}."] if question == "system" else answer_to(question, settings, turns)
        pause = 0.02 if question.split()[0] in ("forever", "markdown", "think") else 0.002
        return Scripted(pieces, prompt, pause, result.max_new_tokens)

    def __enter__(self) -> ScriptedLLM:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


if __name__ == "__main__":
    generate.open_model = lambda arguments: ScriptedLLM()  # type: ignore[assignment,return-value]
    interrupts.RESUME_SECONDS = 60.0  # a chat on a slow machine is not taken for one that hangs
    cli.entry()
