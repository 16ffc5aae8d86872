"""The messages of a chat: ask, undo, save and load."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import Error, InputError
from ...llm import LLM, GenerateSettings, Generation
from ...llm.chat import encode_chat
from ...llm.settings import sampling_params_from
from ...runtime.checks import described

Messages = list[dict[str, str]]
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Question:
    """A user message and its position among the messages: the end, unless it is asked again."""

    text: str
    position: int


class Conversation:
    """The messages between a user and a model, and the current settings."""

    def __init__(self, llm: LLM, settings: GenerateSettings, system: str | None = None) -> None:
        self.llm = llm
        self.settings = settings
        self.system = system
        self.messages: Messages = []  # in turns, without the system message
        self.over = False
        self._counted: tuple[Messages, int] = ([], 0)

    @property
    def all_messages(self) -> Messages:
        """The messages, after the system message if there is one."""
        return self._with_system(self.messages)

    def _with_system(self, messages: Messages) -> Messages:
        first = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*first, *messages]

    def question(self, text: str) -> Question:
        """Return a new question, at the end."""
        return Question(text, len(self.messages))

    def last_question(self) -> Question:
        """Return the last user message."""
        for position in range(len(self.messages) - 1, -1, -1):
            if self.messages[position]["role"] == "user":
                return Question(self.messages[position]["content"], position)
        raise InputError("there is no question yet", hint="Type a question first.", code="no_question")

    def ask(self, question: Question) -> Generation:
        before = self._with_system(self.messages[: question.position])
        return self.llm.generate([*before, {"role": "user", "content": question.text}], **self.settings)

    def keep(self, question: Question, answer: str) -> None:
        turn = [{"role": "user", "content": question.text}, {"role": "assistant", "content": answer}]
        self.messages[question.position :] = turn

    def undo(self) -> None:
        """Remove the last question and its answer."""
        del self.messages[self.last_question().position :]

    def reset(self) -> None:
        self.messages.clear()

    @property
    def tokens(self) -> int:
        """The length of the conversation in tokens, as rendered by the chat template."""
        messages = self.all_messages
        if messages != self._counted[0]:  # the toolbar asks at every key press
            try:
                count = len(encode_chat(self.llm.tokenizer, self.llm.render, messages, None))
            except Error:  # a template may reject a conversation without a question
                count = 0
            self._counted = (messages, count)
        return self._counted[1]

    @property
    def usage(self) -> str:
        return f"{self.tokens:,} of {self.llm.capacity:,} tokens"

    def set(self, name: str, value: Any) -> None:
        changed: dict[str, Any] = {**self.settings, name: value}
        constraint = sampling_params_from(changed, self.llm.vocabulary).constraint
        if constraint is not None:
            self.llm._grammar_compiler().matcher(constraint)
        self.settings = GenerateSettings(**changed)  # type: ignore[typeddict-item]

    def save(self, name: str) -> int:
        """Write all messages as JSON and return their number."""
        try:
            Path(name).expanduser().write_text(
                json.dumps(self.all_messages, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise InputError(f"cannot write {name}: {error.strerror}", code="not_writable") from error
        return len(self.all_messages)

    def load(self, name: str) -> int:
        """Replace the messages by a saved conversation and return their number. An invalid file changes nothing."""
        try:
            data = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}", code="unreadable") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is not valid JSON: {error}", code="invalid_json") from error
        messages = [_message(name, position, each) for position, each in enumerate(_message_list(name, data))]
        system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else None
        if any(message["role"] == "system" for message in messages):
            raise InputError(
                f"{name} has a system message after the first message",
                hint="Only the first may be one.",
                code="system_order",
            )
        self.system, self.messages = system, messages
        return len(self.all_messages)


def _message_list(name: str, data: object) -> list[object]:
    if not isinstance(data, list) or not data:
        raise InputError(argument=name, expected="a list of messages", got=described(data), code="no_messages")
    return data


def _message(name: str, position: int, message: object) -> dict[str, str]:
    if isinstance(message, dict):
        role, content = message.get("role"), message.get("content")
        if role in ROLES and isinstance(content, str):
            return {"role": str(role), "content": content}
    raise InputError(
        argument=f"message {position} of {name}",
        expected=f"a role ({', '.join(ROLES)}) and content (a string)",
        got=described(message),
        code="invalid_message",
    )
