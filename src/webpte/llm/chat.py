"""Chat templates. They come out of downloaded files, so they run in a sandbox, with limits."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..errors import Error, FormatError, InputError
from .template_limits import over
from .template_sandbox import TemplateEnvironment

Messages = Sequence[Mapping[str, Any]]
LONGEST_TEMPLATE = 256 << 10  # characters; the longest in use have some 30,000
LONGEST_DATE = 100


def render_chat(
    template: str,
    messages: Messages,
    special_tokens: Mapping[str, str] = MappingProxyType({}),
    add_generation_prompt: bool = True,
) -> str:
    """The prompt a template makes of messages, each with `role` and `content`.

    `special_tokens` are those that templates call by name: `bos_token`, `eos_token` and so on.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise InputError(f"messages are a list of mappings with role and content, not {type(messages).__name__}")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise InputError(f"message {position} needs the keys role and content")
    if len(template) > LONGEST_TEMPLATE:
        raise over(f"has {len(template):,} characters, above {LONGEST_TEMPLATE:,}")
    environment = TemplateEnvironment()
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    given = {"tools": None, "documents": None, **special_tokens, "add_generation_prompt": add_generation_prompt}
    try:
        return "".join(environment.from_string(template).generate(messages=messages, **given))
    except Error:
        raise
    except Exception as error:  # a template can raise whatever Python can
        raise FormatError(f"the chat template failed: {type(error).__name__}: {error}") from error


def _refuse(message: Any) -> None:
    """What templates call when messages do not fit them."""
    raise InputError(f"the chat template refuses these messages: {message}")


def _now(form: str) -> str:
    if len(form) > LONGEST_DATE:
        raise over(f"formats a date by {len(form):,} characters")
    return datetime.datetime.now().strftime(form)
