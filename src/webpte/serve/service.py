"""What the endpoints share: the backend, and tokenizers, chat templates and schema compilers of the models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..embed.pair_tokenizer import PairTokenizer
from ..embed.text_tokenizer import TextTokenizer
from ..llm.context import ContextLimit
from ..llm.prompts import read_special_tokens
from ..llm.settings import LARGEST, SamplingParams
from ..llm.text_model import TextModel
from ..llm.tokenizer import Tokenizer
from ..text import close_matches
from .backend import Backend, Stream
from .clients import ClientTurns
from .config import Config
from .downloads import Downloads
from .errors import ApiError
from .messages import ModelInfo
from .schema_process import SchemaCompiler
from .telemetry import Metrics

logger = logging.getLogger(__name__)
KINDS = {
    "language": "a language model",
    "encoder": "an embedding model",
    "reranker": "a reranker",
    "speech": "a speech model",
}
MAX_SEED = LARGEST  # OpenAI's seeds may be larger, and are reduced modulo MAX_SEED + 1
MAX_FIELD_CHARS = 80  # of an unknown field in the log
MAX_UNKNOWN_FIELDS = 256  # that warnings are logged for: clients choose the names


def load_text_model(model: ModelInfo) -> TextModel:
    """Read the files of a language model that a worker has loaded."""
    files = model.text
    assert files is not None  # of a language model
    tokenizer = Tokenizer.load(files.tokenizer)
    config = Path(files.tokenizer_config) if files.tokenizer_config is not None else None
    return TextModel(
        tokenizer,
        read_special_tokens(config, tokenizer, files.bos_id, files.eos_ids),
        files.template,
        frozenset(files.stop_tokens),
        vocabulary=model.vocabulary,
        context_limit=model.context_limit or ContextLimit(model.context),
        sampling_defaults=files.sampling,
    )


class Service:
    """The state of one application."""

    def __init__(self, backend: Backend, config: Config) -> None:
        self.backend = backend
        self.config = config
        self.metrics = Metrics(backend)
        self.draining = False
        self.loading = True
        self.turns = ClientTurns()
        self.downloads = Downloads(config.max_download_bytes)
        self._unknown_fields: set[str] = set()  # that a warning was logged for
        self._text_models: dict[str, TextModel] = {}
        self._schema_compilers: dict[str, SchemaCompiler] = {}
        self._encoders: dict[str, TextTokenizer] = {}
        self._rerankers: dict[str, PairTokenizer] = {}

    async def start(self) -> None:
        """Return when requests can be answered."""
        await self.backend.start()
        for model in self.backend.models.values():
            if model.kind == "language":
                self._text_models[model.name] = await asyncio.to_thread(load_text_model, model)
                self._schema_compilers[model.name] = SchemaCompiler(model)
            elif model.kind == "reranker":
                self._rerankers[model.name] = await asyncio.to_thread(PairTokenizer.load, model.path)
            elif model.kind == "encoder":
                self._encoders[model.name] = await asyncio.to_thread(TextTokenizer.load, model.path)
        self.loading = False

    async def stop(self) -> None:
        self.draining = True
        await self.downloads.stop()
        await self.backend.stop(self.config.shutdown_timeout)
        for compiler in self._schema_compilers.values():
            await compiler.close()

    @property
    def max_client_requests(self) -> int:
        """Return the maximum requests of one client: those that are computed and those that wait."""
        return (self.config.slots + self.config.max_queue) * max(1, len(self.backend.models))

    def warn_of_field(self, name: str, known: Iterable[str]) -> None:
        """Log a warning for the first request with an unknown field of this name."""
        name = name[:MAX_FIELD_CHARS]
        if name not in self._unknown_fields and len(self._unknown_fields) < MAX_UNKNOWN_FIELDS:
            self._unknown_fields.add(name)
            similar = {"similar": matches[0]} if (matches := close_matches(name, known)) else {}
            logger.warning("unknown field ignored", extra={"fields": {"field": name, **similar}})

    def model(self, name: str | None, kind: str | None = None) -> ModelInfo:
        """Return the model that a request names, or the only one of a kind if it names none. Raise ApiError if the name
        is unknown or of another kind."""
        if name is None:
            return self._only_model(kind)
        model = self.backend.models.get(name)
        if model is None:
            known = ", ".join(self.backend.models)
            raise ApiError(
                404, f"model: expected one of {known}, got {name[:80]!r}", param="model", code="model_not_found"
            )
        if kind is not None and model.kind != kind:
            raise ApiError(
                400, f"model: {name} is {KINDS[model.kind]}; this endpoint requires {KINDS[kind]}", param="model"
            )
        return model

    def _only_model(self, kind: str | None) -> ModelInfo:
        models = [model for model in self.backend.models.values() if kind in (None, model.kind)]
        if len(models) != 1:
            known = f"one of {', '.join(model.name for model in models)}" if models else KINDS[str(kind)]
            raise ApiError(400, f"model: expected {known}, got none", param="model")
        return models[0]

    def text_model(self, name: str | None) -> TextModel:
        return self._text_models[self.model(name, "language").name]

    def encoder(self, name: str | None) -> TextTokenizer:
        return self._encoders[self.model(name, "encoder").name]

    def reranker(self, name: str | None) -> PairTokenizer:
        return self._rerankers[self.model(name, "reranker").name]

    async def submit(
        self, model: str, prompts: Sequence[tuple[int, ...]], params: SamplingParams, client: str
    ) -> list[Stream]:
        """Submit each prompt: all of them or none. A constraint is compiled in a helper before the worker sees it. The
        seeds of the responses differ."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", headers={"Retry-After": "5"})
        if params.constraint is not None:
            await self._schema_compilers[model].check(params.constraint, self.config.schema_timeout, client)
        streams: list[Stream] = []
        try:
            for number, tokens in enumerate(prompts):
                own = replace(params, seed=(params.seed + number) % (MAX_SEED + 1))
                streams.append(self.backend.generate(model, tokens, own, client=client))
        except BaseException:
            for stream in streams:
                await stream.cancel()
            raise
        return streams
