"""How a model thinks before it answers: the tags around its thought, and what a chat template reads of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import InputError
from .tokenizer import Tokenizer

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
REASONING_EFFORTS: tuple[ReasoningEffort, ...] = get_args(ReasoningEffort)
SWITCHES = ("enable_thinking", "thinking")  # variables of templates that turn thinking on and off
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")  # of messages, as different templates name it
MAX_TAG_TOKENS = 32  # of a tag, its label and the white space after them, at the end of a prompt


@dataclass(frozen=True)
class ThoughtTags:
    """What a family of models writes around a thought."""

    begin: str
    end: str
    label: str = ""  # the first line after `begin`, which is not part of the thought
    separator: str = "\n\n"  # between `end` and the answer
    # Ends a header, from `begin` on. If it ends with the label, a thought follows, otherwise the answer. Each further
    # message has a header after `end`. Empty: what follows `begin` is a thought.
    message: str = ""


TAGS = (
    ThoughtTags("<think>", "</think>"),
    ThoughtTags("<|channel>", "<channel|>", label="thought", separator=""),
    ThoughtTags("[THINK]", "[/THINK]"),
)
# Of gpt-oss: a channel of its own has the thought.
HARMONY = ThoughtTags(
    "<|channel|>",
    "<|end|>",
    label="analysis",
    separator="<|start|>assistant<|channel|>final<|message|>",
    message="<|message|>",
)


def thought_tags(template: str | None) -> ThoughtTags | None:
    """Return the tags that a chat template mentions; None if it mentions none."""
    if template and HARMONY.begin in template:
        return HARMONY
    mentioned = (tags for tags in TAGS if template and (tags.begin in template or tags.end in template))
    return next(mentioned, None)


@dataclass(frozen=True)
class Thought:
    """How one response may begin with a thought, and what ends it."""

    tags: ThoughtTags
    begin_id: int | None  # the token of a tag; None if a tag is text
    end_id: int | None
    is_open: bool  # the prompt ends with `begin`
    budget: int | None = None  # tokens of the thought
    closing: tuple[int, ...] = ()  # tokens that end a thought whose budget is spent
    separator: tuple[int, ...] = ()  # tokens between the end of a thought and a constrained answer
    message_id: int | None = None  # the token that ends a header


def thought_after(
    prompt: Sequence[int], tags: ThoughtTags, tokenizer: Tokenizer, budget: int | None = None
) -> Thought | None:
    """Return how the response to a prompt may begin; None if the prompt has ended the thought."""
    tail = tokenizer.decode(prompt[-MAX_TAG_TOKENS:], specials=True).rstrip()
    if tail.endswith(tags.end):
        return None
    begin_id, end_id, message_id = (tokenizer.token_id(tag) for tag in (tags.begin, tags.end, tags.message))
    if tags.message and None in (begin_id, end_id, message_id):
        return None  # its headers are not text
    return Thought(
        tags,
        begin_id,
        end_id,
        tail.removesuffix(tags.label).rstrip().endswith(tags.begin),
        budget,
        tuple(tokenizer.encode(f"\n{tags.end}{tags.separator}", parse_special=True)),
        tuple(tokenizer.encode(tags.separator, parse_special=True)) if tags.separator else (),
        message_id,
    )


def thinking_variables(
    known: Collection[str], tags: ThoughtTags | None, think: bool | None, effort: ReasoningEffort | None
) -> dict[str, Any]:
    """Return the variables of a chat template that request or suppress a thought, out of those that it reads."""
    if tags is None and (think or effort not in (None, "none")):
        raise InputError(
            argument="think" if think else "reasoning_effort",
            expected="a model whose chat template has tags for a thought",
            got="a model without",
            code="thinking_unsupported",
        )
    if think is None and effort is not None:
        think = effort != "none"
    variables: dict[str, Any] = {} if think is None else dict.fromkeys(SWITCHES, think)
    if effort is not None:
        variables["reasoning_effort"] = effort
    return {name: value for name, value in variables.items() if name in known}


def with_reasoning_fields(message: Mapping[str, Any], template: str) -> Mapping[str, Any]:
    """Return a message whose `reasoning_content` has the name that the template reads, or none."""
    reasoning = message.get("reasoning_content")
    if reasoning is None:
        return message
    rest = {name: value for name, value in message.items() if name != "reasoning_content"}
    return rest | {name: reasoning for name in REASONING_FIELDS if name in template}
