"""What a worker does for each of its models, one pass at a time: answers of a language model, vectors of an encoder."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..embed import Embedder
from ..errors import DeviceLost, Error, InputError
from ..llm import LLM, Generation
from ..progress import OnProgress
from ..tasks import task_path
from .messages import (
    Embed,
    Failed,
    FromWorker,
    Generate,
    Given,
    Language,
    ModelFile,
    Options,
    Piece,
    Served,
    Tick,
    Vectors,
    Work,
)


class Desk(Protocol):
    """One model, and the requests that it works for."""

    @property
    def served(self) -> Served: ...

    @property
    def busy(self) -> bool:
        """Whether a pass would do anything."""

    @property
    def work(self) -> Work: ...

    def take(self, asked: Generate | Embed) -> None:
        """Begin; what is refused is raised."""

    def cancel(self, number: int) -> None: ...

    def tick(self) -> list[FromWorker]:
        """One pass, and what it has brought. An error that is nobody's own is raised."""


def open_desk(file: ModelFile, options: Options, most_waiting: int, progress: OnProgress) -> Desk:
    """Load a model, by what stands beside it."""
    if task_path(Path(file.path)).exists():
        return EncoderDesk(file, Embedder.load(file.path, memory=options.memory, progress=progress))
    llm = LLM.load(
        file.path,
        kv_cache="f16" if options.kv_cache == "f16" else "f32",
        recover=True,
        max_sequences=options.max_sequences,
        max_waiting=most_waiting,
        prefix_cache=options.prefix_cache,
        memory=options.memory,
        progress=progress,
    )
    if options.prepare:
        llm.prepare(progress)
    return LanguageDesk(file, llm)


class LanguageDesk:
    """Answers of one language model. Every pass is for all of them."""

    def __init__(self, file: ModelFile, llm: LLM) -> None:
        self.llm = llm
        self._file = file
        self._live: dict[int, Generation] = {}
        self._begun: set[int] = set()
        self._leaving = False  # somebody's slot is to be freed

    @property
    def served(self) -> Served:
        llm, about = self.llm, self.llm.about
        return Served(
            self._file.name,
            self._file.path,
            "language",
            llm.capacity,
            llm.vocabulary,
            0,
            llm.engine.most_at_once,
            llm.fingerprint,
            created(self._file.path),
            Language(
                str(about.tokenizer),
                str(about.tokenizer_config) if about.tokenizer_config is not None else None,
                about.template,
                about.eos_ids,
                about.bos_id,
                tuple(sorted(llm.stop_tokens)),
            ),
        )

    @property
    def busy(self) -> bool:
        return bool(self._live) or self._leaving

    @property
    def work(self) -> Work:
        engine = self.llm.engine
        return Work(len(engine.table), engine.passes, engine.rows, engine.runner.recoveries)

    def take(self, asked: Generate | Embed) -> None:
        if not isinstance(asked, Generate):
            raise InputError(f"{self._file.name} is a language model; it makes no vectors")
        answer = self.llm.resume(asked.tokens, asked.given, _settings(asked.settings))
        answer.start()
        iter(answer)  # from now on it tells what has come so far
        self._live[asked.number] = answer

    def cancel(self, number: int) -> None:
        answer = self._live.pop(number, None)
        if answer is not None:
            answer.give_up()
            self._begun.discard(number)
            self._leaving = True

    def tick(self) -> list[FromWorker]:
        self._leaving = False
        self.llm.engine.tick([answer.start() for answer in self._live.values()])
        brought: list[FromWorker] = []
        given: list[Given] = []
        for number, answer in list(self._live.items()):
            try:
                found = self._read(number, answer)
            except Error as error:
                brought.append(failed(number, error))
            else:
                given += [found] if found is not None else []
            if answer.over:
                del self._live[number]
                self._begun.discard(number)
                self._leaving = True  # where a stop string has ended it, the engine does not know yet
        return [*brought, Tick(tuple(given))] if given else brought

    def _read(self, number: int, answer: Generation) -> Given | None:
        """What there is for one answer, if anything is new."""
        job = answer.start()
        cached = None
        if number not in self._begun and job.reused is not None:
            self._begun.add(number)
            cached = job.reused
        pieces = []
        while not answer.over and answer.ready:
            piece = next(answer, None)
            if piece is not None:
                pieces.append(Piece(piece.text, piece.token, piece.logprob, piece.top_logprobs))
        if cached is None and not pieces and not answer.over:
            return None
        reason = answer.usage.finish_reason
        return Given(number, cached, tuple(pieces), "length" if reason == "context" else reason)


class EncoderDesk:
    """Vectors of one encoder: a batch of one request at a time."""

    def __init__(self, file: ModelFile, embedder: Embedder) -> None:
        self.embedder = embedder
        self._file = file
        self._waiting: deque[tuple[Embed, deque[tuple[list[int], int]]]] = deque()
        self._passes = self._rows = 0

    @property
    def served(self) -> Served:
        embedder = self.embedder
        return Served(
            self._file.name,
            self._file.path,
            "encoder",
            embedder.max_tokens,
            0,
            embedder.dimensions,
            embedder.max_batch,
            embedder.forward.fingerprint(),
            created(self._file.path),
        )

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    @property
    def work(self) -> Work:
        return Work(0, self._passes, self._rows, self.embedder.forward.recoveries)

    def take(self, asked: Generate | Embed) -> None:
        if not isinstance(asked, Embed):
            raise InputError(f"{self._file.name} is an encoder; it gives vectors, and no answers")
        for number, row in enumerate(asked.rows):
            if not 1 <= len(row) <= self.embedder.max_tokens:
                raise InputError(f"row {number} has {len(row)} tokens; 1 to {self.embedder.max_tokens} are taken")
        if not asked.rows:
            raise InputError("there are no rows; a vector is made of at least one")
        self._waiting.append((asked, deque(self.embedder.batches(asked.rows))))

    def cancel(self, number: int) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0].number != number)

    def tick(self) -> list[FromWorker]:
        asked, batches = self._waiting.popleft()
        numbers, tokens = batches[0]
        try:
            found = self._vectors([asked.rows[number] for number in numbers], tokens)
        except Error as error:  # such as a token that the model does not know
            return [failed(asked.number, error)]
        batches.popleft()
        if batches:
            self._waiting.append((asked, batches))  # requests take turns
        self._passes += 1
        self._rows += len(numbers)
        data = base64.b64encode(np.ascontiguousarray(found, "<f4").tobytes()).decode()
        return [Vectors(asked.number, tuple(numbers), self.embedder.dimensions, data)]

    def _vectors(self, rows: list[tuple[int, ...]], tokens: int) -> np.ndarray[Any, Any]:
        while True:
            try:
                return self.embedder.vectors(rows, tokens)
            except DeviceLost:
                self.embedder.program.recover()


def failed(number: int, error: Error) -> Failed:
    return Failed(number, type(error).__name__, str(error), error.reason)


def created(path: str) -> int:
    return int(Path(path).stat().st_mtime)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names in JSON are texts; those of `logit_bias` are tokens."""
    settings = dict(given)
    biases = settings.get("logit_bias")
    if isinstance(biases, Mapping):
        try:
            settings["logit_bias"] = {int(token): bias for token, bias in biases.items()}
        except ValueError as error:
            raise InputError(f"logit_bias is a mapping of tokens to numbers: {error}") from error
    return settings
