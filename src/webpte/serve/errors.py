"""Errors of the server, and the HTTP status that each error becomes."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from ..errors import (
    ClosedError,
    ConstraintError,
    ContextFullError,
    DeviceError,
    Error,
    FormatError,
    InputError,
    QueueFullError,
    UnsupportedError,
)

if TYPE_CHECKING:  # the process that decodes media does without the types of the API
    from .openai.response_types import ErrorBody

_NAMES = ("ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EROFS", "EIO")  # not all on every system
_EXHAUSTED = {getattr(errno, name) for name in _NAMES if hasattr(errno, name)}
logger = logging.getLogger(__name__)
Wait = Literal["load", "queue", "first token", "total"]

# status -> "type" and default "code" of the JSON body
STATUSES: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid_value"),
    401: ("authentication_error", "invalid_api_key"),
    403: ("invalid_request_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("invalid_request_error", "body_too_slow"),
    413: ("invalid_request_error", "body_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    422: ("invalid_request_error", "constraint_cannot_be_followed"),
    429: ("rate_limit_error", "queue_full"),
    431: ("invalid_request_error", "headers_too_large"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "unavailable"),
    504: ("server_error", "deadline_exceeded"),
}


class QueueFull(Error):  # noqa: N818 - a state of the queue, not an error of the request
    """The queue is full. The same request may succeed later."""

    code = "request_queue_full"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class WorkerUnavailable(Error):  # noqa: N818
    """No worker can run the request: it crashed repeatedly, or the server is shutting down."""

    code = "worker_unavailable"
    exit_code = 3


class ModelUnavailable(Error):  # noqa: N818
    """A model cannot be loaded. The next request after `retry_after` tries again."""

    code = "model_unavailable"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class ModelNotServable(Error):  # noqa: N818
    """A model cannot be loaded because of its file. Waiting does not help."""

    code = "model_not_servable"


class DeadlineExceeded(Error):  # noqa: N818
    """A request reached one of its timeouts."""

    code = "deadline_exceeded"

    def __init__(self, message: str, wait: Wait = "total") -> None:
        super().__init__(message)
        self.wait: Wait = wait  # which timeout


class ApiError(Exception):
    """An error response: a status, and a JSON body in the form of OpenAI's API. `param` names the invalid field."""

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
        self.code = code or STATUSES[status][1]
        self.headers = dict(headers or {})

    def body(self) -> ErrorBody:
        """Return the JSON body."""
        kind = STATUSES[self.status][0]
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def is_exhausted(error: OSError) -> bool:
    """Return whether the system lacks something for a request: disk, memory, files or processes."""
    return error.errno in _EXHAUSTED


def unavailable(reason: object) -> ApiError:
    """Return the response for what the system cannot do now. The reason is for the log: it may contain paths."""
    logger.warning("the system lacks something for a request: %s", reason)
    message = "the server has no disk space, memory or processes for this request. Try again later."
    return ApiError(503, message, headers={"Retry-After": "5"})


def api_error(error: Error | ApiError) -> ApiError:
    """Return the response for an error of the package."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, QueueFull):
        return ApiError(429, message, headers={"Retry-After": str(math.ceil(error.retry_after))})
    if isinstance(error, ModelUnavailable):
        retry = {"Retry-After": str(math.ceil(error.retry_after))}
        return ApiError(503, message, param="model", code=error.code, headers=retry)
    if isinstance(error, ModelNotServable):
        return ApiError(400, message, param="model", code=error.code)
    if isinstance(error, QueueFullError):  # from the worker, which learns of disconnected clients a moment later
        return ApiError(429, message, headers={"Retry-After": "1"})
    if isinstance(error, DeadlineExceeded):
        return ApiError(504, message)
    if isinstance(error, ConstraintError):
        return ApiError(422, message)
    if isinstance(error, ContextFullError):
        return ApiError(400, message, code="context_length_exceeded")  # of a prompt or of messages
    if isinstance(error, InputError | UnsupportedError | FormatError):
        return ApiError(400, message, param=error.argument)
    if isinstance(error, WorkerUnavailable | DeviceError | ClosedError):
        code = error.reason if error.reason == "model_replaced" else None
        return ApiError(503, message, code=code, headers={"Retry-After": "1"})
    return ApiError(500, f"{type(error).__name__}: {message}")
