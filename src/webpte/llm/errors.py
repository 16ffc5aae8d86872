"""Failures that only language models have."""

from __future__ import annotations

from ..errors import Error


class ContextFullError(Error):
    """A prompt does not fit what is left of the model's context. The session is unchanged."""
