"""Errors that only language models raise."""

from __future__ import annotations

from .. import errors
from ..errors import Error


class ContextFullError(Error):
    """A prompt does not fit into the rest of the model's context. The sequence is unchanged."""

    code = "context_full"


class ConstraintError(Error):
    """A JSON schema, regular expression or grammar is malformed, unsupported, unsatisfiable or too large. Only its own
    answer is affected."""

    code = "constraint"


class LogitsError(Error):
    """The model's logits contain NaN or infinity, or exclude every token: no token can be sampled. The sequence is
    unchanged."""

    code = "logits"


class QueueFullError(Error):
    """The queue is full: `max_queue_size` answers of `LLM.load` are waiting."""

    code = "queue_full"


class StaleGenerationError(Error):
    """Another answer has used this answer's sequence, so it cannot continue. Two answers at once need two sequences."""

    code = "stale_generation"


def error_of(kind: str, message: str, reason: str = "") -> Error:
    """Return the error that another process raised: of this kind if it is one of ours, else a plain Error."""
    found = getattr(errors, kind, None) or globals().get(kind)
    if isinstance(found, type) and issubclass(found, Error) and found is not errors.HubError:
        return found(message, code=reason)
    return Error(message)
