"""What goes wrong, as clients see it: a status, and a JSON body in the form of OpenAI's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import ClosedError, DeviceError, Error, FormatError, InputError, UnsupportedError
from ..llm.errors import ConstraintError, ContextFullError, QueueFullError
from .errors import DeadlineExceeded, QueueFull, WorkerUnavailable

# status -> type and code of a body where nothing more is known
KINDS: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("authentication_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("invalid_request_error", "body_too_slow"),
    413: ("invalid_request_error", "body_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    422: ("invalid_request_error", "constraint_cannot_be_followed"),
    429: ("rate_limit_error", "queue_full"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "unavailable"),
    504: ("server_error", "deadline_exceeded"),
}


class Refusal(Exception):  # noqa: N818 - an answer to a request, and no error of the server's
    """A request that is not answered: the status says why, `param` which field is wrong."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code or KINDS[status][1]
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": str(self),
                "type": KINDS[self.status][0],
                "param": self.param,
                "code": self.code,
            }
        }


def refusal_of(error: Error | Refusal) -> Refusal:
    """The refusal that an error of ours becomes; one that is a refusal already stays what it is."""
    if isinstance(error, Refusal):
        return error
    message = str(error)
    if isinstance(error, QueueFull):
        return Refusal(429, message, headers={"Retry-After": str(math.ceil(error.retry_after))})
    if isinstance(error, QueueFullError):  # of the worker's, which hears of clients that have left a moment later
        return Refusal(429, message, headers={"Retry-After": "1"})
    if isinstance(error, DeadlineExceeded):
        return Refusal(504, message)
    if isinstance(error, ConstraintError):
        return Refusal(422, message)
    if isinstance(error, ContextFullError):
        return Refusal(400, message, code="context_length_exceeded")
    if isinstance(error, InputError | UnsupportedError | FormatError):
        return Refusal(400, message)
    if isinstance(error, WorkerUnavailable | DeviceError | ClosedError):
        return Refusal(503, message, headers={"Retry-After": "1"})
    return Refusal(500, f"{type(error).__name__}: {message}")
