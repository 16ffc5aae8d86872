"""Chat templates. They are downloaded, so they run in a sandbox with limits."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jinja2 import meta

from ..errors import Error, FormatError, InputError
from .template_sandbox import TemplateEnvironment, limit_error
from .tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
MAX_TEMPLATE_CHARS = 256 << 10  # the longest in use have some 30,000
MAX_DATE_FORMAT_CHARS = 100


def render_chat(
    template: str,
    messages: Messages,
    special_tokens: Mapping[str, str] = MappingProxyType({}),
    add_generation_prompt: bool = True,
    tools: Tools | None = None,
) -> str:
    """Return messages as a template renders them. Each has `role` and `content`, or `tool_calls` instead of `content`.

    `special_tokens` are the names that templates use: `bos_token`, `eos_token` and so on. `tools` are objects with
    `type` and `function`, whose `parameters` are a JSON schema, as in transformers.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise InputError(
            argument="messages", expected="a list of mappings with role and content", got=type(messages).__name__
        )
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or not {"content", "tool_calls"} & message.keys():
            raise InputError(
                argument=f"messages[{position}]",
                expected="a mapping with role and content",
                got=_keys_of(message),
                code="missing_field",
            )
    if tools is not None:
        _check_tools(tools)
    if len(template) > MAX_TEMPLATE_CHARS:
        raise limit_error(f"has {len(template):,} characters, above {MAX_TEMPLATE_CHARS:,}")
    environment = TemplateEnvironment()
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    given: dict[str, Any] = {"documents": None, **special_tokens, "add_generation_prompt": add_generation_prompt}
    given["tools"] = list(tools) if tools else None  # some templates ask whether it is none, others whether it is empty
    try:
        if tools and "tools" not in meta.find_undeclared_variables(environment.parse(template)):
            raise InputError(
                "the chat template does not render tools",
                argument="tools",
                hint="Describe them in a message.",
                code="tools_unsupported",
            )
        return "".join(environment.from_string(template).generate(messages=messages, **given))
    except Error:
        raise
    except Exception as error:  # a template can raise whatever Python can
        raise FormatError(
            f"the chat template failed: {type(error).__name__}: {error}", code="template_failed"
        ) from error


def encode_chat(
    tokenizer: Tokenizer,
    render: Callable[[Messages, Tools | None], str],
    messages: Messages,
    tools: Tools | None,
    *,
    parse_special: bool = False,
) -> list[int]:
    """Return the tokens of messages, as `render` writes them. Special tokens are those of the template: in the strings
    of messages and tools they are text, so that no message can forge the end of its turn. With `parse_special` they
    are recognized there, too."""
    if parse_special:
        return tokenizer.encode(render(messages, tools), parse_special=True)
    try:
        (own_messages, own_tools), marked = tokenizer.mark_special_tokens((messages, tools))
    except RecursionError:
        raise InputError("messages, tools: nested too deeply", code="nested_too_deeply") from None
    if not marked:
        return tokenizer.encode(render(messages, tools), parse_special=True)
    return tokenizer.encode_marked(render(own_messages, own_tools))


def _check_tools(tools: Tools) -> None:
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise InputError(
            argument="tools",
            expected="a list of mappings with type and function",
            got=type(tools).__name__,
            code="wrong_type",
        )
    for position, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError(
                argument=f"tools[{position}]",
                expected="a mapping with type and function, which has a name",
                got=_keys_of(tool),
                code="missing_field",
            )


def _refuse(message: Any) -> None:
    """Raise the error of a template that rejects the messages."""
    raise InputError(f"the chat template rejects these messages: {message}", code="template_refused")


def _keys_of(value: object) -> str:
    return f"the keys {', '.join(map(str, value)) or 'none'}" if isinstance(value, Mapping) else type(value).__name__


def _now(form: str) -> str:
    if len(form) > MAX_DATE_FORMAT_CHARS:
        raise limit_error(f"formats a date by {len(form):,} characters")
    return datetime.datetime.now().strftime(form)
