"""Errors that only language models raise."""

from __future__ import annotations

from .. import errors
from ..errors import Error


class ContextFullError(Error):
    """A prompt does not fit what is left of the model's context. The session is unchanged."""

    code = "context_full"


class ConstraintError(Error):
    """A schema, expression or grammar that an answer was to follow is malformed, asks for what is not supported, allows
    no answer, or is too large to follow. Only the answer that asked for it is affected."""

    code = "constraint"


class LogitsError(Error):
    """The model's logits hold NaN or infinity, or hide every token: nothing can be chosen. The session is unchanged."""

    code = "logits"


class QueueFullError(Error):
    """So many answers wait to be computed that no more are taken: `max_queue_size` of `LLM.load` says how many may."""

    code = "queue_full"


class StaleGenerationError(Error):
    """Something else has used the answer's sequence since: it cannot go on. Two at once need two sequences."""

    code = "stale_generation"


def error_of(kind: str, message: str, reason: str = "") -> Error:
    """Return the error that another process raised: of this kind if it is one of ours, else a plain Error."""
    found = getattr(errors, kind, None) or globals().get(kind)
    if isinstance(found, type) and issubclass(found, Error) and found is not errors.HubError:
        return found(message, code=reason)
    return Error(message)
