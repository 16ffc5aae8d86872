"""Models with a task file in the worker process: encoders, rerankers, speech models. Each has a thread of its own."""

from __future__ import annotations

import base64
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ..embed import Embedder, LanguageReranker, Reranker
from ..errors import CancelledError, DeviceLost, Error, InputError
from ..progress import CancelToken, Progress
from ..speech import Transcriber
from .messages import (
    Computation,
    Embed,
    Failed,
    FromWorker,
    ModelFile,
    ModelInfo,
    SpokenSegment,
    Transcribe,
    Transcribed,
    TranscribedText,
    Vectors,
    WorkerStats,
)

Send = Callable[[FromWorker], None]
Item = TypeVar("Item")
EmbedItem = tuple[Embed, deque[tuple[list[int], int]]]  # a request, and its batches that are not computed
INTERNAL_ERROR = 2  # exit status
NO_DEVICE = 3  # exit status
logger = logging.getLogger(__name__)


class TaskModelWorker(Generic[Item]):
    """A thread that takes one item after the other. A bug in it ends the process, which the server replaces."""

    def __init__(self, file: ModelFile, send: Send) -> None:
        self._file = file
        self._send = send
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._last_progress: float | None = None
        threading.Thread(target=self._run, daemon=True, name=f"webpte {file.name}").start()

    @property
    def last_progress(self) -> float | None:
        return self._last_progress

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._last_progress = None
                    self._changed.wait_for(lambda: self._waiting)
                    self._last_progress = time.monotonic()
                    item = self._waiting.popleft()
                self._take(item)
        except BaseException:
            logger.exception("the thread of %s failed", self._file.name)
            os._exit(INTERNAL_ERROR)

    def _take(self, item: Item) -> None:
        """Compute for an item, and send what it gives."""
        raise NotImplementedError


class EmbeddingModelWorker(TaskModelWorker[EmbedItem]):
    """Vectors of an encoder, or logits of a reranker, which are vectors of one number. Its thread computes one batch of
    one request at a time, and requests take turns."""

    def __init__(self, file: ModelFile, embedder: Embedder | Reranker | LanguageReranker, send: Send) -> None:
        self.embedder = embedder
        self._active: set[int] = set()  # ids of requests that are neither complete nor cancelled
        self._steps = self._rows = 0
        super().__init__(file, send)

    @property
    def info(self) -> ModelInfo:
        embedder = self.embedder
        return ModelInfo(
            name=self._file.name,
            path=self._file.path,
            kind="encoder" if isinstance(embedder, Embedder) else "reranker",
            context=embedder.max_tokens,
            vocabulary=0,
            dimensions=embedder.dimensions,
            max_batch=embedder.max_batch,
            fingerprint=embedder.fingerprint,
            created=modified(self._file.path),
        )

    @property
    def stats(self) -> WorkerStats:
        return WorkerStats(0, self._steps, self._rows, self.embedder.recoveries)

    def submit(self, request: Computation) -> None:
        if not isinstance(request, Embed):
            raise InputError(f"{self._file.name} is of kind {self.info.kind}; it computes vectors of texts only")
        limit = self.embedder.max_tokens
        for number, row in enumerate(request.rows):
            if not 1 <= len(row) <= limit:
                raise InputError(f"row {number}: expected 1 to {limit} tokens, got {len(row)} tokens")
        if not request.rows:
            raise InputError("rows: expected at least one, got none")
        with self._changed:
            self._active.add(request.id)
            self._waiting.append((request, deque(self.embedder.batches(request.rows))))
            self._changed.notify()

    def cancel(self, id: int) -> None:
        with self._changed:
            self._active.discard(id)
            self._waiting = deque(entry for entry in self._waiting if entry[0].id != id)

    def _take(self, item: EmbedItem) -> None:
        self._send(self._compute(*item))

    def _compute(self, request: Embed, batches: deque[tuple[list[int], int]]) -> FromWorker:
        numbers, tokens = batches.popleft()
        try:
            vectors = self._vectors([request.rows[number] for number in numbers], tokens)
        except Error as error:  # such as a token outside the vocabulary
            self.cancel(request.id)
            return failed(request.id, error)
        with self._changed:
            if not batches:
                self._active.discard(request.id)
            elif request.id in self._active:  # it may have been cancelled during the batch
                self._waiting.append((request, batches))
        self._steps += 1
        self._rows += len(numbers)
        data = base64.b64encode(np.ascontiguousarray(vectors, "<f4").tobytes()).decode()
        return Vectors(request.id, tuple(numbers), self.embedder.dimensions, data)

    def _vectors(self, rows: list[tuple[int, ...]], tokens: int) -> np.ndarray[Any, Any]:
        while True:
            try:
                return self.embedder.compute_batch(rows, tokens)
            except DeviceLost:
                recover_or_exit(self.embedder.recover, self._file)


