"""The context of a language model: how many tokens a sequence may have, and what limits them.

Exporters choose the limit and store it in the program, so that a prompt that is too long gets an error with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import ContextFullError, FormatError

LIMIT_METHOD = "get_context_limit"  # of a program: returns the number of the reason, and the model's own context or 0
# "model": the model's own context; "requested": `max_context`; "default": DEFAULT_MAX_CONTEXT; "memory": free memory
# when the program was built; "file": a program that states no reason. The order is that of the numbers in files.
Reason = Literal["file", "model", "requested", "default", "memory"]
REASONS: tuple[Reason, ...] = get_args(Reason)
_NAMES: Mapping[Reason, str] = {
    "file": "the context of the program",
    "model": "the model's own context",
    "requested": "the context that max_context set",
    "default": "the default limit of contexts",
    "memory": "the context for which memory was free when the program was built",
}
_RAISE = "load or export the checkpoint with --max-context N (max_context=N in Python)"


@dataclass(frozen=True)
class ContextLimit:
    """The tokens that a sequence may have, and the reason for their number."""

    tokens: int
    reason: Reason = "file"
    model: int | None = None  # the model's own context; None if it is unknown

    def numbers(self) -> list[int]:
        """Return what LIMIT_METHOD returns."""
        return [REASONS.index(self.reason), self.model or 0]

    def to_json(self) -> dict[str, Any]:
        """Return the reason as the manifest of a bundle states it."""
        return {"reason": self.reason, "model": self.model}

    @property
    def hint(self) -> str:
        """Return how to raise the limit."""
        if self.reason == "model":
            return f"Shorten the prompt. For more than the model was trained for, {_RAISE}."
        own = f"The model's own context is {self.model:,} tokens. " if self.model and self.model > self.tokens else ""
        return f"{own}For a longer context, {_RAISE}."

    def error(self, got: int) -> ContextFullError:
        """Return the error for a prompt of `got` tokens."""
        return ContextFullError(
            argument="prompt",
            expected=f"fewer than {self.tokens:,} tokens, {_NAMES[self.reason]}",
            got=f"{got:,} tokens",
            hint=self.hint,
        )


def limit_from_numbers(tokens: int, numbers: tuple[int, ...]) -> ContextLimit:
    """Return the limit of a program whose LIMIT_METHOD returned these numbers; empty if it has no such method."""
    if not numbers:
        return ContextLimit(tokens)
    if len(numbers) != 2 or not 0 <= numbers[0] < len(REASONS) or numbers[1] < 0:
        raise FormatError(
            argument=LIMIT_METHOD,
            expected=f"a number below {len(REASONS)} and a number of tokens",
            got=list(numbers)[:4],
            code="context_limit",
        )
    return ContextLimit(tokens, REASONS[numbers[0]], numbers[1] or None)


def limit_from_json(tokens: int, data: Mapping[str, Any] | None) -> ContextLimit:
    """Return the limit that the manifest of a bundle states; None in older bundles."""
    if data is None:
        return ContextLimit(tokens)
    reason, model = data.get("reason"), data.get("model")
    valid = model is None or (type(model) is int and model > 0)
    if reason not in REASONS or not valid:
        raise FormatError(
            argument="context_limit",
            expected=f"a reason ({', '.join(REASONS)}) and a number of tokens or null",
            got=ascii(dict(data))[:60],
            code="context_limit",
        )
    return ContextLimit(tokens, reason, model)
