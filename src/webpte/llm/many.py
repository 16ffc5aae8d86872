"""Many prompts: answers as they are finished, or in the order of the prompts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any

from ..errors import Error
from ..progress import CancelToken, OnProgress, Progress
from .chat import Messages
from .errors import QueueFullError
from .generation import Generation

if TYPE_CHECKING:
    from .model import LLM

Prompt = str | Messages | Mapping[str, Any]  # a mapping holds arguments of `generate`
AHEAD = 2  # times as many prompts as are computed at once: whoever leaves is followed without a pause


class Many:
    """The answers to many prompts, which are taken as there is room for them. Iterating does the work."""

    def __init__(
        self,
        llm: LLM,
        prompts: Iterable[Prompt],
        settings: Mapping[str, Any],
        in_order: bool,
        progress: OnProgress,
        cancel: CancelToken | None = None,
    ) -> None:
        self._llm = llm
        self._prompts = enumerate(prompts)
        self._known = len(prompts) if isinstance(prompts, Sized) else None
        self._settings = settings
        self._in_order = in_order
        self._progress = progress
        self._cancel = cancel or CancelToken()
        self._live: dict[int, Generation] = {}  # by number of the prompt
        self._waiting: tuple[int, Generation] | None = None  # for room in the queue
        self._begun = self._done = 0

    def run(self) -> Iterator[tuple[int, Generation]]:
        """Each answer with the number of its prompt."""
        finished: dict[int, Generation] = {}
        following = 0
        try:
            while True:
                self._begin()
                if not self._live and not finished:
                    return
                jobs = [answer.start() for answer in self._live.values() if answer.error is None]
                if len(jobs) == len(self._live):  # else one that was refused is over already
                    self._llm.engine.wait(jobs)
                finished |= self._finished()
                ready = itertools.takewhile(finished.__contains__, itertools.count(following))
                for number in list(ready if self._in_order else finished):
                    yield number, finished.pop(number)
                    following += 1
        finally:
            for answer in self._live.values():
                answer.close()

    def _begin(self) -> None:
        """Take prompts as long as there is room."""
        while len(self._live) < AHEAD * self._llm.engine.most_at_once:
            if self._cancel.cancelled:
                return
            found = self._waiting or self._next()
            if found is None:
                return
            number, answer = found
            try:
                if answer.error is None:
                    answer.start()
                self._waiting = None
            except QueueFullError:  # others wait, too
                if not self._live:
                    raise
                self._waiting = found
                return
            self._live[number] = answer

    def _next(self) -> tuple[int, Generation] | None:
        for number, prompt in self._prompts:
            self._begun += 1
            given = prompt if isinstance(prompt, Mapping) else {"prompt": prompt}
            try:
                return number, self._llm.generate(**{"cancel": self._cancel, **self._settings, **given})
            except Error as error:  # of this prompt: the others are none the worse for it
                return number, Generation.refused(self._llm.sequence(), error)
        return None

    def _finished(self) -> dict[int, Generation]:
        """Read what there is; the answers that are over."""
        for answer in self._live.values():
            try:
                while answer.ready and next(answer, None) is not None:
                    pass
            except Error:
                pass  # the answer tells
        over = {number: answer for number, answer in self._live.items() if answer.over}
        for number in over:
            del self._live[number]
            self._done += 1
            total = self._begun if self._known is None else self._known
            self._progress(Progress("generate", self._done, total, "answers"))
        return over
