"""Text that may turn out to be the beginning of something: a stop string, or a marker."""

from __future__ import annotations

from collections.abc import Sequence


class Holder:
    """Keeps back text that may turn out to be the beginning of one of some strings, and what follows one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = stop
        self._held = ""
        self.found = False

    @property
    def held(self) -> str:
        """What it keeps back; once a string was found, that string and what is behind it."""
        return self._held

    def push(self, text: str) -> str:
        self._held += text
        positions = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if positions:
            self.found = True
            return self._take(min(positions))
        return self._take(len(self._held) - self._partial())

    def rest(self, text: str) -> str:
        """All that is held, at the end."""
        out = self.push(text)
        return out if self.found else out + self._take(len(self._held))

    def _partial(self) -> int:
        """The length of the longest tail that begins a stop string."""
        longest = 0
        for s in self._stop:
            for length in range(min(len(s) - 1, len(self._held)), longest, -1):
                if self._held.endswith(s[:length]):
                    longest = length
                    break
        return longest

    def _take(self, count: int) -> str:
        out, self._held = self._held[:count], self._held[count:]
        return out
