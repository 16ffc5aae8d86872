"""What endpoints share: the backend, the models' texts, and answers that are counted, measured and logged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..embed.texts import Texts
from ..llm.settings import settings_from
from ..llm.special_tokens import read_special_tokens
from ..llm.tokenizer import Tokenizer
from .backend import Ask, Backend, Begun, Event, Finished, Stream, Usage
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

    async def open(
        self, model: str, prompts: Sequence[tuple[int, ...]], settings: Mapping[str, Any], log: dict[str, Any]
    ) -> list[Measured]:
        """An answer to each prompt, under way; all or none. Settings are checked here, before the worker sees them."""
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
        answers: list[Measured] = []
        try:
            for number, tokens in enumerate(prompts):
                own = {**settings, "seed": (settings["seed"] + number) % (1 << 31)}
                answers.append(Measured(tokens, self.backend.generate(Ask(model, tokens, own)), self.metrics, log))
        except BaseException:
            await close(answers)
            raise
        return answers


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


class Measured:
    """A stream that is measured while it is read, and given up by `close` if it has not ended."""

    def __init__(self, prompt: tuple[int, ...], stream: Stream, metrics: Metrics, log: dict[str, Any]) -> None:
        self.prompt = prompt
        self._stream = stream
        self._metrics = metrics
        self._log = log
        self._began = self._latest = time.perf_counter()
        self._over = False
        self._first: Event | None = None

    async def begun(self) -> None:
        """Until it has a slot. What fails before that is raised, while a request can still be refused."""
        self._events = aiter(self._stream)
        self._first = await anext(self._events)
        self._note(self._first)

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._first is None:
            await self.begun()
        assert self._first is not None
        yield self._first
        async for event in self._events:
            self._note(event)
            yield event

    async def cancel(self) -> None:
        await self._stream.cancel()

    @property
    def usage(self) -> Usage:
        return self._stream.usage

    def _note(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Begun):
            self._metrics.queue.observe(now - self._began)
            self._log.setdefault("queue_ms", round(1000 * (now - self._began), 1))
        elif isinstance(event, Finished):
            self._end(event.reason)
        elif (
            self._log.setdefault("first_token_ms", round(1000 * (now - self._began), 1)) and self._latest == self._began
        ):
            self._metrics.first.observe(now - self._began)
            self._latest = now
        else:
            self._metrics.between.observe(now - self._latest)
            self._latest = now

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._over = True
        usage = self.usage
        self._metrics.finished.labels(reason).inc()
        self._log.setdefault("finish", []).append(reason)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            self._log[name] = self._log.get(name, 0) + getattr(usage, name)

    async def close(self) -> None:
        """Give up the rest, with its usage noted all the same."""
        if not self._over:
            await self._stream.cancel()
            self._end("cancelled")


async def close(answers: Sequence[Measured]) -> None:
    for answer in answers:
        await answer.close()
