"""Downloads that clients ask for: programs of a hub, one at a time, into the cache of this machine."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator

from ..deferred import fetch_program
from ..errors import CancelledError, Error, HubError
from ..progress import CancelToken, Progress, cancellable
from ..sources import HUB, no_program
from .errors import ApiError, api_error

HOSTS = ("hf.co/", "huggingface.co/")  # that Ollama's clients write before a name
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+)?(@[\w./-]+)?", re.ASCII)
REPORT_SECONDS = 0.1  # between two reports of a download
RETRY = {"Retry-After": "10"}
HUB_STATUSES = {"repository": 404, "revision": 404, "file": 404, "gated": 403}  # reason of a HubError -> status
logger = logging.getLogger(__name__)


class Downloads:
    """Starts downloads, of which there is one at a time."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes  # of one program and its files; 0: clients may not download
        self._current: ClientDownload | None = None

    def start(self, name: str) -> ClientDownload:
        """Return a new download. Raise ApiError if clients may not download, or if there is one already."""
        if not self._max_bytes:
            raise ApiError(
                403,
                f"{name}: this server does not download models. Start it with --max-download-bytes N to allow it, or "
                "with the model: webpte serve MODEL",
                code="downloads_not_allowed",
            )
        source = hub_source(name)
        if self._current is not None and not self._current.done:
            message = "another download is in progress. Retry in 10 seconds."
            raise ApiError(429, message, code="too_many_downloads", headers=RETRY)
        self._current = ClientDownload(source, self._max_bytes)
        return self._current

    async def stop(self) -> None:
        """Cancel the download, and wait for its thread."""
        if self._current is not None:
            await self._current.stop()


def hub_source(name: str) -> str:
    """Return the name that webpte uses for a model of the hub: `hf.co/org/name` is `hf:org/name`.

    Addresses are refused: they could lead into the network of the server.
    """
    for host in (*HOSTS, HUB):
        name = name.removeprefix(host)
    if not HUB_NAME.fullmatch(name):
        raise ApiError(
            400, f"model: expected hf.co/org/name, hf:org/name or a model of this server, got {name!r}", param="model"
        )
    return HUB + name


class ClientDownload:
    """A program that a thread downloads."""

    def __init__(self, source: str, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._token = CancelToken()
        self._latest: Progress | None = None
        self._totals: dict[str, int] = {}  # bytes by stage
        self._reported = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(asyncio.to_thread(self._fetch))
        self._task.add_done_callback(self._end)

    @property
    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """End the thread at its next step. What has arrived is kept, and another download resumes it."""
        self._token.cancel()

    async def stop(self) -> None:
        """Cancel the download, and wait for its thread."""
        self.cancel()
        await asyncio.wait([self._task])

    async def wait(self) -> None:
        """Wait for the end. Raise ApiError if the download failed."""
        try:
            await asyncio.shield(self._task)
        except Error as error:
            raise _api_error(error) from error

    async def wait_until_begun(self) -> None:
        """Wait for the first progress. A failure until then is raised, while it can still be an error status."""
        await self._reported.wait()
        if self._task.done():
            await self.wait()

    async def progress(self) -> AsyncIterator[Progress]:
        """Yield the progress at intervals, until the end. Raise ApiError if the download fails."""
        while not self._task.done():
            await self._reported.wait()
            self._reported.clear()
            if self._latest is not None:
                yield self._latest
            await asyncio.wait([self._task], timeout=REPORT_SECONDS)
        await self.wait()
        if self._latest is not None:
            yield self._latest

    def _fetch(self) -> None:
        started = time.monotonic()
        if fetch_program(self._source, cancellable(self._report, self._token)) is None:
            raise no_program(self._source)
        fields = {"source": self._source, "seconds": round(time.monotonic() - started, 1)}
        logger.info("downloaded", extra={"fields": fields})

    def _report(self, progress: Progress) -> None:
        """Keep the latest progress. The size of a stage is known before its first byte, and no more is received."""
        self._totals[progress.stage] = progress.total
        if (total := sum(self._totals.values())) > self._max_bytes:
            raise ApiError(
                403,
                f"{self._source}: expected at most {self._max_bytes} bytes (max_download_bytes), got {total}",
                code="download_too_large",
            )
        self._latest = progress
        self._loop.call_soon_threadsafe(self._reported.set)

    def _end(self, task: asyncio.Task[None]) -> None:
        """Report the end. asyncio would log an exception that nothing retrieves, if the client has left."""
        if not task.cancelled():
            task.exception()
        self._reported.set()


def _api_error(error: Error) -> ApiError:
    if isinstance(error, CancelledError):
        return ApiError(503, "the download was cancelled: the server is shutting down")
    if not isinstance(error, HubError):
        return api_error(error)
    if error.reason == "disk":  # the message has paths of the server
        logger.error("a download failed", extra={"fields": {"error": str(error)}})
        return ApiError(503, "the server cannot store the download; its log has the reason", headers=RETRY)
    status = HUB_STATUSES.get(error.reason, 503)
    return ApiError(status, str(error), headers=RETRY if status == 503 else None)
