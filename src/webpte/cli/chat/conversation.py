"""What was said, and what is done with it: asked, taken back, written down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import Error, InputError
from ...llm import LLM, GenerateSettings, Generation
from ...llm.chat import encode_chat
from ...llm.settings import sampling_params_from

Messages = list[dict[str, str]]
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Question:
    """A text, and how many messages stand before it: all of them, unless it is asked again."""

    text: str
    position: int


class Conversation:
    """Messages between a person and a model, under the settings that are chosen now."""

    def __init__(self, llm: LLM, settings: GenerateSettings, system: str | None = None) -> None:
        self.llm = llm
        self.settings = settings
        self.system = system
        self.messages: Messages = []  # in turns, without the system's
        self.over = False
        self._counted: tuple[Messages, int] = ([], 0)

    @property
    def whole(self) -> Messages:
        return self._with_system(self.messages)

    def _with_system(self, messages: Messages) -> Messages:
        first = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*first, *messages]

    def question(self, text: str) -> Question:
        """A new one."""
        return Question(text, len(self.messages))

    def last_question(self) -> Question:
        for position in range(len(self.messages) - 1, -1, -1):
            if self.messages[position]["role"] == "user":
                return Question(self.messages[position]["content"], position)
        raise InputError("nothing was asked yet; type a question first")

    def ask(self, question: Question) -> Generation:
        said = self._with_system(self.messages[: question.position])
        return self.llm.generate([*said, {"role": "user", "content": question.text}], **self.settings)

    def keep(self, question: Question, answer: str) -> None:
        turn = [{"role": "user", "content": question.text}, {"role": "assistant", "content": answer}]
        self.messages[question.position :] = turn

    def undo(self) -> None:
        """Forget the last question and what was answered."""
        del self.messages[self.last_question().position :]

    def reset(self) -> None:
        self.messages.clear()

    @property
    def tokens(self) -> int:
        """Of all that was said, as the chat template writes it."""
        said = self.whole
        if said != self._counted[0]:  # asked for at every key that is pressed
            try:
                count = len(encode_chat(self.llm.tokenizer, self.llm.render, said, None))
            except Error:  # a template may refuse a conversation that has no question yet
                count = 0
            self._counted = (said, count)
        return self._counted[1]

    @property
    def usage(self) -> str:
        return f"{self.tokens:,} of {self.llm.capacity:,} tokens"

    def set(self, name: str, value: Any) -> None:
        changed: dict[str, Any] = {**self.settings, name: value}
        found = sampling_params_from(changed, self.llm.vocabulary)
        if found.constraint is not None:
            self.llm.grammar_compiler.matcher(found.constraint)
        self.settings = GenerateSettings(**changed)  # type: ignore[typeddict-item]

    def save(self, name: str) -> int:
        """Write all messages as JSON; how many."""
        try:
            Path(name).expanduser().write_text(
                json.dumps(self.whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise InputError(f"cannot write {name}: {error.strerror}") from error
        return len(self.whole)

    def load(self, name: str) -> int:
        """Go on from what was saved; how many messages. A file that is refused changes nothing."""
        try:
            found = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is no JSON, as /save writes it: {error}") from error
        messages = [_message(name, position, each) for position, each in enumerate(_listed(name, found))]
        system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else None
        if any(message["role"] == "system" for message in messages):
            raise InputError(f"{name} has a system message behind the first; only the first may be one")
        self.system, self.messages = system, messages
        return len(self.whole)


def _listed(name: str, found: object) -> list[object]:
    if not isinstance(found, list) or not found:
        raise InputError(f"{name} holds no list of messages, as /save writes it")
    return found


def _message(name: str, position: int, given: object) -> dict[str, str]:
    if isinstance(given, dict):
        role, content = given.get("role"), given.get("content")
        if role in ROLES and isinstance(content, str):
            return {"role": str(role), "content": content}
    raise InputError(f"message {position} of {name} needs a role, one of {', '.join(ROLES)}, and content, a text")
