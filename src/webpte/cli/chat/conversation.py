"""The messages of a chat (ask, undo, save and load), its images, and its commands: lines that start with a slash."""

from __future__ import annotations

import json
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...errors import Error, InputError
from ...image_files import open_image_file
from ...llm import LLM, Generation
from ...llm.engine.embeddings import flatten
from ...llm.image_prompts import has_images
from ...llm.prompts import encode_chat
from ...llm.settings import GenerateSettings, SamplingParams
from ...partial_files import not_writable
from ...runtime.checks import described
from ...text import plural
from ..output import dim, say
from ..parsing import did_you_mean

Messages = list[dict[str, Any]]
Content = str | list[dict[str, str]]  # a text, or parts with the paths of images
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
# A word of a line: in quotes or with escaped spaces, as terminals write the path of a file that is dropped on them.
_WORD = re.compile(r"""(?<!\S)(?:'[^']+'|"[^"]+"|(?:\\.|[^\s\\])+)(?!\S)""")
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Question:
    """A user message and its position among the messages: the end, unless it is asked again."""

    content: Content
    position: int


class Conversation:
    """The messages between a user and a model, and the current settings."""

    def __init__(self, llm: LLM, settings: GenerateSettings, system: str | None = None) -> None:
        self.llm = llm
        self.settings = settings
        self.system = system
        self.messages: Messages = []  # in turns, without the system message
        self.images: list[str] = []  # paths, for the next question
        self.over = False
        self._counted: tuple[Messages, int] = ([], 0)

    @property
    def all_messages(self) -> Messages:
        """Return the messages, after the system message if there is one."""
        return self._with_system(self.messages)

    def _with_system(self, messages: Messages) -> Messages:
        first = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*first, *messages]

    def question(self, text: str) -> Question:
        """Return a new question, at the end, about the images that were added."""
        images, self.images = self.images, []
        return Question(content_of(text, images), len(self.messages))

    def add_image(self, name: str) -> str:
        """Add an image to the next question, and describe it."""
        if self.llm.text_model.images is None:
            raise InputError("the model reads no images", argument="/image", code="no_images")
        path = str(Path(name).expanduser().absolute())
        image = open_image_file(path, "/image")
        self.images.append(path)
        return f"{Path(path).name}, {image.width} × {image.height} pixels"

    def dropped_images(self, text: str) -> tuple[list[str], str]:
        """Return the paths of images in a message, and the text without them. A model that reads none gets the text."""
        paths: list[str] = []

        def without(match: re.Match[str]) -> str:
            path = _path_of(match.group())
            if not path.lower().endswith(IMAGE_SUFFIXES) or not Path(path).expanduser().is_file():
                return match.group()
            paths.append(path)
            return ""

        rest = text if self.llm.text_model.images is None else _WORD.sub(without, text)
        return paths, rest.strip() if paths else text

    def last_question(self) -> Question:
        """Return the last user message."""
        for position in range(len(self.messages) - 1, -1, -1):
            if self.messages[position]["role"] == "user":
                return Question(self.messages[position]["content"], position)
        raise InputError("there is no question yet", hint="Type a question first.", code="no_question")

    def ask(self, question: Question) -> Generation:
        before = self._with_system(self.messages[: question.position])
        return self.llm.generate([*before, {"role": "user", "content": question.content}], **self.settings)

    def keep(self, question: Question, answer: str, reasoning: str = "") -> None:
        thought = {"reasoning_content": reasoning} if reasoning else {}
        turn: Messages = [
            {"role": "user", "content": question.content},
            {"role": "assistant", **thought, "content": answer},
        ]
        self.messages[question.position :] = turn

    @property
    def last_reasoning(self) -> str:
        """Return the thought before the last answer; empty if there is none."""
        return str(self.messages[-1].get("reasoning_content", "")) if self.messages else ""

    def undo(self) -> None:
        """Remove the last question and its answer."""
        del self.messages[self.last_question().position :]

    def reset(self) -> None:
        self.messages.clear()
        self.images.clear()

    @property
    def tokens(self) -> int:
        """Return the length of the conversation in tokens, as rendered by the chat template."""
        messages = self.all_messages
        if messages != self._counted[0]:  # the toolbar asks at every key press
            try:
                count = self._count(messages)
            except Error:  # a template may reject a conversation without a question
                count = 0
            self._counted = (messages, count)
        return self._counted[1]

    def _count(self, messages: Messages) -> int:
        if has_images(messages):
            return len(flatten(self.llm.text_model.chat_segments(messages, None))[0])
        return len(encode_chat(self.llm.tokenizer, self.llm.render, messages, None))

    @property
    def usage(self) -> str:
        return f"{self.tokens:,} of {self.llm.capacity:,} tokens"

    def set(self, name: str, value: Any) -> None:
        changed: dict[str, Any] = {**self.settings, name: value}
        constraint = self.llm.text_model.sampling_params(changed).constraint
        if constraint is not None:
            self.llm.text_model.grammar_compiler().matcher(constraint)
        self.settings = GenerateSettings(**changed)  # type: ignore[typeddict-item]

    def unset(self, name: str) -> None:
        """Reset a setting to its default."""
        kept = {each: value for each, value in self.settings.items() if each != name}
        self.settings = GenerateSettings(**kept)  # type: ignore[typeddict-item]

    @property
    def current_settings(self) -> SamplingParams:
        """Return all settings, with the model's defaults."""
        return self.llm.text_model.sampling_params(self.settings)

    def save(self, name: str) -> int:
        """Write all messages as JSON and return their number."""
        try:
            Path(name).expanduser().write_text(
                json.dumps(self.all_messages, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            raise not_writable(name, error) from error
        return len(self.all_messages)

    def load(self, name: str) -> int:
        """Replace the messages by a saved conversation and return their number. An invalid file changes nothing."""
        try:
            data = json.loads(Path(name).expanduser().read_text(encoding="utf-8-sig"))
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


def content_of(text: str, images: Sequence[str]) -> Content:
    """Return the content of a message: images are before the text."""
    if not images:
        return text
    return [*({"type": "image", "path": path} for path in images), {"type": "text", "text": text}]


def _path_of(word: str) -> str:
    """Return the path that a word of a line stands for."""
    if word[0] in "'\"":
        word = word[1:-1]
    elif os.name == "posix":
        word = re.sub(r"\\(.)", r"\1", word)
    return unquote(urlsplit(word).path) if word.startswith("file://") else word


def _is_content(role: object, content: object) -> bool:
    """Return whether a value is a text, or the parts of a user message."""
    if not isinstance(content, list) or role != "user" or not content:
        return isinstance(content, str)
    fields = {"text": "text", "image": "path"}
    return all(
        isinstance(part, dict)
        and part.get("type") in fields
        and part.keys() == {"type", fields[part["type"]]}
        and isinstance(part[fields[part["type"]]], str)
        for part in content
    )


def _message(name: str, position: int, message: object) -> dict[str, Any]:
    if isinstance(message, dict):
        role, content = message.get("role"), message.get("content")
        if role in ROLES and _is_content(role, content):
            thought = message.get("reasoning_content")
            rest = {"reasoning_content": thought} if isinstance(thought, str) else {}
            return {"role": str(role), **rest, "content": content}
    raise InputError(
        argument=f"message {position} of {name}",
        expected=f"a role ({', '.join(ROLES)}) and content (a string, or texts and paths of images of a user)",
        got=described(message),
        code="invalid_message",
    )


# -- commands ---------------------------------------------------------------------------------------------------------


HIDDEN = ("logprobs", "top_logprobs", "tokens_per_submit")  # settings without effect in a chat
NAMES = tuple(name for name in GenerateSettings.__annotations__ if name not in HIDDEN)
KEYS = (
    "Enter sends. Alt-Enter, or a backslash at the end of a line, starts another line; a pasted text is one message.",
    "Up and Down browse the history, Ctrl-R searches it, Tab completes.",
    "Drop an image file on the terminal, or type its path, and ask about it.",
    "Type two slashes for a message that starts with a slash.",
    "Ctrl-C stops an answer. At the prompt, press it twice, or Ctrl-D, to leave.",
)


@dataclass(frozen=True)
class ChatCommand:
    """A command. `act` takes the conversation and the argument, and returns a question to ask, if any."""

    argument: str  # as help shows it; in brackets if optional
    help: str
    act: Callable[[Conversation, str], Question | None]

    @property
    def takes(self) -> bool:
        return bool(self.argument)

    @property
    def needs(self) -> bool:
        return self.takes and not self.argument.startswith("[")


def run_command(talk: Conversation, text: str) -> Question | None:
    """Run a line that is a command. Return the question to ask, if any."""
    if text.startswith("//"):
        return talk.question(text[1:])
    paths, rest = talk.dropped_images(text)
    if not text.startswith("/") or (paths and text.split()[0] not in COMMANDS):
        for path in paths:
            say(f"(image: {talk.add_image(path)})")
        return talk.question(rest) if rest.strip() else None
    name, _, rest = text.partition(" ")
    name, rest = name.strip(), rest.strip()
    command = COMMANDS.get(name)
    if command is None:
        suggestion = did_you_mean([name], COMMANDS, cutoff=0.7) or ". /help lists the commands"
        raise InputError(f"unknown command {name}{suggestion}", code="unknown_command")
    if rest and not command.takes:
        raise InputError(argument=name, expected="no argument", got=repr(rest), code="unexpected_argument")
    if not rest and command.needs:
        raise InputError(
            argument=name, expected=f"{command.argument}: {command.help}", got="nothing", code="no_argument"
        )
    return command.act(talk, rest)


def _help(talk: Conversation, rest: str) -> None:
    columns = shutil.get_terminal_size().columns - 1
    width = max(len(f"{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        line = f"{f'{name} {command.argument}':<{width}}  {command.help}"
        say(textwrap.fill(line, columns, subsequent_indent=" " * (width + 2)))
    for line in KEYS:
        say(textwrap.fill(line, columns))


def _system(talk: Conversation, rest: str) -> None:
    if rest:
        talk.system = None if rest == "-" else rest
    say(f"(system: {talk.system})" if talk.system is not None else "(no system message)")


def _image(talk: Conversation, rest: str) -> None:
    say(f"(image: {talk.add_image(_path_of(rest))})")


def _retry(talk: Conversation, rest: str) -> Question:
    question = talk.last_question()
    if talk.current_settings.temperature:  # the same seed would give the same answer
        talk.set("seed", (talk.settings.get("seed", 0) + 1) % 2**31)
    return question


def _undo(talk: Conversation, rest: str) -> None:
    talk.undo()
    say(f"(removed the last turn; {talk.usage})")


def _save(talk: Conversation, rest: str) -> None:
    say(f"(saved {plural(talk.save(rest), 'message')} to {rest})")


def _load(talk: Conversation, rest: str) -> None:
    say(f"(loaded {plural(talk.load(rest), 'message')} from {rest}; {talk.usage})")


def _tokens(talk: Conversation, rest: str) -> None:
    remaining = talk.llm.capacity - talk.tokens
    say(f"({talk.usage}, {remaining:,} left; {plural(len(talk.all_messages), 'message')})")


def _set(talk: Conversation, rest: str) -> None:
    name, _, text = rest.partition(" ")
    if name and name not in NAMES:
        suggestion = did_you_mean([name], NAMES) or f". The settings are {', '.join(NAMES)}"
        raise InputError(f"unknown setting {name}{suggestion}", argument="/set", code="unknown_setting")
    if text.strip() == "default":
        talk.unset(name)
    elif text:
        talk.set(name, _value(name, text.strip()))
    current = talk.current_settings
    values = {each: talk.settings.get(each, getattr(current, each, None)) for each in ([name] if name else NAMES)}
    shown = {each: value for each, value in values.items() if name or value is not None}
    for each, value in shown.items():
        say(f"({each} = {json.dumps(value)})")
    if unset := [each for each in values if each not in shown]:
        say(f"(not set: {', '.join(unset)})")


def _value(name: str, text: str) -> Any:
    """Return a value of JSON (a number, list, boolean or null), or else the text itself."""
    if name in ("regex", "grammar"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _thought(talk: Conversation, rest: str) -> None:
    print(dim(talk.last_reasoning) if talk.last_reasoning else "(no thought)", flush=True)


def _reset(talk: Conversation, rest: str) -> None:
    talk.reset()
    say("(started over)")


def _exit(talk: Conversation, rest: str) -> None:
    talk.over = True


COMMANDS = {
    "/help": ChatCommand("", "this list", _help),
    "/system": ChatCommand("[TEXT]", "show or set the system message; - removes it", _system),
    "/image": ChatCommand("FILE", "ask the next question about an image", _image),
    "/retry": ChatCommand("", "answer the last question again", _retry),
    "/undo": ChatCommand("", "remove the last question and its answer", _undo),
    "/save": ChatCommand("FILE", "write the conversation as JSON", _save),
    "/load": ChatCommand("FILE", "continue a saved conversation", _load),
    "/tokens": ChatCommand("", "show how much of the context is used", _tokens),
    "/set": ChatCommand("[NAME [VALUE]]", "show or change a setting; the value default resets it", _set),
    "/thought": ChatCommand("", "show the thought before the last answer", _thought),
    "/reset": ChatCommand("", "start a new conversation", _reset),
    "/exit": ChatCommand("", "leave", _exit),
}
