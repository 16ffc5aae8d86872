"""Around every request: the API key, the host, the request id, failures, one log line."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .accounts import RequestClock
from .clients import ClientDisconnected, client_of_address
from .errors import ApiError, is_exhausted, unavailable
from .page import PAGE_PATHS, wants_page
from .processes import IdleTrim
from .reference import REFERENCE_PATH
from .responses import error_response
from .service import Service

logger = logging.getLogger(__name__)
CLIENT_CLOSED_REQUEST = 499  # the status in logs and metrics of a request whose client disconnected
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
MAX_HOST_CHARS = 80  # of a name in a message
STATUS_PATHS = ("/", "/metrics", "/openapi.json", REFERENCE_PATH)  # that are answered while models load
PUBLIC_PATHS = ("/health", *PAGE_PATHS)  # load balancers have no key; the page asks for one


class ApiKeys:
    """The keys of a server. Only digests are stored and compared, so every comparison takes the same time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def check(self, authorization: str | None) -> str:
        """Return the digest of the key in credentials `Bearer KEY`; "" if the server has no keys. Raise ApiError 401
        unless it is one of the keys."""
        if not self._digests:
            return ""
        challenge = {"WWW-Authenticate": "Bearer"}
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiError(
                401, "API key required: send the header Authorization: Bearer KEY, or x-api-key: KEY",
                code="missing_api_key", headers=challenge,
            )  # fmt: skip
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all, also after a match
        if not any(matches):
            raise ApiError(401, "the API key is not valid for this server", headers=challenge)
        return digest.hex()


def _credentials(headers: Headers) -> str | None:
    """Return the header `Authorization`, or what it would be for the key in `x-api-key`."""
    key = headers.get("x-api-key")
    return headers.get("authorization") or (f"Bearer {key}" if key else None)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


_HOST = re.compile(r"(\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:@/\[\]]*))(:[0-9]{0,5})?")


def check_host(header: str, allowed: frozenset[str]) -> None:
    """Raise ApiError 403 for a `Host` header that names another server. Without names, allow any."""
    parts = _HOST.fullmatch(header.strip().lower())
    name = (parts["address"] or parts["name"]) if parts else header  # with a user or another port, it is not a host
    if allowed and name not in allowed:
        raise ApiError(403, f"Host: {name[:MAX_HOST_CHARS] or 'none'} is not in allowed_hosts", code="host_not_allowed")


def check_framing(headers: Headers) -> None:
    """Raise ApiError 400 for a request whose end a proxy in front may see elsewhere. The connection is closed."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise ApiError(
            400, "Content-Length: not allowed with Transfer-Encoding", code="ambiguous_length",
            headers={"Connection": "close"},
        )  # fmt: skip


class RequestMiddleware:
    """The outermost layer: checks the API key, assigns the request id, turns failures into responses, and logs."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._keys = ApiKeys(service.config.api_keys)
        self._hosts = frozenset(name.lower() for name in service.config.allowed_hosts)
        self._idle_trim = IdleTrim()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        public = scope["path"] in PUBLIC_PATHS or wants_page(scope)
        with contextlib.nullcontext() if public else self._idle_trim:  # health checks come all the time
            await self._respond(scope, receive, send, check_key=not public and scope["method"] != "OPTIONS")

    async def _respond(self, scope: Scope, receive: Receive, send: Send, check_key: bool) -> None:
        record = _RequestRecord(scope, send)
        scope.setdefault("state", {})["log"] = record.fields
        try:
            check_framing(record.headers)
            check_host(record.headers.get("host", ""), self._hosts)
            # not for OPTIONS: the preflight request of a browser has no key
            key = self._keys.check(_credentials(record.headers)) if check_key else ""
            scope["state"]["client"] = client = key or client_of_address((scope.get("client") or ("",))[0])
            if check_key and self._service.loading and scope["path"] not in STATUS_PATHS:
                raise ApiError(
                    503, "the models are loading. Retry in 2 seconds.", code="loading", headers={"Retry-After": "2"}
                )
            with contextlib.ExitStack() as held:
                if check_key:
                    held.enter_context(self._service.accounts.request(client, self._service.max_client_requests))
                config = self._service.config
                scope["state"]["clock"] = RequestClock(config.request_timeout, config.queue_timeout)
                scope["state"]["held"] = held  # models and files, until the response has been sent
                await self._app(scope, receive, record.send)
        except ApiError as error:
            record.fields["error"] = error.code
            await error_response(error, scope["path"])(scope, receive, record.send)
        except (ClientDisconnected, ClientDisconnect):  # the latter while the body was read
            record.fields["left"] = True
        except Exception as error:
            if isinstance(error, OSError) and is_exhausted(error):
                answer = unavailable(error)
            else:
                logger.error("a request failed", exc_info=error, extra={"fields": {"id": record.id}})
                answer = ApiError(500, f"{type(error).__name__} in the server; see its log for request {record.id}")
            if record.status is None:
                await error_response(answer, scope["path"])(scope, receive, record.send)
        finally:
            self._log(record)

    def _log(self, record: _RequestRecord) -> None:
        seconds = time.perf_counter() - record.started
        status = CLIENT_CLOSED_REQUEST if record.fields.get("left") else record.status or 500
        endpoint = getattr(record.scope.get("route"), "path", "other")
        self._service.metrics.requests.labels(endpoint, str(status)).inc()
        self._service.metrics.seconds.labels(endpoint).observe(seconds)
        fields = {
            "id": record.id,
            "method": record.scope["method"],
            "endpoint": endpoint,
            "status": status,
            "ms": round(1000 * seconds, 1),
            **record.fields,
        }
        logger.info("request", extra={"fields": fields})


class _RequestRecord:
    """What the log line of a request will say."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.started = time.perf_counter()
        self.status: int | None = None
        self.fields: dict[str, Any] = {}
        self._send = send
        requested = self.headers.get("x-request-id", "")
        self.id = requested if REQUEST_ID.fullmatch(requested) else f"req_{secrets.token_hex(12)}"

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.id
        await self._send(message)
