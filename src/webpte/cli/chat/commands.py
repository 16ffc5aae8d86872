"""Commands of a chat: lines that start with a slash."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...errors import InputError
from ...llm.settings import GenerateSettings, SamplingParams
from ...text import plural
from ..output import say
from ..parsing import did_you_mean
from .conversation import Conversation, Question

HIDDEN = ("logprobs", "top_logprobs", "tokens_per_submit")  # settings without effect in a chat
NAMES = tuple(name for name in GenerateSettings.__annotations__ if name not in HIDDEN)
DEFAULTS = {each.name: getattr(SamplingParams(), each.name) for each in fields(SamplingParams) if each.name in NAMES}
KEYS = (
    "Enter sends. Alt-Enter, or a backslash at the end of a line, starts another line; a pasted text is one message.",
    "Up and Down browse the history, Ctrl-R searches it, Tab completes.",
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
    if not text.startswith("/"):
        return talk.question(text) if text.strip() else None
    if text.startswith("//"):
        return talk.question(text[1:])
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


def _retry(talk: Conversation, rest: str) -> Question:
    question = talk.last_question()
    if talk.settings.get("temperature"):  # the same seed would give the same answer
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
    if text:
        talk.set(name, DEFAULTS[name] if text.strip() == "default" else _value(name, text.strip()))
    for each in [name] if name else NAMES:
        say(f"({each} = {json.dumps(talk.settings.get(each, DEFAULTS[each]))})")


def _value(name: str, text: str) -> Any:
    """Return a value of JSON (a number, list, boolean or null), or else the text itself."""
    if name in ("regex", "grammar"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _reset(talk: Conversation, rest: str) -> None:
    talk.reset()
    say("(started over)")


def _exit(talk: Conversation, rest: str) -> None:
    talk.over = True


COMMANDS = {
    "/help": ChatCommand("", "this list", _help),
    "/system": ChatCommand("[TEXT]", "show or set the system message; - removes it", _system),
    "/retry": ChatCommand("", "answer the last question again", _retry),
    "/undo": ChatCommand("", "remove the last question and its answer", _undo),
    "/save": ChatCommand("FILE", "write the conversation as JSON", _save),
    "/load": ChatCommand("FILE", "continue a saved conversation", _load),
    "/tokens": ChatCommand("", "show how much of the context is used", _tokens),
    "/set": ChatCommand("[NAME [VALUE]]", "show or change a setting; the value default resets it", _set),
    "/reset": ChatCommand("", "start a new conversation", _reset),
    "/exit": ChatCommand("", "leave", _exit),
}
