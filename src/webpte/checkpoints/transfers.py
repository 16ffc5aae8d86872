"""HTTP requests to hubs and servers. No response may have more bytes than the caller expects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..errors import HubError

T = TypeVar("T")
Report = Callable[[int], None]
MAX_BYTES = 1 << 50  # of a file
UNREACHABLE_HINT = (
    "Check the network, and HTTPS_PROXY if it needs a proxy. The next attempt resumes a partial download."
)
ATTEMPTS = 5  # one after another that bring no byte
MAX_ATTEMPTS = 1000  # of one file: a server may close every connection after a few bytes
_TIMEOUT = 30  # seconds without a byte
_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds after a failed attempt; what a server asks for may be days
_TEMPORARY = (408, 429, 500, 502, 503, 504)


def resume_download(url: str, partial: Path, nbytes: int, headers: Mapping[str, str], report: Report) -> None:
    """Append what is missing of a file on a server to its partial download. The caller checks the hash."""
    if partial.exists() and partial.stat().st_size > nbytes:
        partial.unlink()
    with open(partial, "ab") as file:
        download = _Download(url, file, nbytes, headers, report)
        try:
            if download.received < nbytes:
                _retry(download.receive, lambda: download.received)
        except HubError:
            file.truncate(0)
            raise
    if download.received != nbytes:
        partial.unlink()
        raise _wrong_size(url, nbytes, f"{download.received}")


class _Download:
    """A file that is received in one or more responses."""

    def __init__(self, url: str, file: BinaryIO, nbytes: int, headers: Mapping[str, str], report: Report) -> None:
        self._url = url
        self._file = file
        self._nbytes = nbytes
        self._headers = dict(headers)
        self._report = report
        self.received = file.tell()  # bytes, of all responses

    def receive(self) -> None:
        """Append the bytes of a response. Raise HubError at the first that is not of the file."""
        asked = {"Range": f"bytes={self.received}-"} if self.received else {}
        with open_response(self._url, self._headers | asked) as response:
            if self.received and response.status_code != 206:  # the server sends the file from its start
                self._file.truncate(0)
                self.received = 0
            for chunk in response.iter_bytes():
                if self.received + len(chunk) > self._nbytes:
                    raise _wrong_size(self._url, self._nbytes, "more")
                self._file.write(chunk)
                self.received += len(chunk)
                self._report(self.received)


def read_limited(url: str, headers: Mapping[str, str], limit: int) -> bytes:
    """Return the body of a response. Raise HubError if it has more than `limit` bytes."""

    data = bytearray()
    with open_response(url, headers) as response:
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > limit:
                raise HubError(reason="size", argument=url, expected=f"at most {limit} bytes", got="more")
    return bytes(data)


def read_range(url: str, headers: Mapping[str, str], start: int, nbytes: int, total: int) -> bytes:
    """Return a range of a file of `total` bytes. Raise HubError if the server sends another number of bytes."""

    def receive() -> bytes:
        data = bytearray()
        with open_response(url, {**headers, "Range": f"bytes={start}-{start + nbytes - 1}"}) as response:
            if response.status_code != 206 and (start, nbytes) != (0, total):
                raise HubError(f"{url}: the server does not send ranges of files", "ranges", hint="Download it first.")
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > nbytes:
                    break
        if len(data) != nbytes:
            raise HubError(
                reason="ranges", argument=url, expected=f"{nbytes} bytes at byte {start}", got=str(len(data))
            )
        return bytes(data)

    return _retry(receive, lambda: 0)


@contextmanager
def open_response(url: str, headers: Mapping[str, str], method: str = "GET") -> Iterator[Any]:
    """Yield a response whose body is not read yet. Raise an error of huggingface_hub if its status is an error."""
    from huggingface_hub.utils import get_session, hf_raise_for_status  # type: ignore[attr-defined]

    headers = {**headers, "Accept-Encoding": "identity"}
    with get_session().stream(method, url, headers=headers, timeout=_TIMEOUT) as response:
        if response.status_code >= 400:
            # Without the body, which the library would read as a whole and trust to have the hub's form.
            kept = {name: text for name, text in response.headers.items() if not name.lower().startswith("content-")}
            hf_raise_for_status(type(response)(response.status_code, headers=kept, request=response.request))
        yield response


def _retry(receive: Callable[[], T], received: Callable[[], int]) -> T:
    """Return what `receive` returns, and call it again after errors of the network that may pass."""
    failed = 0
    for attempt in range(1, MAX_ATTEMPTS + 1):
        before = received()
        try:
            return receive()
        except network_errors() as error:
            failed = failed + 1 if received() <= before else 1
            if failed >= ATTEMPTS or attempt == MAX_ATTEMPTS or not _may_pass(error):
                raise
            time.sleep(_PAUSES[failed - 1])
    raise AssertionError("the last attempt returns or raises")


def _may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed: not after redirects without end, for example."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _TEMPORARY
    library: Any = import_module(_http_error().__module__.partition(".")[0])
    return isinstance(error, (library.NetworkError, library.TimeoutException, library.RemoteProtocolError))


def _wrong_size(url: str, nbytes: int, received: str) -> HubError:
    return HubError(
        reason="size",
        argument=url,
        expected=f"{nbytes} bytes",
        got=f"{received}. The download was removed",
        hint="Try again. If the error persists, check the proxy and the server.",
    )


def network_errors() -> tuple[type[Exception], ...]:
    """Return the network errors of the HTTP library that huggingface_hub uses, and of the system."""
    return (_http_error(), ConnectionError, TimeoutError)


def _http_error() -> type[Exception]:
    from huggingface_hub.errors import HfHubHTTPError

    return next(base for base in HfHubHTTPError.__bases__ if base is not OSError)
