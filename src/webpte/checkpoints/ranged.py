"""Read ranges of a file on a server: enough to see what a program needs, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ..container import MappedFile
from ..errors import HubError
from ..text import size as size_text
from .transfers import read_range

_BLOCK = 1 << 16  # ranges are of whole blocks: one has the header and the graph of a small program
MAX_RANGED_BYTES = 64 << 20  # of one file; older programs have their weights between their tables


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
            data = memoryview(read_range(self._url, self._headers, start, count_read, self.nbytes))
        self._parts.append((start, data))
        self.bytes_read += count_read
        return data[offset - start : offset - start + count]
