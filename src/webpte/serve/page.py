"""The chat page at `/`: the page of a bundle, which here talks to the server instead of computing in the browser."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import PurePath

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..web_files import page_files, page_paths

PAGE_PATHS = tuple(f"/{name}" for name in page_paths("server"))  # these files contain no secrets
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


def wants_page(scope: Scope) -> bool:
    """Return whether a request for `/` comes from a browser."""
    return scope["path"] == "/" and "text/html" in Headers(scope=scope).get("accept", "")


async def page(request: Request) -> Response:
    """Return the page, or one of its files."""
    name = request.url.path.removeprefix("/") or "index.html"
    data = (await asyncio.to_thread(_files))[name]
    return Response(data, media_type=MEDIA_TYPES[PurePath(name).suffix], headers=HEADERS)


@cache
def _files() -> dict[str, bytes]:
    return dict(page_files("server"))
