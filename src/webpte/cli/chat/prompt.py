"""A prompt with line editing, history, completion and multi-line paste, from prompt_toolkit."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from ...folders import chat_history_path
from .conversation import COMMANDS, NAMES, Conversation

MENU_ROWS = 6  # of completions; fits terminals of 15 rows


class PromptLines:
    """Messages from a prompt."""

    interactive = True

    def __init__(self, talk: Conversation) -> None:
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,  # Enter still sends: see `_keys`
            prompt_continuation="  ",
            key_bindings=_keys(),
            completer=_Commands(),
            complete_while_typing=False,
            reserve_space_for_menu=MENU_ROWS,
            history=open_history(chat_history_path()),
            bottom_toolbar=lambda: f" {talk.usage}   /help, Alt-Enter: another line",
            enable_suspend=True,
        )

    def read(self) -> str:
        return self._session.prompt()


def _keys() -> KeyBindings:
    keys = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)  # not while searching

    @keys.add("enter", filter=typing)
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # chosen, not sent
        elif buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)
    def _another_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


class _Commands(Completer):
    """Names of commands, of settings after /set, and of files after /save, /load and /image."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        command, space, rest = text.partition(" ")
        if not space:
            yield from _beginning(command, COMMANDS) if command.startswith("/") else ()
        elif command in ("/save", "/load", "/image"):
            yield from self._paths.get_completions(Document(rest, len(rest)), complete_event)
        elif command == "/set" and " " not in rest:
            yield from _beginning(rest, NAMES)


def _beginning(text: str, names: Iterable[str]) -> Iterable[Completion]:
    return (Completion(name, -len(text)) for name in names if name.startswith(text))


def open_history(path: Path) -> History:
    """Return the history of this and earlier sessions. If its file cannot be written, return one in memory."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
