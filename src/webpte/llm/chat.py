"""A conversation: questions, answers, and the messages between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Unpack

from ..errors import InputError
from ..progress import CancelToken
from ..runtime.checks import described
from .generation import Generation
from .settings import GenerateSettings, shows_settings


class ChatModel(Protocol):
    """What a conversation needs of a language model."""

    def generate(
        self, prompt: Any = None, *, cancel: CancelToken | None = None, **settings: Unpack[GenerateSettings]
    ) -> Generation: ...


class Chat:
    """A conversation with a language model. Each question is asked after all messages before it.

    An answer becomes part of the conversation as far as it was read. A question whose answer was not begun does not.
    """

    def __init__(self, llm: ChatModel, system: str | None, settings: Mapping[str, Any]) -> None:
        if system is not None and not isinstance(system, str):
            raise InputError(argument="system", expected="a string or None", got=described(system), code="wrong_type")
        self._llm = llm
        self.system = system  #: the system message; None for none
        self._settings = dict(settings)
        self._turns: list[tuple[Any, Generation]] = []  # contents of questions, and answers

    @shows_settings
    def ask(
        self,
        text: str,
        *,
        images: Sequence[Any] = (),
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """Return the answer to a question. `str(answer)` waits for it; iterating streams it.

        If the model sees, the question may be about `images`: paths, bytes, PIL images or arrays of pixels. Questions
        after it are about them, too. `settings` are added to those of the conversation.
        """
        if not isinstance(text, str) or not text:
            raise InputError(argument="text", expected="a string of at least one character", got=described(text))
        if not isinstance(images, (list, tuple)):
            raise InputError(argument="images", expected="a list of images", got=described(images), code="wrong_type")
        parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": text}]
        content = parts if images else text
        messages = [*self.messages, {"role": "user", "content": content}]
        merged: Any = {**self._settings, **settings}
        answer = self._llm.generate(messages, cancel=cancel, **merged)
        self._turns = [*self._begun(), (content, answer)]
        return answer

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages so far, after the system message if there is one."""
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system is not None else []
        for question, answer in self._begun():
            messages.append({"role": "user", "content": question})
            thought = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
            messages.append({"role": "assistant", **thought, "content": answer.text})
        return messages

    def undo(self) -> None:
        """Remove the last question and its answer."""
        self._turns = self._begun()[:-1]

    def reset(self) -> None:
        """Remove all questions and answers."""
        self._turns = []

    def _begun(self) -> list[tuple[str, Generation]]:
        return [turn for turn in self._turns if turn[1].text or turn[1].reasoning]

    def __repr__(self) -> str:
        return f"Chat({len(self._begun())} turns)"
