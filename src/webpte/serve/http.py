"""HTTP around the endpoints: authentication, request bodies, responses, event streams, one log line per request."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Error, InputError
from ..text import close_matches
from .clients import client_of_address
from .config import Config
from .errors import ApiError, api_error
from .memory import trim
from .page import PAGE_PATHS, wants_page
from .telemetry import log

if TYPE_CHECKING:
    from .service import Service

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
CLIENT_CLOSED_REQUEST = 499  # the status in logs and metrics of a request whose client disconnected
IDLE_SECONDS = 1.0  # before memory is trimmed: a request that follows at once would allocate it again
MAX_ERRORS_SHOWN = 4
MAX_ERRORS_COMPARED = 64  # a body can have 100,000, and each is compared with all others
MAX_FIELDS = 1024  # of an object
MAX_VALUE_CHARS = 40
SIZE_ERRORS = ("too_long", "value_error")  # of pydantic: a list, and TooManyError
ENCODED_ITEMS = 64  # of a list in a response, at once
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
MAX_NAME_CHARS = 80  # of a field in a message
STATUS_PATHS = ("/", "/metrics", "/openapi.json")  # that are answered while models load
OLLAMA_PATH = "/api"  # of all paths of Ollama's API
PUBLIC_PATHS = ("/health", *PAGE_PATHS)  # load balancers have no key; the page asks for one


# -- request bodies --------------------------------------------------------------------------------------------------


class TooManyError(ValueError):
    """An object is too large. pydantic adds where it is."""

    def __init__(self, limit: int, unit: str, count: int) -> None:
        super().__init__(f"expected at most {limit} {unit}, got {count}")


class RequestBody(BaseModel):
    """The declaration of a JSON object in a request. A field that is null counts as absent, as in OpenAI's API."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    ignored: ClassVar[tuple[str, ...]] = ()  # fields that clients send and that do not change a response
    unsupported: ClassVar[Mapping[str, str]] = {}  # fields that would change it -> what to do instead

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, body: Any, info: ValidationInfo) -> Any:
        """Drop nulls, ignored fields and, if the context of validation has a callback for them, unknown fields."""
        if not isinstance(body, dict):
            return body
        if len(body) > MAX_FIELDS:
            raise TooManyError(MAX_FIELDS, "fields", len(body))
        dropped = {*cls.ignored, *cls.unsupported}
        kept = {name: value for name, value in body.items() if value is not None and name not in dropped}
        if info.context is None:
            return kept
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for name in kept.keys() - known:
            info.context(name, known)
        return {name: value for name, value in kept.items() if name in known}


Body = TypeVar("Body", bound=RequestBody)
# A body is read and discarded up to this multiple of the limit. If a connection is closed while the client still sends,
# the client gets a reset instead of the response.
DISCARD_FACTOR = 8
OnUnknownField = Callable[[str, Iterable[str]], None]  # its name, and the names of fields that exist


async def read_body(request: Request, config: Config, declaration: type[Body]) -> Body:
    """Return the body of a request as declared. Its size and the time to send it are bounded.

    Browsers let any page send a body without a preflight request, unless its type is JSON. They name the page in
    `Origin`, or in `Sec-Fetch-Site`. Other clients, such as `curl -d`, may declare any type.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    from_page = "origin" in request.headers or "sec-fetch-site" in request.headers
    if from_page and media_type != "application/json":
        raise ApiError(415, f"Content-Type: expected application/json, got {media_type[:40] or 'none'}")
    try:
        async with asyncio.timeout(config.read_timeout):
            data = await _read(request, config.max_body_bytes)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body did not arrive within {config.read_timeout:g} s (read_timeout)",
            headers={"Connection": "close"},
        ) from None
    service: Service = request.app.state.service
    on_unknown = None if config.strict else service.warn_of_field
    return await run_in_thread(request, parse_body, data, declaration, on_unknown)


async def run_in_thread(request: Request, function: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function, called in a thread. There are few threads, so each client has one at a time. The
    body must have been read."""
    service: Service = request.app.state.service
    async with service.turns.turn(client_of(request)):
        if await request.is_disconnected():
            raise ClientDisconnected
        return await asyncio.to_thread(function, *arguments)


