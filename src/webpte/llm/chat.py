"""Chat templates. They come out of downloaded files, so they run in a sandbox, with limits."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jinja2 import meta

from ..errors import Error, FormatError, InputError
from .template_sandbox import TemplateEnvironment, over
from .tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
LONGEST_TEMPLATE = 256 << 10  # characters; the longest in use have some 30,000
LONGEST_DATE = 100


def render_chat(
    template: str,
    messages: Messages,
    special_tokens: Mapping[str, str] = MappingProxyType({}),
    add_generation_prompt: bool = True,
    tools: Tools | None = None,
) -> str:
    """The prompt a template makes of messages, each with `role` and `content`, or `tool_calls` in its place.

    `special_tokens` are those that templates call by name: `bos_token`, `eos_token` and so on. `tools` are objects with
    `type` and `function`, whose `parameters` are a JSON schema, as transformers gives them to templates.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise InputError(f"messages are a list of mappings with role and content, not {type(messages).__name__}")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message or not {"content", "tool_calls"} & message.keys():
            raise InputError(f"message {position} needs the keys role and content", code="missing_field")
    if tools is not None:
        _check_tools(tools)
    if len(template) > LONGEST_TEMPLATE:
        raise over(f"has {len(template):,} characters, above {LONGEST_TEMPLATE:,}")
    environment = TemplateEnvironment()
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    given: dict[str, Any] = {"documents": None, **special_tokens, "add_generation_prompt": add_generation_prompt}
    given["tools"] = list(tools) if tools else None  # some templates ask whether it is none, others whether it is empty
    try:
        if tools and "tools" not in meta.find_undeclared_variables(environment.parse(template)):
            raise InputError(
                "the chat template takes no tools: the model would not hear of them. Put them in a message.",
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
    are recognised there, too."""
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
            f"tools are a list of mappings with type and function, not {type(tools).__name__}", code="wrong_type"
        )
    for position, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError(
                f"tool {position} needs the keys type and function, and its function a name", code="missing_field"
            )


def _refuse(message: Any) -> None:
    """What templates call when messages do not fit them."""
    raise InputError(f"the chat template refuses these messages: {message}", code="template_refused")


def _now(form: str) -> str:
    if len(form) > LONGEST_DATE:
        raise over(f"formats a date by {len(form):,} characters")
    return datetime.datetime.now().strftime(form)
