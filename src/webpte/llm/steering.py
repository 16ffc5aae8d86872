"""What an answer has to follow, and what is expected of it: its guide and its drafts, where it has them."""

from __future__ import annotations

from typing import NamedTuple

from .guides import Guide, Mask
from .speculation import Speculation, usual


class Ahead(NamedTuple):
    """Tokens to verify beside the last one, and what may be chosen behind that and behind each of them."""

    drafts: tuple[int, ...]
    masks: list[Mask | None]


class Steering:
    """Of one answer, which alone is ended by what is raised here. Without a guide everything is allowed; without
    speculation nothing is drafted."""

    def __init__(self, guide: Guide | None = None, speculation: Speculation | None = None) -> None:
        self._guide = guide
        self._speculation = speculation

    @property
    def guided(self) -> bool:
        """Each token decides what may follow: nothing can be chosen before it is known."""
        return self._guide is not None

    @property
    def ended(self) -> bool:
        """The answer is complete: nothing may follow but an end."""
        return self._guide is not None and self._guide.ended

    def take(self, token: int) -> None:
        """The answer's next token."""
        if self._speculation is not None:
            self._speculation.add(token)
        if self._guide is not None:
            self._guide.take(token)

    def forced(self) -> tuple[int, ...]:
        """What must come next."""
        return self._guide.forced() if self._guide is not None else ()

    def ahead(self, rows: int, most: int) -> Ahead:
        """What to compute in a pass that has `rows` rows without drafts, of which there may be `most`."""
        drafts = self._speculation.draft(rows, most) if self._speculation is not None else ()
        if self._guide is None:
            return Ahead(drafts, [None] * (1 + len(drafts)))
        behind = self._guide.after(drafts)
        count = usual(len(behind))
        return Ahead(drafts[:count], [self._guide.mask(), *behind[:count]])

    def verified(self, rows: int, drafted: int, accepted: int, seconds: float) -> None:
        """A pass of `rows` rows and `drafted` more took so long; so many of the drafts were right."""
        if self._speculation is not None:
            self._speculation.note(rows, drafted, accepted, seconds)