def client_of(request: Request) -> str:
    """Return the client that sent a request, as `RequestMiddleware` knows it."""
    client: str = request.scope["state"]["client"]
    return client


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > DISCARD_FACTOR * limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > DISCARD_FACTOR * limit:
            break
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body exceeds {limit} bytes (max_body_bytes)", headers={"Connection": "close"})


def parse_body(data: bytes, declaration: type[Body], on_unknown: OnUnknownField | None = None) -> Body:
    """Return the body as declared; ApiError 400 lists every field that is not. `on_unknown` is called for each unknown
    field, which is ignored; without it, unknown fields are errors."""
    try:
        body = json.loads(data.decode("utf-8"), parse_constant=_reject_constant)
        if b"\\ud" in data or b"\\uD" in data:  # half a surrogate pair is not text: replace it, as browsers do
            body = json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ApiError(400, f"the body is not valid JSON: {why}", code="invalid_json") from None
    if isinstance(body, dict):
        for name, remedy in declaration.unsupported.items():
            if body.get(name) not in (None, False):
                raise ApiError(400, f"{name} is not supported: {remedy}", param=name, code="unsupported_parameter")
    try:
        return declaration.model_validate(body, context=on_unknown)
    except ValidationError as error:
        raise _invalid(error, body, declaration) from None
    except InputError as error:  # of a check that a declaration shares with `webpte.llm`
        raise api_error(error) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _invalid(error: ValidationError, body: Any, declaration: type[BaseModel]) -> ApiError:
    """Return the response to a body that does not match its declaration. Where a union fails, only the errors of the
    branch that came closest are shown: those deepest in the body, or about more than the type. An error about a size
    comes before all others."""
    first_errors = error.errors(include_url=False)[:MAX_ERRORS_COMPARED]
    first_errors = [each for each in first_errors if each["type"] in SIZE_ERRORS] or first_errors
    errors = [(_location(each, body), each) for each in first_errors]
    places = [place for place, _ in errors]
    errors = [
        (place, each)
        for place, each in errors
        if not any(other.startswith((f"{place}.", f"{place}[")) for other in places)
        and not (
            each["type"].endswith("_type")
            and any(_is_closer(place, other, other_error) for other, other_error in errors)
        )
    ]
    messages = list(dict.fromkeys(_message(place, each, declaration) for place, each in errors))
    more = len(messages) - MAX_ERRORS_SHOWN + error.error_count() - len(first_errors)
    place, first = errors[0]
    return ApiError(
        400,
        "; ".join(messages[:MAX_ERRORS_SHOWN] + ([f"and {more} more"] if more > 0 else [])),
        param=place or None,
        code="unknown_parameter" if first["type"] == "extra_forbidden" else None,
    )


def _is_closer(place: str, other: str, error: Mapping[str, Any]) -> bool:
    return other == place and not error["type"].endswith("_type")


def _location(error: Mapping[str, Any], body: Any) -> str:
    """Return where an error is, such as `messages[0].content`. pydantic also names the branch of a union, which is not
    a key of the body: it is left out."""
    path, value = "", body
    for number, part in enumerate(error["loc"]):
        absent = error["type"] == "missing" and number == len(error["loc"]) - 1
        if isinstance(part, int) and isinstance(value, list) and part < len(value):
            path, value = f"{path}[{part}]", value[part]
        elif isinstance(part, str) and isinstance(value, dict) and (part in value or absent):
            path, value = f"{path}.{part}" if path else part, value.get(part)
    discriminator = str(error.get("ctx", {}).get("discriminator", ""))
    if discriminator:  # a field in quotes, or a function, which all look at `type`
        path += f".{discriminator.strip(chr(39)) if discriminator.startswith(chr(39)) else 'type'}"
    return path if len(path) <= MAX_NAME_CHARS else f"{path[: MAX_NAME_CHARS - 3]}..."


