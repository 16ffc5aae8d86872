"""What a worker does for each of its models, one pass at a time: answers of a language model, vectors of an encoder."""

from __future__ import annotations

import base64
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..embed import Embedder
from ..errors import DeviceLost, Error, InputError
from ..llm import LLM
from ..llm import Piece as LanguagePiece
from ..llm.engine.output import Admitted, Finished, Output
from ..llm.engine.request import GenerationRequest
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
        """Whether `tick` would do anything."""

    @property
    def progressed(self) -> float | None:
        """When its own thread last made progress; None if that has nothing to do."""

    @property
    def work(self) -> Work: ...

    def take(self, asked: Generate | Embed) -> None:
        """Begin; what is refused is raised."""

    def cancel(self, number: int) -> None: ...

    def tick(self) -> list[FromWorker]:
        """One pass, and what it has brought. An error that is nobody's own is raised."""


Send = Callable[[FromWorker], None]


def open_desk(file: ModelFile, options: Options, most_waiting: int, progress: OnProgress, send: Send) -> Desk:
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
    return LanguageDesk(file, llm, send)


class LanguageDesk:
    """Answers of one language model. The engine's thread computes them, and sends those of a step in one frame."""

    busy = False

    def __init__(self, file: ModelFile, llm: LLM, send: Send) -> None:
        self.llm = llm
        self._file = file
        self._send = send
        self._live: dict[int, GenerationRequest] = {}
        self._given: list[Given] = []  # of the current step
        self._failed: list[Failed] = []
        self._lock = threading.Lock()  # for the engine's thread and the one that takes requests
        self._progressed = 0.0
        llm.engine.after_step = self._send_step

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
            llm.engine.max_num_seqs,
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
    def progressed(self) -> float | None:
        return self._progressed if self._live else None

    @property
    def work(self) -> Work:
        engine = self.llm.engine
        return Work(len(engine.kv_slots), engine.stats.steps, engine.stats.tokens, engine.runner.recoveries)

    def take(self, asked: Generate | Embed) -> None:
        if not isinstance(asked, Generate):
            raise InputError(f"{self._file.name} is a language model; it makes no vectors")
        sink = _DeltaSink(self, asked.number)
        request = self.llm.request(asked.tokens, _settings(asked.settings), asked.given, sink=sink)
        with self._lock:
            if not self._live:
                self._progressed = time.monotonic()
            self._live[asked.number] = request
        try:
            self.llm.engine.submit(request)
        except BaseException:
            with self._lock:
                self._live.pop(asked.number, None)
            raise

    def cancel(self, number: int) -> None:
        with self._lock:
            request = self._live.pop(number, None)
        if request is not None:
            self.llm.engine.abort(request)

    def tick(self) -> list[FromWorker]:
        return []

    def collect(self, number: int, outputs: Sequence[Output]) -> None:
        """Keep the outputs of a request until the end of the step."""
        with self._lock:
            if number not in self._live:  # cancelled: nobody wants them
                return
            cached = next((output.cached_tokens for output in outputs if isinstance(output, Admitted)), None)
            pieces = tuple(
                Piece(output.text, output.token, output.logprob, output.top_logprobs)
                for output in outputs
                if isinstance(output, LanguagePiece)
            )
            end = outputs[-1] if isinstance(outputs[-1], Finished) else None
            if end is not None:
                del self._live[number]
            error = end.error if end is not None else None
            reason = end.reason if end is not None and error is None else None
            if cached is not None or pieces or reason is not None:
                self._given.append(Given(number, cached, pieces, reason))
            if error is not None:
                self._failed.append(failed(number, error))

    def _send_step(self) -> None:
        with self._lock:
            given, self._given = self._given, []
            broken, self._failed = self._failed, []
            self._progressed = time.monotonic()
        if given:
            self._send(Tick(tuple(given)))
        for failure in broken:
            self._send(failure)


class _DeltaSink:
    """Outputs of one request, which the server reads as they come: no request waits for its reader here."""

    def __init__(self, desk: LanguageDesk, number: int) -> None:
        self._desk = desk
        self._number = number

    def put(self, outputs: Sequence[Output]) -> None:
        self._desk.collect(self._number, outputs)

    def __len__(self) -> int:
        return 0


class EncoderDesk:
    """Vectors of one encoder: a batch of one request at a time."""

    progressed = None  # it has no thread

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


def failed(number: int, error: BaseException) -> Failed:
    return Failed(number, type(error).__name__, str(error), error.reason if isinstance(error, Error) else "")


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
