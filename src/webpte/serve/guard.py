"""What stands before every endpoint: who asks, under which id, and a line in the log of how it went."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .auth import Keys
from .failures import Refusal
from .freed import AtRest
from .logs import log
from .sending import NOBODY, ClientDisconnected, refused
from .service import Service

REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
OPEN = ("/health",)  # asked by whoever balances load


class Guard:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._keys = Keys(service.config.api_keys)
        self._rest = AtRest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        checked = scope["path"] in OPEN
        with contextlib.nullcontext() if checked else self._rest:  # checks come all the time
            await self._answer(scope, receive, send, keyed=not checked and scope["method"] != "OPTIONS")

    async def _answer(self, scope: Scope, receive: Receive, send: Send, keyed: bool) -> None:
        request = _Request(scope, send)
        scope.setdefault("state", {})["log"] = request.noted
        try:
            if keyed:  # a browser asks first without a key
                self._keys.check(request.headers.get("authorization"))
            await self._app(scope, receive, request.send)
        except Refusal as refusal:
            request.noted["error"] = refusal.code
            await refused(refusal)(scope, receive, request.send)
        except (ClientDisconnected, ClientDisconnect):  # the latter while its body was read
            request.noted["left"] = True
        except Exception as error:
            log.error("a request failed", exc_info=error, extra={"fields": {"id": request.id}})
            if request.status is None:
                told = Refusal(500, f"{type(error).__name__} in the server; its log tells more under {request.id}")
                await refused(told)(scope, receive, request.send)
        finally:
            self._tell(request)

    def _tell(self, request: _Request) -> None:
        seconds = time.perf_counter() - request.began
        status = NOBODY if request.noted.get("left") else request.status or 500
        route = request.scope.get("route")
        endpoint = getattr(route, "path", "other")
        self._service.metrics.requests.labels(endpoint, str(status)).inc()
        self._service.metrics.seconds.labels(endpoint).observe(seconds)
        fields = {
            "id": request.id,
            "method": request.scope["method"],
            "endpoint": endpoint,
            "status": status,
            "ms": round(1000 * seconds, 1),
            **request.noted,
        }
        log.info("request", extra={"fields": fields})


class _Request:
    """One request as the log will know it."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.headers = Headers(scope=scope)
        self.began = time.perf_counter()
        self.status: int | None = None
        self.noted: dict[str, Any] = {}
        self._send = send
        given = self.headers.get("x-request-id", "")
        self.id = given if REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.id
        await self._send(message)
