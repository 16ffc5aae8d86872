"""The answers to many prompts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence, Sized
from typing import Any

from ..errors import Error, QueueFullError
from ..progress import CancelToken, OnProgress, Progress
from .generation import Generation, GenerativeModel, create_generation, refused_generation, wait_for_output
from .prompts import Messages, Tools

Prompt = str | Messages | Mapping[str, Any]  # a mapping holds arguments of `generate`, or `text` to continue
PROMPTS_PER_SLOT = 2  # prompts of generate_many that are queued, so that no slot stays free


class BatchGenerator:
    """The answers to many prompts. Prompts are taken as slots become free; iterating waits for answers."""

    def __init__(
        self,
        model: GenerativeModel,
        prompts: Iterable[Prompt],
        settings: Mapping[str, Any],
        in_order: bool,
        progress: OnProgress,
        cancel: CancelToken | None = None,
    ) -> None:
        self._model = model
        self._prompts = enumerate(prompts)
        self._total = len(prompts) if isinstance(prompts, Sized) else None
        self._settings = settings
        self._in_order = in_order
        self._progress = progress
        self._cancel = cancel or CancelToken()
        self._changed = threading.Condition()  # of the outputs of all answers
        self._live: dict[int, Generation] = {}  # by number of the prompt
        self._blocked: tuple[int, Generation] | None = None  # by a full queue
        self._taken = self._done = 0

    def run(self) -> Generator[tuple[int, Generation], None, None]:
        """Yield each finished answer with the number of its prompt."""
        finished: dict[int, Generation] = {}
        following = 0
        try:
            while True:
                self._submit()
                if not self._live and not finished:
                    return
                if self._live:
                    wait_for_output(self._live.values())
                finished |= self._collect()
                ready = itertools.takewhile(finished.__contains__, itertools.count(following))
                for number in list(ready if self._in_order else finished):
                    yield number, finished.pop(number)
                    following += 1
        finally:
            for answer in self._live.values():
                answer.close()

    def _submit(self) -> None:
        """Take prompts up to the limit."""
        while len(self._live) < PROMPTS_PER_SLOT * self._model.engine.max_num_seqs:
            if self._cancel.cancelled:
                return
            taken = self._blocked or self._next()
            if taken is None:
                return
            number, answer = taken
            try:
                answer.start()
                self._blocked = None
            except QueueFullError:  # by requests of others
                if not self._live:
                    raise
                self._blocked = taken
                return
            self._live[number] = answer

    def _next(self) -> tuple[int, Generation] | None:
        for number, prompt in self._prompts:
            self._taken += 1
            arguments = prompt if isinstance(prompt, Mapping) else {"prompt": prompt}
            arguments = {"cancel": self._cancel, **self._settings, **arguments}
            try:
                return number, self._generate(**arguments)
            except Error as error:  # of this prompt only
                return number, refused_generation(self._model.engine, error)
        return None

    def _generate(
        self,
        prompt: str | Messages | None = None,
        *,
        text: str | None = None,
        tokens: Sequence[int] | None = None,
        tools: Tools | None = None,
        parse_special: bool = False,
        cancel: CancelToken | None = None,
        **settings: Any,
    ) -> Generation:
        return create_generation(
            self._model,
            settings,
            prompt=prompt,
            text=text,
            tokens=tokens,
            tools=tools,
            parse_special=parse_special,
            cancel=cancel,
            changed=self._changed,
        )

    def _collect(self) -> dict[int, Generation]:
        """Read what is there; return the answers that are finished."""
        for answer in self._live.values():
            try:
                while answer.ready and next(answer, None) is not None:
                    pass
            except Error:
                pass  # `answer.error` has it
        finished = {number: answer for number, answer in self._live.items() if answer.finished}
        for number in finished:
            del self._live[number]
            self._done += 1
            total = self._taken if self._total is None else self._total
            self._progress(Progress("generate", self._done, total, "answers"))
        return finished
