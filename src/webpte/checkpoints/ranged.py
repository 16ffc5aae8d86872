"""Read ranges of a file on a server: enough to see what a program needs, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ..container import MappedFile
from ..errors import HubError
from ..text import size as size_text

_BLOCK = 1 << 16  # ranges are of whole blocks: one has the header and the graph of a small program
MAX_RANGED_BYTES = 64 << 20  # of one file; older programs have their weights between their tables
_TIMEOUT = 30


class RangedFile:
    """A file on a server, each range of which is downloaded at its first view. `errors` converts network errors."""

    def __init__(
        self,
        name: str,
        url: str,
        nbytes: int,
        headers: Mapping[str, str],
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.name = name
        self.nbytes = nbytes
        self.bytes_read = 0
        self._url = url
        self._headers = dict(headers)
        self._errors = errors
        self._parts: list[tuple[int, memoryview]] = []

    def open(self) -> MappedFile:
        """Return a file whose views download their ranges."""
        return MappedFile.ranged(self.name, self.nbytes, self.read)

    def read(self, offset: int, count: int) -> memoryview:
        """Return the bytes of a range."""
        for start, data in self._parts:
            if start <= offset and offset + count <= start + len(data):
                return data[offset - start : offset - start + count]
        start = offset - offset % _BLOCK
        count_read = min(-(-(offset + count - start) // _BLOCK) * _BLOCK, self.nbytes - start)
        if self.bytes_read + count_read > MAX_RANGED_BYTES:
            raise HubError(
                f"{self.name}: its header and graph have more than {size_text(MAX_RANGED_BYTES)}",
                "ranges",
                hint="Its weights are between its tables. Download it, then name the file.",
            )
        with self._errors():
            data = memoryview(self._download(start, count_read))
        self._parts.append((start, data))
        self.bytes_read += count_read
        return data[offset - start : offset - start + count]

    def _download(self, offset: int, count: int) -> bytes:
        from huggingface_hub.utils import hf_raise_for_status, http_stream_backoff  # type: ignore[attr-defined]

        headers = self._headers | {"Range": f"bytes={offset}-{offset + count - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        with http_stream_backoff("GET", self._url, headers=headers, timeout=_TIMEOUT, max_retries=2) as response:
            hf_raise_for_status(response)
            if response.status_code != 206 and (offset, count) != (0, self.nbytes):
                raise HubError(
                    f"{self.name}: the server does not send ranges of files", "ranges", hint="Download it first."
                )
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > count:
                    break
        if len(data) != count:
            raise HubError(f"{self.name}: expected {count} bytes at byte {offset}, got {len(data)}", "ranges")
        return bytes(data)
