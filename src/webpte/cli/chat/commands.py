"""What a line that begins with a slash does."""

from __future__ import annotations

import difflib
import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...errors import InputError
from ...llm.settings import GenerateSettings, SamplingParams
from ..output import say
from .conversation import Conversation, Question

HIDDEN = ("logprobs", "top_logprobs", "tokens_per_submit")  # settings that nothing of a chat shows
NAMES = tuple(name for name in GenerateSettings.__annotations__ if name not in HIDDEN)
DEFAULTS = {each.name: getattr(SamplingParams(), each.name) for each in fields(SamplingParams) if each.name in NAMES}
KEYS = (
    "Enter sends. Alt-Enter, or a backslash at the end of a line, begins another line; a pasted text is one message.",
    "Up and Down go through what was said before, Ctrl-R searches it, Tab completes.",
    "A message that begins with a slash is written with two.",
    "Ctrl-C stops an answer. At the prompt, twice, it leaves, as Ctrl-D does.",
)


@dataclass(frozen=True)
class ChatCommand:
    """`act` gets the conversation and what follows the name; what it returns is to be asked."""

    argument: str  # as help writes it; in brackets where it may be left out
    help: str
    act: Callable[[Conversation, str], Question | None]

    @property
    def takes(self) -> bool:
        return bool(self.argument)

    @property
    def needs(self) -> bool:
        return self.takes and not self.argument.startswith("[")


def obey(talk: Conversation, text: str) -> Question | None:
    """Do what a text says, if it is a command; a question that is to be asked otherwise."""
    if not text.startswith("/"):
        return talk.question(text) if text.strip() else None
    if text.startswith("//"):
        return talk.question(text[1:])
    name, _, rest = text.partition(" ")
    name, rest = name.strip(), rest.strip()
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1, cutoff=0.7)
        meant = f"did you mean {near[0]}?" if near else "/help lists them"
        raise InputError(f"there is no command {name}; {meant}")
    if rest and not command.takes:
        raise InputError(f"{name} takes no argument, and was given {rest!r}")
    if not rest and command.needs:
        raise InputError(f"{name} needs {command.argument}: {command.help}")
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


def _retry(talk: Conversation, rest: str) -> Question:
    question = talk.last_question()
    if talk.settings.get("temperature"):  # the same seed would give the same answer
        talk.set("seed", (talk.settings.get("seed", 0) + 1) % 2**31)
    return question


def _undo(talk: Conversation, rest: str) -> None:
    talk.undo()
    say(f"(taken back; {talk.usage})")


def _save(talk: Conversation, rest: str) -> None:
    say(f"(saved {talk.save(rest)} messages to {rest})")


def _load(talk: Conversation, rest: str) -> None:
    say(f"(loaded {talk.load(rest)} messages from {rest}; {talk.usage})")


def _tokens(talk: Conversation, rest: str) -> None:
    left = talk.llm.capacity - talk.tokens
    say(f"({talk.usage}, {left:,} left; {len(talk.whole)} messages)")


def _set(talk: Conversation, rest: str) -> None:
    name, _, text = rest.partition(" ")
    if name and name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        raise InputError(
            f"/set knows no {name}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}")
        )
    if text:
        talk.set(name, DEFAULTS[name] if text.strip() == "default" else _value(name, text.strip()))
    for each in [name] if name else NAMES:
        say(f"({each} = {json.dumps(talk.settings.get(each, DEFAULTS[each]))})")


def _value(name: str, text: str) -> Any:
    """A number, a list, true, false or null as JSON writes them; anything else, or what is to be a text, is one."""
    if name in ("regex", "grammar"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _reset(talk: Conversation, rest: str) -> None:
    talk.reset()
    say("(forgotten)")


def _exit(talk: Conversation, rest: str) -> None:
    talk.over = True


COMMANDS = {
    "/help": ChatCommand("", "this list", _help),
    "/system": ChatCommand(
        "[TEXT]", "show or set the instructions before the conversation; - takes them away", _system
    ),
    "/retry": ChatCommand("", "answer the last question again", _retry),
    "/undo": ChatCommand("", "take the last question and its answer back", _undo),
    "/save": ChatCommand("FILE", "write the conversation, as JSON", _save),
    "/load": ChatCommand("FILE", "go on from one that was saved", _load),
    "/tokens": ChatCommand("", "how much of the context is used", _tokens),
    "/set": ChatCommand("[NAME [VALUE]]", "show or change a setting; the value default puts it back", _set),
    "/reset": ChatCommand("", "forget the conversation", _reset),
    "/exit": ChatCommand("", "leave", _exit),
}
