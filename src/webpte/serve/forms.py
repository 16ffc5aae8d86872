"""Forms with a file, as `multipart/form-data`: read within bounds, and validated against a declaration."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .bodies import Body, OnUnknownField, body_parts, on_unknown_field, reading, validate
from .clients import run_in_thread
from .config import Config
from .errors import ApiError

MAX_FORM_FIELDS = 32
MAX_FIELD_BYTES = 4096
WRITTEN_BYTES = 256 << 10  # at once


async def read_form(request: Request, config: Config, declaration: type[Body]) -> tuple[Body, Path]:
    """Return the fields of a form as declared, and the path of its field `file`. It exists until the request ends."""
    _check_page(request, config)
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != declaration.media_type:
        raise ApiError(415, f"Content-Type: expected {declaration.media_type}, got {media_type[:40] or 'none'}")
    request.app.state.service.require(declaration.kind)
    folder = Path(request.scope["state"]["held"].enter_context(TemporaryDirectory(prefix="webpte-")))
    await _store(request, config, folder / "form")
    unknown = on_unknown_field(request, config)
    return await run_in_thread(request, _parse, request.headers, folder, declaration, unknown)


async def _store(request: Request, config: Config, path: Path) -> None:
    """Write a body into a file. Little of it is in memory at any time."""
    waiting = bytearray()
    with path.open("wb") as file:
        async with reading(config):
            async for part in body_parts(request, config, "max_audio_bytes"):
                waiting += part
                if len(waiting) >= WRITTEN_BYTES:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
        await asyncio.to_thread(file.write, bytes(waiting))


def _check_page(request: Request, config: Config) -> None:
    """Refuse a form from a page of another site: browsers send those without asking the server first."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    allowed = origin in config.cors_origins or "*" in config.cors_origins or site == "same-origin"
    if (origin is not None or site not in (None, "none")) and not allowed:
        raise ApiError(403, "the page of this request is not one of this server, nor in cors_origins")


def _parse(
    headers: Headers, folder: Path, declaration: type[Body], on_unknown: OnUnknownField | None
) -> tuple[Body, Path]:
    try:
        fields, has_file = asyncio.run(_fields(headers, folder))
    except (MultiPartException, KeyError, ValueError) as error:
        raise ApiError(400, f"the body is not a valid form: {error}", code="invalid_form") from None
    finally:
        (folder / "form").unlink(missing_ok=True)
    if not has_file:
        raise ApiError(400, "file: expected a file, got none", param="file")
    return validate(fields, declaration, on_unknown), folder / "upload"


async def _fields(headers: Headers, folder: Path) -> tuple[dict[str, str], bool]:
    """Return the fields of a form. Write its field `file` into a file, and return whether it has any content."""
    limits = {"max_files": 1, "max_fields": MAX_FORM_FIELDS, "max_part_size": MAX_FIELD_BYTES}
    form = await MultiPartParser(headers, _read(folder / "form"), **limits).parse()
    try:
        fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
        upload = form.get("file")
        if not isinstance(upload, UploadFile) or not upload.size:
            return fields, False
        with (folder / "upload").open("wb") as file:
            shutil.copyfileobj(upload.file, file)
        return fields, True
    finally:
        await form.close()


async def _read(path: Path) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as file:
        while part := file.read(WRITTEN_BYTES):
            yield part
