"""`/api/pull`: download a program of a hub, for a later start of a server. A model that is served is there already."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from ..bodies import read_body
from ..clients import until_disconnect
from ..downloads import ClientDownload
from ..responses import JsonResponse, LineStream
from ..service import Service
from .requests import OllamaPullRequest
from .response_types import OllamaPullProgress, OllamaPullStatus

MANIFEST: OllamaPullStatus = {"status": "pulling manifest"}
SUCCESS: OllamaPullStatus = {"status": "success"}


async def pull(request: Request) -> Response:
    """Handle `POST /api/pull`. Clients that pull a model before they use it get success if it is served."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaPullRequest)
    name = body.required_name()
    download = None if service.has(name) else service.downloads.start(name)
    if body.stream:
        return await _stream(request, service, download)
    if download is not None:
        try:
            await until_disconnect(request.receive, download.wait())
        finally:
            download.cancel()
    return JsonResponse(SUCCESS)


async def _stream(request: Request, service: Service, download: ClientDownload | None) -> Response:
    async def finish() -> None:
        if download is not None:
            download.cancel()

    if download is not None:
        try:
            await until_disconnect(request.receive, download.wait_until_begun())
        except BaseException:
            download.cancel()
            raise
    return LineStream(_lines(download), finish, write_timeout=service.config.write_timeout)


async def _lines(download: ClientDownload | None) -> AsyncIterator[OllamaPullStatus | OllamaPullProgress]:
    yield MANIFEST
    if download is not None:
        async for progress in download.progress():
            status = f"pulling {progress.stage.removeprefix('fetch ')}"
            yield {"status": status, "total": progress.total, "completed": progress.done}
    yield SUCCESS
