"""Chat templates. They come out of downloaded files, so they run in Jinja's immutable sandbox."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ..errors import FormatError, InputError

Messages = Sequence[Mapping[str, Any]]


def _refuse(message: str) -> None:
    """What templates call when messages do not fit them."""
    raise InputError(f"the chat template refuses these messages: {message}")


def render_chat(template: str, messages: Messages, *, add_generation_prompt: bool = True, **variables: Any) -> str:
    """The prompt a template makes of messages, each with `role` and `content`."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise InputError(f"messages are a list of mappings with role and content, not {type(messages).__name__}")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise InputError(f"message {position} needs the keys role and content")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        compiled = environment.from_string(template)
        return compiled.render(messages=messages, add_generation_prompt=add_generation_prompt, **variables)
    except jinja2.TemplateError as error:
        raise FormatError(f"the chat template failed: {error}") from error
