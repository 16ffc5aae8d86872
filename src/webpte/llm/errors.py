"""Failures that only language models have."""

from __future__ import annotations

from ..errors import Error


class ContextFullError(Error):
    """A prompt does not fit what is left of the model's context. The session is unchanged."""


class LogitsError(Error):
    """The model's logits hold NaN or infinity, or hide every token: nothing can be chosen. The session is unchanged."""


class StaleGenerationError(Error):
    """Something else has used the model's cache since: this answer cannot go on. Two at once need `fork()`."""
