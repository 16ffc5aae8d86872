"""Choose the context of a program: the tokens that its KV cache holds."""

from __future__ import annotations

from dataclasses import dataclass

from ..checkpoints.family import Checkpoint
from ..errors import InputError
from ..llm.context import ContextLimit

DEFAULT_MAX_CONTEXT = 8192
DEFAULT_MAX_TOKENS = 256  # of one call
OTHER_TOKENS = 64  # of the default beside an image whose rows one call computes
MIN_CONTEXT = 512  # that memory leaves; a model that does not fit with it is refused when it is loaded
# One sequence takes at most this share of the memory beside the weights: growing from one slot to two needs three.
CACHE_SHARE = 4


@dataclass(frozen=True)
class ProgramSizes:
    """The sizes of a program: tokens of a sequence, and tokens that one call takes, plus one."""

    context: ContextLimit
    max_tokens: int

    @property
    def max_context(self) -> int:
        return self.context.tokens


def check_sizes(max_context: int | None, max_tokens: int | None) -> None:
    """Check requested sizes before a checkpoint is read."""
    if max_context is not None and max_context < 2:
        raise InputError(argument="max_context", expected="at least 2", got=max_context, code="max_context")
    if max_tokens is None or 1 < max_tokens <= (max_context or max_tokens):
        return
    bound = "max_context" if max_context is None else f"max_context, {max_context}"
    raise InputError(argument="max_tokens", expected=f"2 to {bound}", got=max_tokens, code="max_tokens")


def choose_sizes(
    source: Checkpoint,
    max_context: int | None = None,
    max_tokens: int | None = None,
    *,
    memory: int | None = None,
) -> ProgramSizes:
    """Return the sizes of a program: those requested, or else the model's own context within the default limit.

    `memory` is the number of bytes that are free for KV caches; None means no limit. The default context is halved
    until the cache of one sequence takes a quarter of them.
    """
    limit, rows = _context(source, max_context, memory), _rows_together(source)
    default = max(DEFAULT_MAX_TOKENS, rows + 1 + OTHER_TOKENS if rows else 0)
    sizes = ProgramSizes(limit, min(default, limit.tokens) if max_tokens is None else max_tokens)
    check_sizes(limit.tokens, sizes.max_tokens)
    if sizes.max_tokens <= rows:
        name, got = ("max_context", limit.tokens) if max_tokens is None else ("max_tokens", max_tokens)
        expected = f"at least {rows + 1}: one call computes the {rows} rows of an image"
        raise InputError(argument=name, expected=expected, got=got, code=name)
    return sizes


def _rows_together(source: Checkpoint) -> int:
    """Return the rows of an image that one call has to compute."""
    tower = None if source.vision is None else source.vision.tower
    return tower.max_rows if tower is not None and tower.bidirectional else 0


def _context(source: Checkpoint, requested: int | None, memory: int | None) -> ContextLimit:
    own, model = source.context, source.architecture
    if requested is not None:
        if model.max_positions is not None and requested > model.max_positions:
            raise InputError(
                argument="max_context",
                expected=f"at most {model.max_positions}: {source.family.name} scales the queries of later tokens",
                got=requested,
                code="max_context",
            )
        return ContextLimit(requested, "requested", own)
    tokens = DEFAULT_MAX_CONTEXT if own is None else max(2, min(own, DEFAULT_MAX_CONTEXT))
    limit = ContextLimit(tokens, "model" if tokens == own else "default", own)
    while memory is not None and tokens > MIN_CONTEXT and CACHE_SHARE * model.cache_bytes(tokens) > memory:
        tokens = max(MIN_CONTEXT, tokens // 2)
        limit = ContextLimit(tokens, "memory", own)
    return limit
