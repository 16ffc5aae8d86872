"""The interface between the endpoints and the backend that computes. `Fleet` implements it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import Error
from ..llm.engine.output import Admitted, Piece
from ..llm.settings import SamplingParams
from .messages import ModelFile, ModelInfo, ModelKind, ModelState, PromptItem, SpeechTask, Transcribed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

StreamEndReason = Literal["stop", "length", "cancelled", "deadline"]
State = Literal["starting", "ready", "restarting", "draining", "failed", "stopped"]


@dataclass(frozen=True)
class Timeouts:
    """Seconds from the start of a request; None for no limit."""

    queue: float | None = None  # until it gets a slot
    first_token: float | None = None
    total: float | None = None


@dataclass(frozen=True)
class RequestUsage:
    """Token counts of a response, however it ended."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt, that were not computed
    completion_tokens: int
    reasoning_tokens: int = 0  # of the completion: a thought before the answer


@dataclass(frozen=True)
class StreamEnd:
    """The last event of a stream. "deadline" is the total timeout, after part of the response was generated."""

    reason: StreamEndReason
    usage: RequestUsage
    stop_string: str | None = None  # that ended the text


Event = Admitted | Piece | StreamEnd


class Stream(Protocol):
    """The events of one response: Admitted, Pieces, StreamEnd. A failure is raised and ends the stream."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def cancel(self) -> None:
        """Stop generating. The slot is free within one step; a reader gets StreamEnd with "cancelled"."""

    @property
    def usage(self) -> RequestUsage:
        """Return the token counts so far."""


@dataclass(frozen=True)
class Restart:
    """A worker that has exited is being replaced."""

    attempts: int  # workers that were started since the last one that worked
    next_attempt_seconds: float  # until another one is started; 0 while it loads
    last_error: str  # why the last one exited; without paths and output, because any client may read it


@dataclass(frozen=True)
class ModelStatus:
    """A model of the server, loaded or not."""

    file: ModelFile
    kind: ModelKind
    state: ModelState
    info: ModelInfo | None  # of the last load; None before the first
    memory: int = 0  # bytes on the device
    expires: float | None = None  # seconds until it is unloaded if nothing requests it; None if it is kept
    reason: str = ""  # the code of the error of a failed load
    adapter: str | None = None  # that requests for the model have
    has_image_processor: bool = False  # beside its program

    @property
    def reads_images(self) -> bool:
        """Return whether it reads images. Before the first load, its files say whether it may."""
        if self.info is None:
            return self.has_image_processor
        return self.info.text is not None and self.info.text.images is not None

    @property
    def name(self) -> str:
        """Return the name in requests."""
        return self.file.name if self.adapter is None else f"{self.file.name}:{self.adapter}"

    def with_adapters(self) -> list[ModelStatus]:
        """Return the model with each of its adapters."""
        adapters = self.info.adapters if self.info is not None else tuple(self.file.adapters)
        return [replace(self, adapter=adapter) for adapter in adapters]


@dataclass(frozen=True)
class Stats:
    """The state of a backend and its counters. Counters never decrease, also when workers are replaced."""

    state: State
    queued: int  # requests that wait for a slot
    busy: int  # requests that have one
    slots: int  # of all models
    embedding: int  # embedding requests in flight
    transcribing: int  # speech requests in flight
    steps: int  # passes over the weights
    tokens: int  # of all steps: tokens / steps is the mean batch size
    prompt_tokens: int
    cached_tokens: int  # of these, found in the prefix cache
    cache_hits: int  # requests that found some
    completion_tokens: int
    restarts: int  # of the worker
    device_losses: int  # that a worker recovered from
    recovery_seconds: float  # from the last exit of a worker until the next was ready
    restart: Restart | None = None  # while no worker is ready, after the first exit of one
    memory: int = 0  # bytes on the device


OnText = Callable[[str], None]


def ignore_text(text: str) -> None:
    """Do nothing with the text so far."""


class EngineClient(Protocol):
    """Sends requests to the engines of worker processes, one or many. All calls come from one event loop."""

    async def start(self) -> None:
        """Return when requests are accepted. Raise what prevents it."""

    async def failed(self) -> Error:
        """Wait until no worker will be started any more, and return the reason. Requests are refused from then on."""

    async def stop(self, grace: float) -> None:
        """Accept nothing new, wait up to `grace` seconds for requests in flight, and cancel the rest."""

    def generate(
        self,
        model: str,
        tokens: tuple[PromptItem, ...],
        params: SamplingParams,
        *,
        timeouts: Timeouts | None = None,
        client: str = "",
        version: str | None = None,
    ) -> Stream:
        """Continue a prompt with a model that the caller holds. Clients share the slots. `timeouts` replace defaults.
        The prompt was tokenized for a `version` of the model: another one refuses it.

        Raise QueueFull, WorkerUnavailable, or InputError for a model of another kind.
        """

    async def embed(
        self,
        model: str,
        rows: Sequence[Sequence[int]],
        timeout: float | None = None,
        client: str = "",
        version: str | None = None,
    ) -> NDArray[np.float32]:
        """Return a vector for each row of tokens, (n, dimensions). Raise as `generate` does, and DeadlineExceeded."""

    async def transcribe(
        self,
        model: str,
        samples: str,
        language: str | None,
        task: SpeechTask,
        timestamps: bool,
        timeout: float | None = None,
        client: str = "",
        on_text: OnText = ignore_text,
        version: str | None = None,
    ) -> Transcribed:
        """Return the transcript of the samples in a file. Raise as `embed` does.

        `on_text` is called with the text so far, and from the beginning again if another worker continues.
        """

    def stats(self) -> Stats: ...


class Backend(EngineClient, Protocol):
    """The client for several models. A single model is loaded when `start` returns."""

    @property
    def statuses(self) -> Mapping[str, ModelStatus]:
        """Return the models by their names."""

    async def hold(
        self, name: str, keep_alive: float | None = None, client: str = "", timeout: float = math.inf
    ) -> ModelInfo:
        """Load a model if it is not, and keep it loaded until `release`. Then it is kept for `keep_alive` seconds after
        the last request: None for the server's time, less than 0 for no limit. What a client sets holds while no other
        uses the model.

        Raise ModelUnavailable if it cannot be loaded, and QueueFull, DeadlineExceeded or WorkerUnavailable.
        """

    def release(self, name: str) -> None:
        """Let a model be unloaded that `hold` has returned."""

    def unload(self, name: str, client: str = "") -> bool:
        """Unload a model when no request holds it. Return False if it is the only one, or another client uses it."""
