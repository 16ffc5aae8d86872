"""Drafts: what may come next in a sequence, looked up where its own text said the same before."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 2  # tokens that must be the same; with 3, answers of a small model were up to 5 % slower
LONGEST = 32  # tokens that are compared to tell which of several places fits best
PLACES = 4  # the latest ones that are kept for the same few tokens


class Lookup:
    """The text of one sequence, and the place in it that reads as its end does. A token costs the same wherever."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}  # by their last tokens, where the text went on from them
        self._next = 0  # where it went on from the place found
        self.length = 0  # tokens that are the same before it; 0: there is no such place
        self.add(tokens)

    def add(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._add(token)

    def _add(self, token: int) -> None:
        known, end = self._tokens, len(self._tokens) + 1
        goes_on = self.length > 0 and known[self._next] == token
        known.append(token)
        if end < SHORTEST:
            return
        places = self._places.setdefault(tuple(known[-SHORTEST:]), [])
        if goes_on:  # no place can fit for longer
            self._next += 1
            self.length += 1
        else:
            self.length, self._next = max(((self._fitting(place), place) for place in places), default=(0, 0))
        places.append(end)
        if len(places) > PLACES:
            del places[0]

    def _fitting(self, place: int) -> int:
        """How many tokens before a place are those at the end."""
        known = self._tokens
        for length in range(SHORTEST, min(LONGEST, place)):
            if known[place - 1 - length] != known[-1 - length]:
                return length
        return min(LONGEST, place)

    def draft(self, most: int) -> tuple[int, ...]:
        """Up to `most` tokens that followed there. What repeats itself up to the end is taken to go on so."""
        if not self.length:
            return ()
        found = self._tokens[self._next : self._next + most]
        while len(found) < most:
            found += found[: most - len(found)]  # the period is the distance from there to the end
        return tuple(found)
