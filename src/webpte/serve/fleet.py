"""The backend of `webpte serve`: which models are loaded. Each loaded model has a worker process of its own.

A model is loaded for its first request, one at a time, and unloaded when it is idle for too long or when another one
needs its memory. One task does both, so that no two loads compete for memory. A model is never unloaded while a request
holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import Error, FormatError, InputError, OutOfMemory, UnsupportedError
from ..llm.settings import SamplingParams
from ..sources import beside
from .backend import EngineClient, ModelStatus, OnText, State, Stats, Stream, Timeouts, ignore_text
from .errors import DeadlineExceeded, ModelNotServable, ModelUnavailable, QueueFull, WorkerUnavailable
from .messages import ModelFile, ModelInfo, ModelState, PromptItem, SpeechTask, Transcribed
from .served_models import kind_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FULL_RETRY_SECONDS = 5.0
RECENT_SECONDS = 300.0  # after its last request in which a client counts as a user of a model
GAUGES = ("queued", "busy", "slots", "embedding", "transcribing", "memory")  # of `Stats`: now, not since the start
NOT_SUMMED = ("state", "recovery_seconds", "restart")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FleetLimits:
    """When models are loaded and unloaded. Times are in seconds."""

    memory: int | None = None  # bytes on the device for all models; None for what the device has
    idle_timeout: float = 0.0  # without a request, after which a model is unloaded; 0 for no limit
    load_timeout: float = 300.0  # that a request waits for its model
    max_queue: int = 64  # requests that wait for one model
    backoff: float = 1.0  # pause after a failed load, doubled for each further one
    max_backoff: float = 30.0


class ModelBackend(EngineClient, Protocol):
    """The worker process of one model: see `Supervisor`."""

    async def limit_memory(self, nbytes: int) -> int: ...

    @property
    def info(self) -> ModelInfo | None: ...

    @property
    def worker_pid(self) -> int | None: ...


class _Model:
    """A model of the fleet, loaded or not."""

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.kind = kind_of(file.path)
        processor = beside(Path(file.path), "preprocessor_config.json")
        self.has_image_processor = self.kind == "language" and processor is not None
        self.state: ModelState = "unloaded"
        self.worker: ModelBackend | None = None
        self.watching: asyncio.Task[None] | None = None
        self.info: ModelInfo | None = None  # of the last load
        self.memory = 0  # bytes on the device, when last measured
        self.users = 0  # requests that hold it
        self.leaving = False  # to be unloaded as soon as no request holds it; new requests wait
        self.waiting: list[asyncio.Future[ModelInfo]] = []
        self.last_used = 0.0
        self.keep_alive: float | None = None  # of the last request
        self.used_by: dict[str, float] = {}  # when each client has last requested it
        self.error: Error | None = None
        self.failures = 0
        self.retry_at = 0.0

    @property
    def needs(self) -> int:
        """Return the bytes that it needs at least: as measured when it was loaded, else the size of its files."""
        path = Path(self.file.path)
        files = path.rglob("*") if path.is_dir() else [path]
        with contextlib.suppress(OSError):  # the worker reports what is wrong with a file
            return self.memory or sum(file.stat().st_size for file in files if file.is_file())
        return 0


class Fleet:
    """A `Backend` over the worker processes of several models. A single model is loaded at the start and kept."""

    def __init__(
        self,
        files: Sequence[ModelFile],
        worker: Callable[[ModelFile, int | None], ModelBackend],
        limits: FleetLimits | None = None,
    ) -> None:
        """Store the models. `worker` returns the worker of a model with a limit of its device memory."""
        self.limits = limits or FleetLimits()
        self._new_worker = worker
        self._models = {file.name: _Model(file) for file in files}
        self._only = next(iter(self._models.values())) if len(files) == 1 else None
        self._queue: dict[str, None] = {}  # models to load, in the order of their first requests
        self._retired: list[ModelBackend] = []  # workers to stop
        self._past: dict[str, int] = {}  # counters of stopped workers
        self._recovery_seconds = 0.0
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._state: State = "starting"
        self._failed = asyncio.Event()
        self._failure: Error | None = None

    # -- Backend -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._only is not None:
            self._only.state = "loading"
            try:
                await self._start_worker(self._only)
            except Error as error:
                self._end(error)
                raise
        self._state = "ready"
        self._running = asyncio.create_task(self._run())

    async def failed(self) -> Error:
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    async def stop(self, grace: float) -> None:
        if self._state != "failed":
            self._state = "draining"
        stopping = WorkerUnavailable("the server is shutting down", code="stopping")
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        for model in self._models.values():
            self._refuse(model, stopping)
        workers = [model.worker for model in self._models.values() if model.worker is not None]
        await asyncio.gather(*(worker.stop(grace) for worker in [*workers, *self._retired]))
        for model in self._models.values():
            self._forget_worker(model)
        self._state = "stopped"

    @property
    def statuses(self) -> Mapping[str, ModelStatus]:
        return {name: self._status(model) for name, model in self._models.items()}

    def _status(self, model: _Model) -> ModelStatus:
        memory = model.worker.stats().memory if model.worker is not None else 0
        reason = model.error.code if model.state == "failed" and model.error is not None else ""
        keep = self._keep_alive(model)
        expires = None
        if model.state == "loaded" and keep < math.inf:
            idle = 0.0 if model.users else asyncio.get_running_loop().time() - model.last_used
            expires = max(0.0, keep - idle)
        info = model.worker.info if model.worker is not None else None
        return ModelStatus(
            model.file, model.kind, model.state, info or model.info, memory, expires, reason,
            has_image_processor=model.has_image_processor,
        )  # fmt: skip

    @property
    def worker_pids(self) -> list[int]:
        """Return the process ids of the current workers."""
        workers = [model.worker for model in self._models.values() if model.worker is not None] + self._retired
        return [worker.worker_pid for worker in workers if worker.worker_pid is not None]

    async def hold(
        self, name: str, keep_alive: float | None = None, client: str = "", timeout: float = math.inf
    ) -> ModelInfo:
        if self._failure is not None:
            raise WorkerUnavailable(f"no worker is running: {self._failure}", code="no_worker")
        if self._state != "ready":
            raise WorkerUnavailable("the server is shutting down and accepts no more requests", code="stopping")
        model, loop = self._models[name], asyncio.get_running_loop()
        model.keep_alive = keep_alive if not self._recent_clients(model) - {client} else None
        model.used_by[client] = loop.time()
        if model.state == "loaded" and not model.leaving:
            return self._held(model)
        if model.state == "failed" and (pause := model.retry_at - loop.time()) > 0:
            raise self._unavailable(model, pause)
        if len(model.waiting) >= self.limits.max_queue:
            raise QueueFull(f"{len(model.waiting)} requests wait for {name} to be loaded", FULL_RETRY_SECONDS)
        waiting: asyncio.Future[ModelInfo] = loop.create_future()
        model.waiting.append(waiting)
        self._queue.setdefault(name)
        self._changed.set()
        try:
            seconds = min(self.limits.load_timeout, timeout)
            async with asyncio.timeout(seconds):
                await asyncio.wait([waiting])
        except TimeoutError:
            if not waiting.done():
                message = f"{name} was not loaded within {seconds:g} seconds. Try again later."
                raise DeadlineExceeded(message, "load") from None
        except asyncio.CancelledError:
            if waiting.done() and waiting.exception() is None:
                self.release(name)
            raise
        finally:
            if waiting in model.waiting:
                model.waiting.remove(waiting)
                self._changed.set()
        return waiting.result()

    def release(self, name: str) -> None:
        model = self._models[name]
        model.users -= 1
        model.last_used = asyncio.get_running_loop().time()
        self._changed.set()

    def unload(self, name: str, client: str = "") -> bool:
        model = self._models[name]
        if self._only is not None or self._recent_clients(model) - {client}:
            return False
        model.keep_alive = 0.0
        self._changed.set()
        return True

    def _recent_clients(self, model: _Model) -> set[str]:
        """Return the clients that have requested a model lately. Others may not unload it."""
        since = asyncio.get_running_loop().time() - (self.limits.idle_timeout or RECENT_SECONDS)
        model.used_by = {client: when for client, when in model.used_by.items() if when >= since}
        return set(model.used_by)

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
        worker = self._worker(model)
        return worker.generate(model, tokens, params, timeouts=timeouts, client=client, version=version)

    async def embed(
        self,
        model: str,
        rows: Sequence[Sequence[int]],
        timeout: float | None = None,
        client: str = "",
        version: str | None = None,
    ) -> NDArray[np.float32]:
        return await self._worker(model).embed(model, rows, timeout, client, version)

    async def transcribe(
        self, model: str, samples: str, language: str | None, task: SpeechTask, timestamps: bool,
        timeout: float | None = None, client: str = "", on_text: OnText = ignore_text,
        version: str | None = None,
    ) -> Transcribed:  # fmt: skip
        worker = self._worker(model)
        return await worker.transcribe(model, samples, language, task, timestamps, timeout, client, on_text, version)

    def _worker(self, name: str) -> ModelBackend:
        worker = self._models[name].worker
        if worker is None:  # it failed after the request has held the model
            raise WorkerUnavailable(f"{name} is not loaded", code="not_loaded")
        return worker

    def stats(self) -> Stats:
        each = [model.worker.stats() for model in self._models.values() if model.worker is not None]
        names = [field.name for field in fields(Stats) if field.name not in NOT_SUMMED]
        sums = {name: sum(getattr(one, name) for one in each) + self._past.get(name, 0) for name in names}
        sums["queued"] += sum(len(model.waiting) for model in self._models.values())
        state, restart = self._state, None  # of several models, others answer while one is restarted
        if self._only is not None and each and state in ("starting", "ready"):
            state, restart = each[0].state, each[0].restart
        elif self._only is not None and self._only.state == "failed" and state == "ready":
            state = "restarting"  # the next request loads it again
        seconds = max((one.recovery_seconds for one in each), default=0.0) or self._recovery_seconds
        return Stats(state=state, recovery_seconds=seconds, restart=restart, **sums)

    # -- loading and unloading ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Load and unload models, one after the other."""
        while True:
            self._changed.clear()
            while self._retired:
                await self._stop(self._retired[0])
            if expired := [model for model in self._loaded() if self._expires_in(model) <= 0]:
                await self._unload(expired[0])
                continue
            name = next(iter(self._queue), None)
            if name is not None:
                await self._load(self._models[name])
                del self._queue[name]
                continue
            pause = min(map(self._expires_in, self._loaded()), default=math.inf)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if pause < math.inf else None):
                    await self._changed.wait()

    def _loaded(self) -> list[_Model]:
        return [model for model in self._models.values() if model.state == "loaded"]

    def _expires_in(self, model: _Model) -> float:
        """Return the seconds until a model is unloaded if nothing requests it."""
        if model.users or model.waiting:
            return math.inf
        return model.last_used + self._keep_alive(model) - asyncio.get_running_loop().time()

    def _keep_alive(self, model: _Model) -> float:
        """Return the seconds for which a model is kept. What clients set holds where they can choose among models."""
        if model.keep_alive is not None and self._only is None:
            return model.keep_alive if model.keep_alive >= 0 else math.inf
        return self.limits.idle_timeout or math.inf

    async def _load(self, model: _Model) -> None:
        """Load a model for the requests that wait for it, and answer them. A failure concerns only them."""
        if model.state != "loaded" and model.waiting:
            before, model.state = model.state, "loading"
            try:
                if not await self._load_with_room(model):
                    model.state = before  # no request waits for it any more
            except Error as error:
                self._fail(model, error)
            except Exception as error:  # a bug: fail the requests, so that no client waits forever
                logger.exception("%s could not be loaded", model.file.name)
                self._fail(model, WorkerUnavailable(f"the load failed: {error!r}", code="load_failed"))
            except BaseException:
                model.state = "unloaded"
                raise
        if model.state == "loaded":
            waiting, model.waiting = model.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(self._held(model))

    async def _load_with_room(self, model: _Model) -> bool:
        """Load a model, and unload others until there is memory for it. Return False if no request waits for it."""
        memory = self.limits.memory
        free = memory
        while model.waiting:
            if memory is not None:
                free = memory - await self._measure()
                if free < model.needs and self._loaded():
                    await self._unload_one(model)
                    continue
            try:
                await self._start_worker(model, free)
            except OutOfMemory:
                if not self._loaded():
                    raise
                await self._unload_one(model)
                continue
            await self._share_memory()
            return True
        return False

    async def _measure(self) -> int:
        """Return the bytes that the loaded models take. They may not take more until `_share_memory`."""
        return sum([await self._limit_memory(model, 0) for model in self._loaded()])

    async def _share_memory(self) -> None:
        """Let each loaded model use what it takes, and an equal part of what none takes."""
        if self.limits.memory is None:
            return
        free, loaded = self.limits.memory - await self._measure(), self._loaded()
        for model in loaded:
            await self._limit_memory(model, model.memory + max(0, free) // len(loaded))

    async def _limit_memory(self, model: _Model, nbytes: int) -> int:
        if model.worker is None:  # it has failed meanwhile
            return 0
        model.memory = await model.worker.limit_memory(nbytes)
        return model.memory

    async def _unload_one(self, waited_for: _Model) -> None:
        """Unload the least recently used model, first of those that only the waiting clients use. If all answer
        requests, wait until one does no more; meanwhile the least recently used gets no others. Return early if no
        request waits for the model that is to be loaded."""
        while waited_for.waiting and (loaded := self._loaded()):
            waiting = self._recent_clients(waited_for)
            model = min(
                loaded, key=lambda each: (each.users > 0, bool(self._recent_clients(each) - waiting), each.last_used)
            )
            if not model.users:
                await self._unload(model)
                return
            model.leaving = True
            try:
                self._changed.clear()
                await self._changed.wait()
            finally:
                model.leaving = False

    async def _unload(self, model: _Model) -> None:
        """End the worker of a model. Requests that arrive meanwhile wait for the next load."""
        logger.info("unloading", extra={"fields": {"model": model.file.name, "bytes": model.memory}})
        worker = self._forget_worker(model)
        if worker is not None:
            await self._stop(worker)

    async def _stop(self, worker: ModelBackend) -> None:
        """End a worker that has no requests."""
        if worker not in self._retired:
            self._retired.append(worker)  # for `stop`, if this is cancelled
        await worker.stop(0)
        self._retired.remove(worker)

    async def _start_worker(self, model: _Model, memory: int | None = None) -> None:
        """Load a model in a new worker. Raise what prevents it."""
        logger.info("loading", extra={"fields": {"model": model.file.name}})
        started = asyncio.get_running_loop().time()
        worker = self._new_worker(model.file, memory if memory is not None else self.limits.memory)
        model.worker = worker
        try:
            await worker.start()
        except BaseException:
            model.worker = None
            await self._stop(worker)
            raise
        model.info, model.memory = worker.info, worker.stats().memory
        model.state, model.error, model.failures = "loaded", None, 0
        model.last_used = asyncio.get_running_loop().time()
        model.watching = asyncio.create_task(self._watch(model, worker.failed()))
        self._log_ready(model, model.last_used - started)

    def _log_ready(self, model: _Model, seconds: float) -> None:
        """Log what a model takes, and what it may take: slots beyond the first are allocated when they are needed."""
        assert model.info is not None
        fields: dict[str, object] = {"model": model.file.name, "seconds": round(seconds, 1)}
        fields["memory_bytes"] = model.memory
        if model.info.slot_bytes:
            fields |= {"slots": model.info.max_batch, "slot_bytes": model.info.slot_bytes}
            fields |= {"all_slots_bytes": model.info.slot_bytes * model.info.max_batch}
        if self.limits.memory is not None:
            fields["limit_bytes"] = self.limits.memory
        logger.info("ready", extra={"fields": fields})

    async def _watch(self, model: _Model, failed: Awaitable[Error]) -> None:
        """Mark a model as failed when its worker cannot be kept running."""
        error = await failed
        model.watching = None
        worker = self._forget_worker(model)
        if worker is not None:
            self._retired.append(worker)
        self._fail(model, error)
        self._changed.set()
        if self._only is not None and isinstance(error, WorkerUnavailable):  # else its files may be restored
            self._end(error)

    def _end(self, error: Error) -> None:
        """Refuse all requests: the only model has failed."""
        self._state, self._failure = "failed", error
        self._failed.set()

    def _forget_worker(self, model: _Model) -> ModelBackend | None:
        """Return the worker of a model that is no longer loaded, and keep its counters."""
        worker, model.worker, model.state = model.worker, None, "unloaded"
        if model.watching is not None:
            model.watching.cancel()
            model.watching = None
        if worker is not None:
            stats = worker.stats()
            self._recovery_seconds = stats.recovery_seconds or self._recovery_seconds
            for field in fields(Stats):
                if field.name not in (*GAUGES, *NOT_SUMMED):
                    self._past[field.name] = self._past.get(field.name, 0) + getattr(stats, field.name)
        return worker

    def _fail(self, model: _Model, error: Error) -> None:
        """Refuse the requests that wait for a model, and others until the back-off has passed."""
        logger.warning("%s cannot be loaded: %s", model.file.name, error)
        model.state, model.error = "failed", error
        pause = min(self.limits.backoff * 2.0**model.failures, self.limits.max_backoff)
        model.failures += 1
        model.retry_at = asyncio.get_running_loop().time() + pause
        self._refuse(model, self._unavailable(model, pause))

    def _unavailable(self, model: _Model, pause: float) -> Error:
        """Return the error of requests for a model that cannot be loaded. A file that was never right does not become
        so by waiting, so its error is not one that clients retry."""
        assert model.error is not None
        reason = model.error.code  # its text may name paths, and any client may read it
        if model.info is None and isinstance(model.error, (FormatError, InputError, UnsupportedError)):
            return ModelNotServable(
                f"model: {model.file.name} cannot be served: {reason}. The server's log has the reason."
            )
        return ModelUnavailable(
            f"model: {model.file.name} cannot be loaded: {reason}. The server's log has the reason. "
            f"Try again in {math.ceil(pause)} seconds.",
            pause,
        )

    def _refuse(self, model: _Model, error: Error) -> None:
        waiting, model.waiting = model.waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _held(self, model: _Model) -> ModelInfo:
        """Count a request that uses a loaded model, and return the model."""
        model.users += 1
        model.last_used = asyncio.get_running_loop().time()
        assert model.worker is not None and model.worker.info is not None
        return model.worker.info
