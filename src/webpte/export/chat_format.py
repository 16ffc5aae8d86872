"""How a checkpoint's model talks: which tokens end an answer, and how it writes calls of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import FormatError
from ..llm.tokenizer_file import read_tokenizer
from ..llm.tools import ToolFormat
from .fields import is_token_id

# By a text that chat templates of the format have and others have not; None: a format that is not known here.
ToolFormats = Mapping[str, ToolFormat | None]

IN_TAGS = ToolFormat("object", "<tool_call>", "</tool_call>")
PARAMETERS_IN_TAGS = ToolFormat("parameters", "<tool_call>", "</tool_call>")


def tool_format(formats: ToolFormats, template: str | None) -> ToolFormat | None:
    """The format that the chat template is of: one family's models may write calls in several ways, or in none."""
    return next((found for sign, found in formats.items() if template is not None and sign in template), None)


def end_ids(where: str, told: Iterable[Any], names: Iterable[str], tokenizer: str) -> tuple[int, ...]:
    """Numbers of the tokens that end an answer: those that files tell, and those named here that the tokenizer has."""
    found: dict[int, None] = {}
    for value in told:
        for number in value if isinstance(value, list) else [value]:
            if not is_token_id(number):
                raise FormatError(f"{where}: eos_token_id has {number!r}; numbers of tokens are wanted")
            found[number] = None
    known = read_tokenizer(f"{where}: its tokenizer.json", tokenizer.encode()).get_vocab()
    return tuple(found | {known[name]: None for name in names if name in known})
