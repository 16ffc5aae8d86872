"""What a server asks of whoever computes: the one face that endpoints know. `Supervisor` has it, and so may others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .messages import Piece, Served

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Reason = Literal["stop", "length", "cancelled", "deadline"]
State = Literal["starting", "ready", "restarting", "draining", "failed", "stopped"]


@dataclass(frozen=True)
class Deadlines:
    """Seconds from the request on; None for as long as it takes."""

    queue: float | None = None  # until it gets a slot
    first_token: float | None = None
    total: float | None = None


@dataclass(frozen=True)
class Ask:
    """An answer to tokens. Settings are those of `GenerateSettings`."""

    model: str
    tokens: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    deadlines: Deadlines | None = None  # instead of the server's


@dataclass(frozen=True)
class Usage:
    """What an answer took, whatever ended it."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt, that were not computed
    completion_tokens: int


@dataclass(frozen=True)
class Begun:
    """The answer has got a slot: the wait in the queue is over."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Finished:
    """The last event. "deadline" is the total one, with a part of the answer given."""

    reason: Reason
    usage: Usage


Event = Begun | Piece | Finished


class Stream(Protocol):
    """The events of one answer: Begun, Pieces, Finished. What fails is raised, and is the end too."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def cancel(self) -> None:
        """Give up the rest: its slot is free within a tick. A reader gets Finished with "cancelled"."""

    @property
    def usage(self) -> Usage:
        """So far."""


@dataclass(frozen=True)
class Stats:
    """What a backend does and has done. Counts only grow, over restarts too."""

    state: State
    queued: int  # answers that wait for a slot
    busy: int  # answers that have one
    slots: int  # that there are, of all models
    embedding: int  # requests for vectors under way
    passes: int  # over the weights
    rows: int  # of all passes: rows / passes are the sequences of one
    prompt_tokens: int
    cached_tokens: int  # of these, those that were found in the prefix cache
    cache_hits: int  # answers that found some
    completion_tokens: int
    restarts: int  # of the worker
    device_losses: int  # that the worker survived
    recovery_seconds: float  # from the last end of a worker until the next was ready


class Backend(Protocol):
    """Where answers and vectors come from. All of it belongs to one event loop."""

    async def start(self) -> None:
        """Until models can be asked; what keeps them from it is raised."""

    async def stop(self, grace: float) -> None:
        """Take nothing new, wait so many seconds for what is under way, and end the rest with "cancelled"."""

    @property
    def models(self) -> Mapping[str, Served]: ...

    def generate(self, ask: Ask) -> Stream:
        """Raises QueueFull, WorkerUnavailable, or InputError for a model that there is not."""

    async def embed(
        self, model: str, rows: Sequence[Sequence[int]], deadline: float | None = None
    ) -> NDArray[np.float32]:
        """A vector for each row of tokens, (n, dimensions); raises as `generate` does, and DeadlineExceeded."""

    def stats(self) -> Stats: ...