class SpeechModelWorker(TaskModelWorker[tuple[Transcribe, CancelToken]]):
    """Transcripts of one speech model. Its thread computes one request after the other."""

    def __init__(self, file: ModelFile, transcriber: Transcriber, send: Send) -> None:
        self.transcriber = transcriber
        self._cancels: dict[int, CancelToken] = {}  # of requests that are neither complete nor cancelled
        self._windows = 0
        super().__init__(file, send)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            name=self._file.name,
            path=self._file.path,
            kind="speech",
            context=0,
            vocabulary=0,
            dimensions=0,
            max_batch=1,
            fingerprint=self.transcriber.fingerprint,
            created=modified(self._file.path),
            rate=self.transcriber.rate,
        )

    @property
    def stats(self) -> WorkerStats:
        return WorkerStats(0, self._windows, 0, self.transcriber.recoveries)

    def submit(self, request: Computation) -> None:
        if not isinstance(request, Transcribe):
            raise InputError(f"{self._file.name} is a speech model; it transcribes audio only")
        with self._changed:
            self._cancels[request.id] = CancelToken()
            self._waiting.append((request, self._cancels[request.id]))
            self._changed.notify()

    def cancel(self, id: int) -> None:
        with self._changed:
            token = self._cancels.pop(id, None)
        if token is not None:
            token.cancel()

    def _take(self, item: tuple[Transcribe, CancelToken]) -> None:
        request, token = item
        try:
            answer: FromWorker = self._compute(request, token)
        except CancelledError:
            return
        except Error as error:  # such as a language that the model does not know
            answer = failed(request.id, error)
        with self._changed:
            self._cancels.pop(request.id, None)
        self._send(answer)

    def _compute(self, request: Transcribe, token: CancelToken) -> Transcribed:
        try:
            samples = np.fromfile(request.samples, "<f4")
        except OSError as error:  # the server has removed the file of a request that it no longer waits for
            raise InputError(f"the samples cannot be read: {error.strerror}", code="unreadable") from error
        rate = self.transcriber.rate
        while True:
            try:
                transcript = self.transcriber(
                    samples, rate=rate, language=request.language, task=request.task, timestamps=request.timestamps,
                    on_text=lambda text: self._send(TranscribedText(request.id, text)), progress=self._on_progress,
                    cancel=token,
                )  # fmt: skip
                break
            except DeviceLost:
                recover_or_exit(self.transcriber.recover, self._file)
        segments = tuple(SpokenSegment(each.start, each.end, each.text, each.tokens) for each in transcript.segments)
        return Transcribed(request.id, transcript.text, transcript.language, len(samples) / rate, segments)

    def _on_progress(self, event: Progress) -> None:
        self._last_progress = time.monotonic()
        self._windows += event.stage == "transcribe"


def recover_or_exit(recover: Callable[[], object], file: ModelFile) -> None:
    """Open another device for a model. If that fails, exit: the server restarts the worker until there is a device, and
    resumes the requests, which would fail here."""
    try:
        recover()
    except Exception:
        logger.exception("the device of %s is lost, and no other one can be opened", file.name)
        os._exit(NO_DEVICE)


def failed(id: int, error: BaseException) -> Failed:
    """Return the message that a request failed."""
    return Failed(id, type(error).__name__, str(error), error.reason if isinstance(error, Error) else "")


def modified(path: str) -> int:
    return int(Path(path).stat().st_mtime)
