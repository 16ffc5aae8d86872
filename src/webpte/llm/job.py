"""What the engine is asked for: the next tokens of a sequence, its logits, or only that it is cached."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..errors import Error, InputError
from ..progress import CancelToken
from .choice import Choice, Chosen, impossible
from .choosing import Choosing
from .sampled import MOST_EDITS
from .settings import Settings
from .steering import Steering

if TYPE_CHECKING:
    from .sequence import Sequence as Conversation

Goal = Literal["tokens", "logits", "cache"]
Finish = Literal["stop", "length", "context", "cancelled"]
AHEAD = 8  # tokens that are computed before anyone has read those before them, at most


class Next(NamedTuple):
    """The rows of a job that decodes, and how the token behind each is chosen."""

    tokens: list[int]
    choices: list[Choice]


@dataclass(frozen=True)
class Limits:
    """When an answer ends by itself."""

    stop_tokens: Collection[int]
    most_tokens: int
    capacity: int  # of the cache, into which the last token need not fit
    most_edits: int = MOST_EDITS  # tokens whose logits can be changed


class Job:
    """One answer under way. The engine writes it while it ticks; whoever reads the answer takes from `coming`."""

    def __init__(
        self,
        sequence: Conversation,
        prompt: Sequence[int],
        settings: Settings,
        limits: Limits,
        *,
        goal: Goal = "tokens",
        wanted: int = 1,
        cancel: CancelToken | None = None,
        steering: Steering | None = None,
        given: Sequence[int] = (),
    ) -> None:
        """`given` are tokens of the answer that somebody has read before: it goes on behind them."""
        self.sequence = sequence
        self.prompt = tuple(prompt)
        self.settings = settings
        self.goal = goal
        self.wanted = wanted  # last tokens of the prompt whose logits are the goal
        self.tokens = list(prompt)  # and all that were chosen
        self.coming: deque[tuple[Chosen, Finish | None]] = deque()  # not yet read, and what ends with them
        self.finish: Finish | None = None
        self.error: Exception | None = None
        self.result: np.ndarray[Any, Any] | None = None  # logits (wanted, V)
        self.reused: int | None = None  # tokens of the prompt that were cached
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self._limits = limits
        self._choosing = Choosing(settings, prompt, limits.most_edits)
        self._steering = steering
        self._cancel = cancel or CancelToken()
        self._reader: weakref.ref[object] | None = None
        self._dropped = False
        for token in given:
            self._take(token)
            if (ended := self._end(token)) is not None:
                raise InputError(
                    f"an answer of {len(given)} tokens is to go on; it ended ({ended}) with number {self.chosen}",
                    code="already_ended",
                )
        self.take_forced()
        self._given = self.chosen

    def give_up(self) -> None:
        """Nobody wants the rest. The engine sees to it in its next tick."""
        self._dropped = True

    def read_by(self, reader: object) -> None:
        """The job is over when its reader is gone: the engine must not keep alive what was dropped."""
        self._reader = weakref.ref(reader)

    @property
    def over(self) -> bool:
        """Nothing more will come than what is there."""
        return self.finish is not None

    @property
    def given_up(self) -> bool:
        dropped = self._dropped or (self._reader is not None and self._reader() is None)
        return dropped or self._cancel.cancelled or not self.sequence.held_by(self)

    @property
    def ahead(self) -> bool:
        """So much is unread that the others come first."""
        return len(self.coming) >= AHEAD

    @property
    def chosen(self) -> int:
        """How many tokens."""
        return len(self.tokens) - len(self.prompt)

    @property
    def begun(self) -> bool:
        """Whether the prompt is read: a token was chosen behind it, which those that it forces are not."""
        return self.chosen > self._given

    @property
    def cached(self) -> int:
        """Tokens that are computed: where the next row goes."""
        slot = self.sequence.slot
        return len(slot.tokens) if slot is not None else 0

    @property
    def reusable(self) -> list[int]:
        """Tokens that need not be computed if they are cached. What comes behind the others has not been kept."""
        return self.tokens if self.goal == "cache" else self.tokens[: len(self.tokens) - self.wanted]

    def wanted_before(self, end: int) -> int:
        """Of the tokens before a position, those whose logits are the goal."""
        return max(0, end - (len(self.tokens) - self.wanted)) if self.goal == "logits" else 0

    def keep_logits(self, end: int, found: np.ndarray[Any, Any]) -> None:
        """Logits (N, V) behind the last tokens before a position. What is computed again takes the same place."""
        if self.result is None:
            self.result = np.empty((self.wanted, found.shape[1]), found.dtype)
        last = self.wanted_before(end)
        self.result[last - len(found) : last] = found

    @property
    def most_steps(self) -> int:
        """How many more tokens fit, into the answer and into the cache."""
        return min(self._limits.most_tokens - self.chosen, self._limits.capacity - len(self.tokens) + 1)

    @property
    def steady(self) -> bool:
        """Whether several tokens may be chosen without looking at those before them."""
        return self._choosing.steady and (self._steering is None or not self._steering.guided)

    def next(self, rows: int, most_drafts: int) -> Next | None:
        """The last token and what is drafted behind it; None if its steering fails."""
        if self._steering is None:
            return Next(self.tokens[-1:], [self._choosing.choice(self.chosen)])
        try:
            ahead = self._steering.ahead(rows, min(most_drafts, self.most_steps - 1))
            drafts, masks = ahead.drafts, ahead.masks
            choices = [
                self._choosing.choice(self.chosen + number, drafts[:number], mask) for number, mask in enumerate(masks)
            ]
        except Error as error:
            self.fail(error)
            return None
        return Next([self.tokens[-1], *drafts], choices)

    def accepted(self, drafts: Sequence[int], chosen: Sequence[Chosen], rows: int, seconds: float) -> list[Chosen]:
        """Of what was chosen behind the last token and behind drafts, that which follows what was chosen before."""
        right = 0
        while right < len(drafts) and chosen[right].token == drafts[right]:
            right += 1
        if self._steering is not None:
            self._steering.verified(rows, len(drafts), right, seconds)
        return list(chosen[: right + 1])

    def give(self, chosen: Sequence[Chosen]) -> None:
        """Tokens that follow each other. Those behind an end, or behind one that cannot be, are none."""
        for number, found in enumerate(chosen):
            if found.token < 0:
                if number == 0:  # otherwise it comes first when what follows the good ones is computed
                    self.fail(impossible(found.token, len(self.tokens) - 1))
                return
            self._add(found)
            if self.over:
                return
        if chosen:
            self.take_forced()

    def take_forced(self) -> None:
        """Tokens without a choice need not be chosen; unless somebody asks how likely they were."""
        forced: tuple[int, ...] = ()
        try:
            if self._steering is not None and not self.settings.logprobs and not self.settings.top_logprobs:
                forced = self._steering.forced()
        except Error as error:
            self.fail(error)
        for token in forced:
            if not self.over:
                self._add(Chosen(token, math.nan))

    def _take(self, token: int) -> None:
        """The answer goes on with a token."""
        self.tokens.append(token)
        self._choosing.add(token)
        if self._steering is not None:
            self._steering.take(token)

    def _add(self, found: Chosen) -> None:
        try:
            self._take(found.token)
        except Error as error:
            self.fail(error)
        else:
            reason = self._end(found.token)
            self.coming.append((found, reason))  # before the end is known: a reader looks for tokens first
            self.finish = reason

    def fail(self, error: Exception) -> None:
        self.error = error
        self.finish = "cancelled"

    def is_end(self, token: int) -> bool:
        """Whether a token is no text, but the end of one."""
        return token in self._limits.stop_tokens

    def _end(self, token: int) -> Finish | None:
        if self.is_end(token) or (self._steering is not None and self._steering.ended):
            return "stop"
        if self.chosen >= self._limits.most_tokens:
            return "length"
        return "context" if len(self.tokens) > self._limits.capacity else None
