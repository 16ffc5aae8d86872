"""Prompts as tokens: texts to continue, chats by their template, and special tokens.

Chat templates are downloaded, so they run in a sandbox with limits.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict

from jinja2 import meta

from ..errors import ContextFullError, Error, FormatError, InputError
from ..json_files import read_json_object
from ..typing import JsonObject
from .context import ContextLimit
from .template_sandbox import TemplateEnvironment, limit_error
from .tokenizer import Tokenizer
from .tool_shapes import ToolFormat

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of `tokenizer_config.json`."""

    texts: Mapping[str, str] = field(default_factory=dict)  # by name: bos_token, eos_token, unk_token …
    add_bos: bool = False  # before every text, even if the tokenizer's post-processor does not add it
    tool_format: ToolFormat | None = None  # how the model writes tool calls


def default_template(value: Any, where: str) -> str | None:
    """Return the chat template of a tokenizer_config.json: a string, or the default of a list of templates by name."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else None
    templates = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
    default = templates.pop("default", None)
    if templates:
        names = ", ".join(map(str, templates))
        logger.warning("%s: chat templates that are not used, only the default is: %s", where, names)
    return default if isinstance(default, str) else None


def read_special_tokens(
    path: Path | None, tokenizer: Tokenizer, bos_id: int | None, eos_ids: Sequence[int]
) -> SpecialTokens:
    """Return the special tokens of a `tokenizer_config.json`. The program's own numbers fill in bos and eos."""
    known = {"bos_token": bos_id, "eos_token": eos_ids[0] if eos_ids else None}
    texts = {name: text for name, number in known.items() if (text := tokenizer.token_text(number)) is not None}
    config = read_json_object(path) if path is not None else {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value  # an added token is an object
        if name.endswith("_token") and isinstance(text, str):
            texts[name] = text
    calls = config.get("tool_format")
    return SpecialTokens(
        texts,
        config.get("add_bos_token") is True,
        ToolFormat.from_json(calls, str(path)) if calls is not None else None,
    )


def check_prompt_size(text: str, tokenizer: Tokenizer, limit: ContextLimit) -> str:
    """Return the text. Raise ContextFullError if it has more bytes than the tokens of a context can stand for: the
    tokens of such a text may take a minute to compute."""
    most = limit.tokens * tokenizer.max_token_bytes
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise ContextFullError(
            argument="prompt",
            expected=f"at most {most:,} bytes, {limit.tokens:,} tokens of the longest kind",
            got=f"{size:,} bytes",
            hint=limit.hint,
        )
    return text


def encode_prompt(tokenizer: Tokenizer, special: SpecialTokens, text: str, *, parse_special: bool = False) -> list[int]:
    """Return the tokens of a text to continue, after what the model expects before every text, once. With
    `parse_special`, special tokens spelled in the text are recognized."""
    plain = tokenizer.encode(text, parse_special=parse_special)
    full = tokenizer.encode(text, add_special=True, parse_special=parse_special)
    # Only what precedes the text: an end-of-text token after it would end the answer, too.
    starts = (at for at in range(len(full) - len(plain) + 1) if full[at : at + len(plain)] == plain)
    tokens = full[: next(starts, 0)] + plain
    bos = tokenizer.token_id(special.texts["bos_token"]) if "bos_token" in special.texts else None
    if bos is not None:
        if special.add_bos and tokens[:1] != [bos]:
            tokens = [bos, *tokens]
        if tokens[:2] == [bos, bos]:  # the text begins with it already
            tokens = tokens[1:]
    return tokens


# -- chats ------------------------------------------------------------------------------------------------------------


class TemplateFunction(TypedDict):
    """A function that a model may call."""

    name: str
    description: str
    parameters: JsonObject  # a JSON schema


class TemplateTool(TypedDict):
    type: Literal["function"]
    function: TemplateFunction


class TemplateCalledFunction(TypedDict):
    name: str
    arguments: JsonObject


class TemplateCall(TypedDict):
    """A tool call of an earlier answer."""

    id: NotRequired[str]
    type: Literal["function"]
    function: TemplateCalledFunction


class TemplatePart(TypedDict):
    """A text or an image of a message."""

    type: Literal["text", "image"]
    text: NotRequired[str]
    image: NotRequired[Any]  # as `LLM.generate` takes it


TemplateContent = str | list[TemplatePart]


class TemplateMessage(TypedDict):
    """A message as chat templates of the field read it."""

    role: str
    content: TemplateContent
    reasoning_content: NotRequired[str]  # the thought before `content`
    tool_calls: NotRequired[list[TemplateCall]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_ROLE_CHARS = 40  # in an error
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
        check_role(message["role"], position)
    if tools is not None:
        _check_tools(tools)
    if len(template) > MAX_TEMPLATE_CHARS:
        raise limit_error(f"has {len(template):,} characters, above {MAX_TEMPLATE_CHARS:,}")
    environment = TemplateEnvironment()
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    variables: dict[str, Any] = {"documents": None, **special_tokens, "add_generation_prompt": add_generation_prompt}
    # Some templates ask whether it is none, others whether it is empty.
    variables["tools"] = list(tools) if tools else None
    try:
        if tools and "tools" not in template_variables(template):
            raise InputError(
                "the chat template does not render tools",
                argument="tools",
                hint="Describe them in a message.",
                code="tools_unsupported",
            )
        return "".join(environment.from_string(template).generate(messages=messages, **variables))
    except Error:
        raise
    except Exception as error:  # a template can raise whatever Python can
        raise _template_error(error) from error


def _template_error(error: Exception) -> FormatError:
    return FormatError(f"the chat template failed: {type(error).__name__}: {error}", code="template_failed")


def template_variables(template: str) -> frozenset[str]:
    """Return the names that a chat template reads."""
    try:
        return frozenset(meta.find_undeclared_variables(TemplateEnvironment().parse(template)))
    except Exception as error:
        raise _template_error(error) from error


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


def check_role(role: object, position: int) -> None:
    """Raise InputError unless it is the role of a message: templates would render another one as it is."""
    if role not in ROLES:
        raise InputError(
            argument=f"messages[{position}].role",
            expected=f"one of {', '.join(map(repr, ROLES))}",
            got=repr(role)[:MAX_ROLE_CHARS],
            code="unknown_role",
        )


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
        raise limit_error(f"has a date format of {len(form):,} characters")
    return datetime.datetime.now().strftime(form)