def _message(place: str, error: Mapping[str, Any], declaration: type[BaseModel]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        close = close_matches(place, declaration.model_fields)
        return f"{place}: unknown field" + (f", did you mean {close[0]}?" if close else "")
    if kind == "value_error":
        return f"{place or 'the body'}: {context['error']}"
    if kind in ("missing", "union_tag_not_found"):
        return f"{place}: required"
    if kind == "union_tag_invalid":
        return f"{place}: expected one of {context['expected_tags']}, got {shown(context['tag'])}"
    if kind == "string_too_long":
        return f"{place}: expected at most {context['max_length']} characters, got {len(error['input'])}"
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"{place}: expected {bound} entries, got {context['actual_length']}"
    expected = str(error["msg"]).replace("Input should be", "expected").replace("should", "expected to")
    return f"{place or 'the body'}: {expected}, got {shown(error['input'])}"


def shown(value: Any) -> str:
    """Return a value for a message, cut short: requests may be large, and logs hold no prompts."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = "null" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 3]}..."


# -- responses -------------------------------------------------------------------------------------------------------


class JsonResponse(Response):
    """A JSON object. A lone surrogate, which generated tool arguments may contain, is written as a question mark.

    A response with a list of unbounded length is made with `run_in_thread`.
    """

    media_type = "application/json"

    def __init__(self, content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_encode_json(content).encode("utf-8", "replace"), status, headers)


def _encode_json(content: Mapping[str, Any]) -> str:
    """Return the JSON of an object. Lists are encoded in parts: the encoder keeps all other threads from running, and a
    million tokens would take it a second."""
    fields = []
    for name, value in content.items():
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, list) else _encode_list(value)
        fields.append(f"{json.dumps(name, ensure_ascii=False)}: {text}")
    return "{" + ", ".join(fields) + "}"


def _encode_list(items: list[Any]) -> str:
    parts = (items[start : start + ENCODED_ITEMS] for start in range(0, len(items), ENCODED_ITEMS))
    return "[" + ", ".join(json.dumps(part, ensure_ascii=False)[1:-1] for part in parts) + "]"


def error_response(error: ApiError, path: str) -> Response:
    """Return an error in the form of the API that the path belongs to: Ollama's or OpenAI's."""
    is_ollama = path == OLLAMA_PATH or path.startswith(f"{OLLAMA_PATH}/")
    return JsonResponse({"error": str(error)} if is_ollama else error.body(), error.status, error.headers)


class ClientDisconnected(Exception):  # noqa: N818 - not an error of the server
    """The client closed its connection."""


async def run_until_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`. It is cancelled when the client disconnects. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        await _cancel(working, leaving)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(Response):
    """Server-sent events. `finish` runs however the stream ends: completed, failed, or disconnected."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[Mapping[str, Any]],
        finish: Callable[[], Awaitable[None]],
        *,
        write_timeout: float,
        named: bool = False,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._finish = finish
        self._write_timeout = write_timeout
        self._named = named  # each event has a name, and there is no [DONE]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                scope["state"]["log"]["left"] = True
            else:
                sending.result()
        finally:
            await _cancel(sending, leaving)
            await self._finish()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for event in self._events:
                await self._send(send, self._encoded(event))
            if not self._named:
                await self._send(send, DONE)
        except (Error, ApiError) as error:
            await self._send(send, self._encoded({"type": "error", **api_error(error).body()}))
        except TimeoutError:
            raise ClientDisconnected from None  # a client that does not read is as good as gone
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(self._write_timeout):  # `wait_for` of Python 3.11 may lose a cancellation
            await send({"type": "http.response.body", "body": data, "more_body": True})

    def _encoded(self, event: Mapping[str, Any]) -> bytes:
        name = f"event: {event['type']}\n" if self._named else ""
        return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


class LineStream(EventStream):
    """A JSON object per line, as Ollama's API has it."""

    media_type = "application/x-ndjson"

    def __init__(
        self,
        events: AsyncIterator[Mapping[str, Any]],
        finish: Callable[[], Awaitable[None]],
        *,
        write_timeout: float,
        named: bool = True,
    ) -> None:
        super().__init__(events, finish, write_timeout=write_timeout, named=True)  # without [DONE]

    def _encoded(self, event: Mapping[str, Any]) -> bytes:
        if event.get("type") == "error":
            event = {"error": event["error"]["message"]}
        return f"{json.dumps(event, ensure_ascii=False)}\n".encode("utf-8", "replace")


# -- around every request --------------------------------------------------------------------------------------------


class ApiKeys:
    """The keys of a server. Only digests are stored and compared, so every comparison takes the same time."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def check(self, authorization: str | None) -> str:
        """Return the digest of the key in the header `Authorization`; "" if the server has no keys. Raise ApiError 401
        unless it is one of the keys."""
        if not self._digests:
            return ""
        challenge = {"WWW-Authenticate": "Bearer"}
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise ApiError(
                401, "API key required: send the header Authorization: Bearer KEY", code="missing_api_key",
                headers=challenge,
            )  # fmt: skip
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all, also after a match
        if not any(matches):
            raise ApiError(401, "the API key is not valid for this server", headers=challenge)
        return digest.hex()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def check_host(header: str, allowed: frozenset[str]) -> None:
    """Raise ApiError 403 for a `Host` header that names another server. Without names, allow any."""
    name = header.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if allowed and name not in allowed:
        raise ApiError(403, f"Host: {name[:MAX_NAME_CHARS] or 'none'} is not in allowed_hosts", code="host_not_allowed")


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
        self._active: Counter[str] = Counter()  # requests by client

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
            key = self._keys.check(record.headers.get("authorization")) if check_key else ""
            scope["state"]["client"] = client = key or client_of_address((scope.get("client") or ("",))[0])
            if check_key and self._service.loading and scope["path"] not in STATUS_PATHS:
                raise ApiError(
                    503, "the models are loading. Retry in 2 seconds.", code="loading", headers={"Retry-After": "2"}
                )
            with self._one_of(client) if check_key else contextlib.nullcontext():
                await self._app(scope, receive, record.send)
        except ApiError as error:
            record.fields["error"] = error.code
            await error_response(error, scope["path"])(scope, receive, record.send)
        except (ClientDisconnected, ClientDisconnect):  # the latter while the body was read
            record.fields["left"] = True
        except Exception as error:
            log.error("a request failed", exc_info=error, extra={"fields": {"id": record.id}})
            if record.status is None:
                message = f"{type(error).__name__} in the server; see its log for request {record.id}"
                await error_response(ApiError(500, message), scope["path"])(scope, receive, record.send)
        finally:
            self._log(record)

    @contextlib.contextmanager
    def _one_of(self, client: str) -> Iterator[None]:
        """Count a request of a client. Raise ApiError 429 if it has more than can be computed and wait: the bodies of
        all of them would be in memory."""
        limit = self._service.max_client_requests
        if self._active[client] >= limit:
            raise ApiError(
                429, f"this client has {limit} requests in progress. Retry in 1 second.", code="too_many_requests",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        self._active[client] += 1
        try:
            yield
        finally:
            self._active[client] -= 1
            if not self._active[client]:
                del self._active[client]

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
        log.info("request", extra={"fields": fields})


class IdleTrim:
    """A context that every request of an event loop enters. Memory is trimmed when none has been active for a while."""

    def __init__(self) -> None:
        self._active = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._active += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __exit__(self, *exc: object) -> None:
        self._active -= 1
        if not self._active:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, trim)


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
