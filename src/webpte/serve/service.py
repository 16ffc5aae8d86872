"""What endpoints share: the backend, and the text side of each model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..embed.texts import Texts
from ..llm.settings import settings_from
from ..llm.special_tokens import read_special_tokens
from ..llm.tokenizer import Tokenizer
from .backend import Ask, Backend, Stream
from .config import Config
from .failures import Refusal
from .messages import Served
from .metrics import Metrics
from .words import Words


class Service:
    """One app's."""

    def __init__(self, backend: Backend, config: Config) -> None:
        self.backend = backend
        self.config = config
        self.metrics = Metrics(backend)
        self.draining = False
        self._words: dict[str, Words] = {}
        self._texts: dict[str, Texts] = {}

    async def start(self) -> None:
        """Until requests can be answered."""
        await self.backend.start()
        for served in self.backend.models.values():
            if served.kind == "language":
                self._words[served.name] = await asyncio.to_thread(_words, served)
            else:
                self._texts[served.name] = await asyncio.to_thread(Texts.load, served.path)

    async def stop(self) -> None:
        self.draining = True
        await self.backend.stop(self.config.grace_seconds)

    def model(self, name: str, kind: str | None = None) -> Served:
        """The model that a request names; one of another kind is refused."""
        served = self.backend.models.get(name)
        if served is None:
            known = ", ".join(self.backend.models)
            raise Refusal(
                404, f"there is no model {name[:80]!r}; this server has {known}", param="model", code="model_not_found"
            )
        if kind is not None and served.kind != kind:
            does = {"language": "continues texts", "encoder": "turns texts into vectors"}
            raise Refusal(
                400, f"{name} {does[served.kind]}; it cannot be asked here, where a model that {does[kind]} is wanted",
                param="model",
            )  # fmt: skip
        return served

    def words(self, name: str) -> Words:
        return self._words[self.model(name, "language").name]

    def texts(self, name: str) -> Texts:
        return self._texts[self.model(name, "encoder").name]

    async def open(self, model: str, prompts: Sequence[tuple[int, ...]], settings: Mapping[str, Any]) -> list[Stream]:
        """Submit a request for each prompt; all or none. Settings are checked here, before the worker sees them."""
        if self.draining:
            raise Refusal(503, "the server is about to end; ask another", headers={"Retry-After": "5"})
        words = self.words(model)
        checked = settings_from(settings, words.vocabulary)
        if checked.constraint is not None:
            if len(checked.constraint.source) > self.config.max_schema_bytes:
                raise Refusal(
                    422, f"the schema takes more than {self.config.max_schema_bytes} bytes (max_schema_bytes)"
                )
            await words.check_constraint(checked.constraint, self.config.schema_seconds)
        streams: list[Stream] = []
        try:
            for number, tokens in enumerate(prompts):
                own = {**settings, "seed": (settings["seed"] + number) % (1 << 31)}
                streams.append(self.backend.generate(Ask(model, tokens, own)))
        except BaseException:
            for stream in streams:
                await stream.cancel()
            raise
        return streams


def _words(served: Served) -> Words:
    about = served.language
    assert about is not None  # of a language model
    tokenizer = Tokenizer.load(about.tokenizer)
    config = Path(about.tokenizer_config) if about.tokenizer_config is not None else None
    return Words(
        tokenizer,
        read_special_tokens(config, tokenizer, about.bos_id, about.eos_ids),
        about.template,
        frozenset(about.stop_tokens),
        vocabulary=served.vocabulary,
        context=served.context,
    )
