"""Forms with a file, as `multipart/form-data`: read within bounds, and validated against a declaration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .bodies import Body, OnUnknownField, on_unknown_field, read_bytes, validate
from .clients import run_in_thread
from .config import Config
from .errors import ApiError

MAX_FORM_FIELDS = 32
MAX_FIELD_BYTES = 4096


async def read_form(request: Request, config: Config, declaration: type[Body]) -> tuple[Body, bytes]:
    """Return the fields of a form as declared, and the contents of its field `file`."""
    _check_page(request, config)
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != declaration.media_type:
        raise ApiError(415, f"Content-Type: expected {declaration.media_type}, got {media_type[:40] or 'none'}")
    data = await read_bytes(request, config, "max_audio_bytes")
    unknown = on_unknown_field(request, config)
    return await run_in_thread(request, _parse, request.headers, data, declaration, unknown)


def _check_page(request: Request, config: Config) -> None:
    """Refuse a form from a page of another site: browsers send those without asking the server first."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    allowed = origin in config.cors_origins or "*" in config.cors_origins or site == "same-origin"
    if (origin is not None or site not in (None, "none")) and not allowed:
        raise ApiError(403, "the page of this request is not one of this server, nor in cors_origins")


def _parse(
    headers: Headers, data: bytes, declaration: type[Body], on_unknown: OnUnknownField | None
) -> tuple[Body, bytes]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield data

    async def parse() -> tuple[dict[str, str], bytes | None]:
        parser = MultiPartParser(
            headers, stream(), max_files=1, max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FIELD_BYTES
        )
        form = await parser.parse()
        try:
            fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
            file = form.get("file")
            return fields, await file.read() if isinstance(file, UploadFile) else None
        finally:
            await form.close()

    try:
        fields, file = asyncio.run(parse())
    except (MultiPartException, KeyError, ValueError) as error:
        raise ApiError(400, f"the body is not a valid form: {error}", code="invalid_form") from None
    if not file:
        raise ApiError(400, "file: expected a file, got none", param="file")
    return validate(fields, declaration, on_unknown), file
