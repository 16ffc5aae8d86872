"""What the endpoints share: the backend, and the models by their names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from starlette.requests import Request

from ..llm.settings import LARGEST, SamplingParams
from ..text import close_matches
from ..typing import Array
from .accounts import Accounts, Pool, RequestClock
from .backend import Backend, ModelStatus, Stream, Timeouts
from .clients import client_of, clock_of, until_disconnect
from .config import Config
from .downloads import Downloads
from .errors import ApiError
from .messages import ModelInfo, ModelKind, PromptItem, prompt_length
from .served_models import KINDS, ServedModel
from .telemetry import Metrics

logger = logging.getLogger(__name__)
LATEST = ":latest"  # that clients of Ollama append to a name
MAX_THREADS = 6  # that parse, tokenize and write at once
MAX_DECODERS = 3  # processes at once, each with its own limit of memory
MAX_IMAGE_DOWNLOADS = 8  # requests at once
MAX_SEED = LARGEST  # OpenAI's seeds may be larger, and are reduced modulo MAX_SEED + 1
MAX_FIELD_CHARS = 80  # of an unknown field in the log
MAX_UNKNOWN_FIELDS = 256  # that warnings are logged for: clients choose the names


class Service:
    """The state of one application."""

    def __init__(self, backend: Backend, config: Config) -> None:
        self.backend = backend
        self.config = config
        self.accounts = Accounts(config.max_held_bytes, config.max_client_bytes, config.max_media_bytes)
        self.metrics = Metrics(backend, self.accounts)
        self.draining = False
        self.loading = True
        self.threads = Pool(self.accounts, "thread_seconds", MAX_THREADS, reserved=1)
        self.decoders = Pool(self.accounts, "decoding_seconds", MAX_DECODERS, reserved=1)  # of audio and images
        self.image_downloads = Pool(self.accounts, "download_seconds", MAX_IMAGE_DOWNLOADS, reserved=1)
        self.recordings = Pool(self.accounts, "recording_seconds", self._max_recordings(), max_per_client=2)
        self.downloads = Downloads(config.max_download_bytes)
        self._unknown_fields: set[str] = set()  # that a warning was logged for
        self._served: dict[str, ServedModel] = {}
        self._serving = asyncio.Lock()

    async def start(self) -> None:
        """Return when requests can be answered."""
        await self.backend.start()
        for status in self.backend.statuses.values():
            if status.state == "loaded" and status.info is not None:
                await self._serve(status.info)
        self.loading = False

    async def stop(self) -> None:
        self.draining = True
        await self.downloads.stop()
        await self.backend.stop(self.config.shutdown_timeout)
        for model in self._served.values():
            await model.close()

    def _max_recordings(self) -> int:
        """Return how many recordings are decoded at once: those that the models transcribe, and the next of each."""
        return 2 * sum(model.kind == "speech" for model in self.backend.statuses.values())

    @property
    def reads_images(self) -> bool:
        """Return whether a model reads images."""
        return any(model.reads_images for model in self.backend.statuses.values())

    @property
    def models(self) -> dict[str, ModelStatus]:
        """Return the models by name, each followed by those with its adapters."""
        models = self.backend.statuses.values()
        return {each.name: each for model in models for each in (model, *model.with_adapters())}

    @property
    def max_client_requests(self) -> int:
        """Return the maximum requests of one client: those that are computed and those that wait."""
        return (self.config.slots + self.config.max_queue) * max(1, len(self.backend.statuses))

    def warn_of_field(self, name: str, known: Iterable[str]) -> None:
        """Log a warning for the first request with an unknown field of this name."""
        name = name[:MAX_FIELD_CHARS]
        if name not in self._unknown_fields and len(self._unknown_fields) < MAX_UNKNOWN_FIELDS:
            self._unknown_fields.add(name)
            similar = {"similar": matches[0]} if (matches := close_matches(name, known)) else {}
            logger.warning("unknown field ignored", extra={"fields": {"field": name, **similar}})

    async def open_model(
        self, request: Request, name: str | None, kind: ModelKind | None, keep_alive: float | None = None
    ) -> ServedModel:
        """Return the model that a request names, or the only one of a kind if it names none. It is loaded if it is not,
        and stays loaded until the response has ended. Raise ApiError if the name is unknown or of another kind."""
        model = self.find(name, kind)
        holding = self.backend.hold(model.file.name, keep_alive, client_of(request), clock_of(request).left)
        if model.state == "loaded":
            info = await holding
        else:
            started = time.perf_counter()
            info = await until_disconnect(request.receive, holding)
            seconds = time.perf_counter() - started
            request.scope["state"]["log"]["load_ms"] = round(1000 * seconds, 1)
            self.metrics.load.observe(seconds)
        request.scope["state"]["held"].callback(self.backend.release, info.name)
        await self._serve(info)
        return self._served[model.name]

    async def _serve(self, info: ModelInfo) -> None:
        """Keep what requests for a loaded model need. Its files are read again if they have changed."""
        async with self._serving:
            served = self._served.get(info.name)
            if served is None or served.info != info:
                if served is not None:
                    await served.close()
                served = self._served[info.name] = await asyncio.to_thread(ServedModel, info, self.accounts)
                self._served |= {each.name: served.with_adapter(each) for each in info.with_adapters()}

    def require(self, kind: ModelKind | None) -> None:
        """Raise ApiError 400 if no model is of a kind: before the body of a request is read."""
        kinds = {model.kind for model in self.backend.statuses.values()}
        if kind is not None and kind not in kinds:
            titles = ", ".join(KINDS[each].title for each in sorted(kinds))
            raise ApiError(
                400, f"model: this endpoint requires {KINDS[kind].title}; the server has {titles}", param="model",
                headers={"Connection": "close"},
            )  # fmt: skip

    def find(self, name: str | None, kind: ModelKind | None = None) -> ModelStatus:
        """Return the model of a name, to which clients of Ollama may append a tag, or the only one of a kind. Raise
        ApiError if it is unknown or of another kind."""
        models = self.models
        if name is None:
            return self._only_model(kind)
        model = models.get(name) or models.get(name.removesuffix(LATEST))
        if model is None:
            raise ApiError(
                404,
                f"model: expected one of {', '.join(models)}, got {name[:80]!r}",
                param="model",
                code="model_not_found",
            )
        if kind not in (None, model.kind):
            required = KINDS[kind].title
            raise ApiError(
                400, f"model: {name} is {KINDS[model.kind].title}; this endpoint requires {required}", param="model"
            )
        return model

    def has(self, name: str) -> bool:
        """Return whether a name is that of a model."""
        return name in self.models or name.removesuffix(LATEST) in self.models

    def _only_model(self, kind: ModelKind | None) -> ModelStatus:
        models = [model for model in self.backend.statuses.values() if kind in (None, model.kind)]
        if len(models) != 1:
            titles = KINDS[kind].title if kind is not None else "a model"
            known = f"one of {', '.join(model.file.name for model in models)}" if models else titles
            raise ApiError(400, f"model: expected {known}, got none", param="model")
        return models[0]

    def served(self, model: ModelStatus) -> ServedModel | None:
        """Return what the server keeps of a model; None before its first load."""
        return self._served.get(model.name)

    async def embed(self, request: Request, model: ServedModel, rows: Sequence[Sequence[int]]) -> Array:
        """Return a vector for each row of tokens, (N, D)."""
        client = client_of(request)
        self.accounts.charge(client, "prompt_tokens", sum(map(len, rows)))
        computing = self.backend.embed(model.name, rows, clock_of(request).left, client, model.info.version)
        return await until_disconnect(request.receive, computing)

    async def submit(
        self,
        model: ServedModel,
        prompts: Sequence[tuple[PromptItem, ...]],
        params: SamplingParams,
        client: str,
        clock: RequestClock,
    ) -> list[Stream]:
        """Submit each prompt: all of them or none. A constraint is compiled in a helper before the worker sees it. The
        seeds of the responses differ."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", headers={"Retry-After": "5"})
        if params.constraint is not None:
            with clock.waiting():
                await model.schemas.check(params.constraint, self.config.schema_timeout, client)
        timeouts = Timeouts(clock.left_to_wait, min(self.config.ttft_timeout, clock.left), clock.left)
        self.accounts.charge(client, "prompt_tokens", sum(map(prompt_length, prompts)))
        streams: list[Stream] = []
        try:
            for number, tokens in enumerate(prompts):
                own = replace(params, seed=(params.seed + number) % (MAX_SEED + 1))
                streams.append(
                    self.backend.generate(
                        model.info.base, tokens, own, timeouts=timeouts, client=client, version=model.info.version
                    )
                )
        except BaseException:
            for stream in streams:
                await stream.cancel()
            raise
        return streams
