"""Stop strings: found in text that arrives in pieces, at a constant cost per character."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """Stop strings, compiled for `StopStringBuffer`. Several buffers may share them.

    This is the automaton of Aho and Corasick. A state is the longest end of the text so far that begins a stop string.
    Compiling takes time in proportion to the length of the strings. A character of the text takes constant time on
    average, however long the strings are and however much text is held back.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = tuple(strings)
        self.next_states: list[dict[str, int]] = [{}]  # by state and character, where a stop string continues
        self.depths = [0]  # by state: how many characters of a stop string it stands for
        self.longest = [0]  # by state: the length of the longest stop string that ends here; 0 for none
        for string in self.strings:
            self._add(string)
        self.fallbacks = [0] * len(self.depths)  # by state: the state of the next shorter end of the text
        self._link()

    def _add(self, string: str) -> None:
        state = 0
        for character in string:
            following = self.next_states[state].get(character)
            if following is None:
                following = self.next_states[state][character] = len(self.depths)
                self.next_states.append({})
                self.depths.append(self.depths[state] + 1)
                self.longest.append(0)
            state = following
        self.longest[state] = len(string)

    def _link(self) -> None:
        """Set the fallback of every state, those of shorter ends first."""
        states = deque(self.next_states[0].values())
        while states:
            state = states.popleft()
            self.longest[state] = self.longest[state] or self.longest[self.fallbacks[state]]
            for character, following in self.next_states[state].items():
                self.fallbacks[following] = self.advance(self.fallbacks[state], character)
                states.append(following)

    def advance(self, state: int, character: str) -> int:
        """Return the state after one more character."""
        while (following := self.next_states[state].get(character)) is None:
            if not state:
                return 0
            state = self.fallbacks[state]
        return following


class StopStringBuffer:
    """Holds back text that may be the beginning of a stop string, and everything from a stop string on."""

    def __init__(self, stop: StopStrings | Sequence[str]) -> None:
        self._strings = stop if isinstance(stop, StopStrings) else StopStrings(stop)
        self._state = 0
        self._pieces: deque[str] = deque()  # the text that is held back, not joined: joining copies it for each token
        self._start = 0  # characters of the first piece that are no longer held back
        self._length = 0
        self.matched = False

    @property
    def held(self) -> str:
        """Return the text that is held back; once a stop string was found, that string and what follows it."""
        return "".join(self._pieces)[self._start :]

    @property
    def match(self) -> str | None:
        """Return the stop string that was found; None if there is none yet."""
        held = self.held if self.matched else ""
        return max((string for string in self._strings.strings if held.startswith(string)), key=len, default=None)

    def push(self, text: str) -> str:
        """Add text; return what cannot be part of a stop string."""
        position = self._search(text) if not self.matched else 0
        if text:
            self._pieces.append(text)
            self._length += len(text)
        if position is None:
            return self._take(self._length - self._strings.depths[self._state])
        self.matched = True
        return self._take(position)

    def flush(self, text: str) -> str:
        """Add the last text; return all that is held back, up to a stop string."""
        out = self.push(text)
        if self.matched:
            return out
        self._state = 0
        return out + self._take(self._length)

    def _search(self, text: str) -> int | None:
        """Return where in the held text the first of the stop strings begins that end in `text`, the text after it."""
        strings, state, first = self._strings, self._state, None
        if len(strings.depths) == 1:
            return None
        for end, character in enumerate(text, self._length + 1):
            state = strings.advance(state, character)
            if length := strings.longest[state]:
                first = end - length if first is None else min(first, end - length)
        self._state = state
        return first

    def _take(self, count: int) -> str:
        """Return the first characters that are held back, and drop them."""
        parts: list[str] = []
        self._length -= count
        while count:
            piece = self._pieces[0]
            part = piece[self._start : self._start + count]
            parts.append(part)
            count -= len(part)
            self._start += len(part)
            if self._start == len(piece):
                self._pieces.popleft()
                self._start = 0
        return "".join(parts)
