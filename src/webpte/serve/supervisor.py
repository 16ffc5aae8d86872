"""The requests of a server and the worker that they are for. When that ends, whoever waits notices a pause.

Of every answer the supervisor knows the prompt, the settings and the tokens that have come. A new worker is told all
three, and gives the tokens that the old one would have given: see `LLM.resume`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import Error, InputError
from ..llm.errors import error_of
from .answers import Answer, Encoding
from .backend import Ask, Deadlines, State, Stats
from .errors import DeadlineExceeded, QueueFull, WorkerUnavailable
from .keeper import Keeper, Keeping
from .messages import Cancel, Failed, Given, ModelFile, Options, Served, Start, Tick, Vectors
from .process import WORKER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_RETRY_AFTER = 60.0  # seconds
logger = logging.getLogger("webpte.serve")
LATELY = 0.1  # how much the last answer counts for how long they take


@dataclass(frozen=True)
class Limits:
    """How much may wait, for how long, and how often a worker may end."""

    max_queue: int = 64  # answers of a model, beyond those at once; and requests for vectors
    deadlines: Deadlines = field(default_factory=Deadlines)
    keeping: Keeping = field(default_factory=Keeping)
    most_strikes: int = 3  # workers that ended while they had a request, before it has to go


class Supervisor:
    """A `Backend` over one worker process."""

    def __init__(
        self,
        models: Sequence[ModelFile],
        options: Options | None = None,
        limits: Limits | None = None,
        command: Sequence[str] = WORKER,
    ) -> None:
        names = [file.name for file in models]
        if not models or len(set(names)) != len(names):
            raise InputError(f"models have names of their own, at least one; here are {names}")
        self.limits = limits or Limits()
        wanted = options or Options()
        start = Start(tuple(models), wanted, self.limits.max_queue + wanted.max_sequences)
        self._keeper = Keeper(tuple(command), start, self.limits.keeping, self)
        self._keeping: asyncio.Task[None] | None = None
        self._stopping = False
        self._models: dict[str, Served] = {}
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._encodings: dict[int, Encoding] = {}
        self._settled = asyncio.Event()  # ready for the first time, or never
        self._idle = asyncio.Event()
        self._failure: Error | None = None
        self._state: State = "starting"
        self._seconds = 1.0  # that an answer takes, of late
        self._prompt_tokens = self._cached_tokens = self._cache_hits = self._completion_tokens = 0

    # -- the backend's face ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._keeping = asyncio.create_task(self._keep())
        await self._settled.wait()
        if self._failure is not None:
            raise self._failure

    async def _keep(self) -> None:
        try:
            self._failure = await self._keeper.run()
        except Exception as error:  # nobody may wait for what will not come
            logger.exception("the worker is watched no more")
            self._failure = WorkerUnavailable(
                f"the worker is watched no more, after {error!r}; start the server again", code="worker_failed"
            )
        self._state = "failed"
        self._fail_all(self._failure)
        self._settled.set()

    async def stop(self, grace: float) -> None:
        if self._state not in ("failed", "stopped"):
            self._state = "draining"
        self._note_idle()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace)
        self._state = "stopped"
        for answer in list(self._answers.values()):
            self._leave(answer)
            answer.finish("cancelled")
        self._fail_all(WorkerUnavailable("the server is ending; ask another", code="stopping"))
        if self._keeping is not None:
            if not self._stopping:  # a second one would reach it while it ends the worker
                self._stopping = self._keeping.cancel()
            await asyncio.wait([self._keeping])

    @property
    def models(self) -> Mapping[str, Served]:
        return self._models

    @property
    def worker_pid(self) -> int | None:
        """Of the process there is now."""
        return self._keeper.pid

    def generate(self, ask: Ask) -> Answer:
        served = self._served(ask.model, "language")
        live = sum(answer.ask.model == ask.model for answer in self._answers.values())
        if live >= served.at_once + self.limits.max_queue:
            after = min(max(1.0, self._seconds * (self.limits.max_queue + 1) / served.at_once), MOST_RETRY_AFTER)
            raise QueueFull(
                f"{self.limits.max_queue} answers of {ask.model} wait already, behind {served.at_once} that are "
                f"computed; ask again in {after:.0f} seconds",
                after,
            )
        answer = Answer(next(self._numbers), ask, self._leave)
        answer.sent = self._keeper.send(answer.message())  # raises for what no frame carries
        self._answers[answer.number] = answer
        answer.wait_at_most(ask.deadlines or self.limits.deadlines)
        return answer

    async def embed(
        self, model: str, rows: Sequence[Sequence[int]], deadline: float | None = None
    ) -> NDArray[np.float32]:
        served = self._served(model, "encoder")
        if len(self._encodings) > self.limits.max_queue:
            raise QueueFull(f"{len(self._encodings)} requests for vectors are under way; ask again in a second")
        encoding = Encoding(next(self._numbers), model, rows, served.dimensions)
        self._encodings[encoding.number] = encoding
        seconds = self.limits.deadlines.total if deadline is None else deadline
        try:
            encoding.sent = self._keeper.send(encoding.message())
            return await asyncio.wait_for(encoding.done, seconds)
        except TimeoutError:
            raise DeadlineExceeded(f"the vectors had not come within {seconds:g} seconds; ask for fewer") from None
        finally:
            del self._encodings[encoding.number]
            if not encoding.over:
                self._keeper.send(Cancel(encoding.number))
            self._note_idle()

    def stats(self) -> Stats:
        queued = sum(not answer.begun for answer in self._answers.values())
        work = self._keeper.work
        return Stats(
            state=self._state,
            queued=queued,
            busy=len(self._answers) - queued,
            slots=work.slots,
            embedding=len(self._encodings),
            passes=work.passes,
            rows=work.rows,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            cache_hits=self._cache_hits,
            completion_tokens=self._completion_tokens,
            restarts=self._keeper.restarts,
            device_losses=work.device_losses,
            recovery_seconds=self._keeper.recovery_seconds,
        )

    def _served(self, model: str, kind: str) -> Served:
        if self._state in ("draining", "stopped"):
            raise WorkerUnavailable("the server is ending and takes no more requests; ask another", code="stopping")
        if self._failure is not None:
            raise WorkerUnavailable(f"there is no worker: {self._failure}", code="no_worker")
        if not self._models:
            raise WorkerUnavailable("the models are being loaded; ask again later", code="loading")
        if model not in self._models:
            raise InputError(f"there is no model {model!r}; there are {', '.join(self._models)}", code="unknown_model")
        served = self._models[model]
        if served.kind != kind:
            raise InputError(
                f"{model} is of kind {served.kind}; this asks for a model of kind {kind}", code="wrong_model_kind"
            )
        return served

    # -- what the keeper tells ---------------------------------------------------------------------------------------

    def ready(self, models: Sequence[Served]) -> None:
        """Ask the new worker for all that is not over, in the order of coming."""
        before, self._models = self._models, {served.name: served for served in models}
        for answer in list(self._answers.values()):
            name = answer.ask.model
            if answer.usage.completion_tokens and before[name].fingerprint != self._models[name].fingerprint:
                self._end(
                    answer,
                    WorkerUnavailable(
                        f"{before[name].path} was replaced, and its worker restarted", code="model_replaced"
                    ),
                )
        for request in self._requests:
            if not self._suspected(request):
                request.sent = self._keeper.send(request.message())
        self._send_suspect()
        if self._state != "draining":
            self._state = "ready"
        self._settled.set()

    def take(self, message: Tick | Vectors | Failed) -> None:
        if isinstance(message, Tick):
            for given in message.given:
                if (answer := self._answers.get(given.number)) is not None:
                    self._give(answer, given)
        elif isinstance(message, Vectors):
            if (encoding := self._encodings.get(message.number)) is not None:
                encoding.take(message)
        else:
            request = self._answers.get(message.number) or self._encodings.get(message.number)
            if request is not None:
                self._end(request, error_of(message.kind, message.message, message.reason))
        self._send_suspect()

    def gone(self, why: str) -> bool:
        if self._state == "ready":
            self._state = "restarting"
        blamed = False
        for request in [request for request in self._requests if not request.over]:
            request.strikes += request.sent
            request.sent = False
            if request.strikes >= self.limits.most_strikes:
                blamed = True
                ended = f"{request.strikes} workers ended while they worked for this request. The last one {why}"
                self._end(request, WorkerUnavailable(ended, code="request_crashes_workers"))
        return blamed

    # -- who is to blame -----------------------------------------------------------------------------------------------

    def _suspected(self, request: Answer | Encoding) -> bool:
        """Whether a worker would end a last time with it. Of those one goes at a time, until it has brought something:
        so a request that ends workers takes no others with it."""
        return request.strikes >= self.limits.most_strikes - 1 > 0

    def _send_suspect(self) -> None:
        suspects = [request for request in self._requests if self._suspected(request)]
        if suspects and not any(request.sent for request in suspects):
            suspects[0].sent = self._keeper.send(suspects[0].message())

    @property
    def _requests(self) -> list[Answer | Encoding]:
        return [*self._answers.values(), *self._encodings.values()]

    # -- requests ----------------------------------------------------------------------------------------------------

    def _give(self, answer: Answer, given: Given) -> None:
        if given.cached is not None and not answer.begun:
            self._prompt_tokens += len(answer.ask.tokens)
            self._cached_tokens += given.cached
            self._cache_hits += given.cached > 0
        self._completion_tokens += len(given.pieces)
        answer.take(given)
        if answer.over:
            self._forget(answer)
            self._seconds += LATELY * (time.monotonic() - answer.started - self._seconds)

    def _leave(self, answer: Answer) -> None:
        """An answer ends here: the worker need not go on with it."""
        self._keeper.send(Cancel(answer.number))
        self._forget(answer)

    def _end(self, request: Answer | Encoding, error: Error) -> None:
        request.fail(error)
        if isinstance(request, Answer):
            self._forget(request)

    def _forget(self, answer: Answer) -> None:
        self._answers.pop(answer.number, None)
        self._note_idle()

    def _fail_all(self, error: Error) -> None:
        for request in self._requests:
            self._end(request, error)

    def _note_idle(self) -> None:
        if not self._answers and not self._encodings:
            self._idle.set()
        else:
            self._idle.clear()
