"""Request bodies: read within bounds, and validated against a declaration."""

from __future__ import annotations

import asyncio
import contextlib
import json
import string
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from starlette.requests import Request

from ..errors import InputError
from ..text import close_matches
from .clients import client_of, run_in_thread
from .config import Config
from .errors import ApiError, api_error
from .messages import ModelKind

if TYPE_CHECKING:
    from .service import Service

MAX_ERRORS_SHOWN = 4
MAX_ERRORS_COMPARED = 64  # a body can have 100,000, and each is compared with all others
MAX_FIELDS = 1024  # of an object
MAX_VALUE_CHARS = 40
MIN_IMAGE_CHARS = 1024  # of base64 that does not count as a part of the text
BASE64 = string.ascii_letters.encode() + string.digits.encode() + b"+/="
MAX_NAME_CHARS = 80  # of a field in a message
SIZE_ERRORS = ("too_long", "value_error")  # of pydantic: a list, and TooManyError


class TooManyError(ValueError):
    """An object is too large. pydantic adds where it is."""

    def __init__(self, limit: int, unit: str, count: int) -> None:
        super().__init__(f"expected at most {limit} {unit}, got {count}")


class RequestBody(BaseModel):
    """The declaration of a JSON object in a request. A field that is null counts as absent, as in OpenAI's API."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    ignored: ClassVar[tuple[str, ...]] = ()  # fields that clients send and that do not change a response
    media_type: ClassVar[str] = "application/json"
    kind: ClassVar[ModelKind | None] = None  # of the model that the request is for
    with_images: ClassVar[bool] = False  # it may contain images, in base64
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
    service: Service = request.app.state.service
    service.require(declaration.kind)
    larger = declaration.with_images and service.reads_images and config.max_image_bytes > config.max_body_bytes
    data = await read_bytes(request, config, "max_image_bytes" if larger else "max_body_bytes")
    if len(data) > config.max_body_bytes:
        await run_in_thread(request, check_size_without_images, data, config.max_body_bytes)
    return await run_in_thread(request, parse_body, data, declaration, on_unknown_field(request, config))


def on_unknown_field(request: Request, config: Config) -> OnUnknownField | None:
    """Return what is called for unknown fields; None if they are errors."""
    service: Service = request.app.state.service
    return None if config.strict else service.warn_of_field


async def read_bytes(request: Request, config: Config, limit: str) -> bytes:
    """Return the body of a request. `limit` is the option with its maximum size."""
    async with reading(config):
        return b"".join([part async for part in body_parts(request, config, limit)])


async def body_parts(request: Request, config: Config, option: str) -> AsyncIterator[bytes]:
    """Yield the parts of a body. Its bytes are taken from the account of the client before they are read, until the
    request has ended. `option` sets the maximum size."""
    accounts, client, limit = request.app.state.service.accounts, client_of(request), getattr(config, option)
    announced = request.headers.get("content-length", "")
    size, taken = 0, int(announced) if announced.isdigit() else 0
    if taken > limit:
        raise _too_large(limit, option)
    held: contextlib.ExitStack = request.scope["state"]["held"]
    held.callback(lambda: accounts.give_back(client, "bytes", taken))
    accounts.take_bytes(client, taken)
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit, option)
        if size > taken:  # chunks, whose sum is not announced
            accounts.take_bytes(client, size - taken)
            taken = size
        yield part


@contextlib.asynccontextmanager
async def reading(config: Config) -> AsyncIterator[None]:
    """Raise ApiError 408 if a body is not read within the block in time."""
    try:
        async with asyncio.timeout(config.read_timeout):
            yield
    except TimeoutError:
        raise ApiError(
            408,
            f"the body did not arrive within {config.read_timeout:g} s (read_timeout)",
            headers={"Connection": "close"},
        ) from None


def _too_large(limit: int, option: str) -> ApiError:
    return ApiError(413, f"the body exceeds {limit} bytes ({option})", headers={"Connection": "close"})


def check_size_without_images(data: bytes, limit: int) -> None:
    """Raise ApiError 413 if a body exceeds a limit beside its long strings of base64. It is not parsed before: JSON of
    many small values takes seconds, in which no other thread runs."""
    if data.count(b'"') <= limit:
        rest = (piece.rpartition(b",")[2] for piece in data.split(b'"') if len(piece) >= MIN_IMAGE_CHARS)
        images = sum(len(piece) for piece in rest if not piece.translate(None, BASE64))
        if len(data) - images <= limit:
            return
    raise _too_large(limit, "max_body_bytes, without images")


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
    return validate(body, declaration, on_unknown)


def validate(body: Any, declaration: type[Body], on_unknown: OnUnknownField | None) -> Body:
    """Return a body as declared; ApiError 400 lists every field that is not."""
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
