"""Errors that come from another process, as the kind and the words of those that were raised in it."""

from __future__ import annotations

from .. import errors
from ..errors import Error
from . import errors as language_errors


def error_of(kind: str, message: str, reason: str = "") -> Error:
    """An error of that kind, if it is one of ours; an Error otherwise."""
    found = getattr(errors, kind, None) or getattr(language_errors, kind, None)
    if isinstance(found, type) and issubclass(found, Error) and found is not errors.HubError:
        return found(message, code=reason)
    return Error(message)
