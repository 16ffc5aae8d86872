"""The worker process, which owns the device: `python -m webpte.serve.worker`, started by `WorkerManager`.

Messages arrive on stdin and leave on stdout; what libraries print goes to stderr. One thread reads messages, so that
pings are answered while the model loads and computes. It computes in a thread of its own: the engine's thread of a
language model, or that of a model in `task_workers`. Another thread compiles the constraints of requests, so that the
requests after them need not wait. The process exits when its input ends, for then its server is gone.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from ..device import allocated_bytes, limit_allocations
from ..embed import Embedder, LanguageReranker, PairPrompts, Reranker
from ..errors import Error, FormatError, InputError
from ..llm import LLM
from ..llm.engine.embeddings import EncoderInput
from ..llm.engine.output import Admitted, Finished, Output, Piece
from ..llm.engine.request import SamplingRequest
from ..progress import OnProgress, Progress
from ..speech import Transcriber
from ..task_file import task_of
from ..typing import Array
from .messages import (
    MAX_MESSAGE_BYTES,
    Cancel,
    Computation,
    Embed,
    Failed,
    FromWorker,
    Generate,
    LimitMemory,
    LoadFailed,
    MemoryUsed,
    ModelFile,
    ModelInfo,
    Ping,
    Pong,
    Ready,
    Start,
    StepOutput,
    StoredTile,
    TextFiles,
    TokenDelta,
    ToWorker,
    Transcribe,
    WorkerOptions,
    WorkerStats,
    decode_to_worker,
    encode,
    text_digest,
)
from .processes import ignore_stop_signals
from .served_models import kind_of
from .task_workers import (
    INTERNAL_ERROR,
    EmbeddingModelWorker,
    Send,
    SpeechModelWorker,
    failed,
    modified,
    recover_or_exit,
)

logger = logging.getLogger(__name__)


class Pipe:
    """Messages over two files. Several threads may send."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()

    def send(self, message: FromWorker) -> None:
        line = encode(message)
        with self._lock:
            self._writer.write(line)
            self._writer.flush()

    def receive(self) -> ToWorker | None:
        """Return the next message; None at the end of the input."""
        line = self._reader.readline(MAX_MESSAGE_BYTES)
        return decode_to_worker(line) if line.endswith(b"\n") else None


class ModelWorker(Protocol):
    """One loaded model and its requests."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def stats(self) -> WorkerStats: ...

    @property
    def last_progress(self) -> float | None:
        """Return when the worker's thread last completed a step (`time.monotonic`); None if it is idle."""

    def submit(self, request: Computation) -> None:
        """Start a request; raise what is wrong with it."""

    def cancel(self, id: int) -> None: ...


def load_model(
    file: ModelFile, options: WorkerOptions, max_queue_size: int, progress: OnProgress, send: Send
) -> ModelWorker:
    """Load a model. A task file beside it says what it does; without one, it is a language model."""
    kind = kind_of(file.path)
    if kind == "speech":
        return SpeechModelWorker(file, Transcriber.load(file.path, progress=progress), send)
    if task_of(Path(file.path)) == PairPrompts.task:
        judge = LanguageReranker.load(file.path, kv_cache=options.kv_cache, progress=progress)
        return EmbeddingModelWorker(file, judge, send)
    if kind != "language":
        program = Reranker if kind == "reranker" else Embedder
        return EmbeddingModelWorker(file, program.load(file.path, progress=progress), send)
    try:
        llm = LLM.load(
            file.path,
            kv_cache=options.kv_cache,
            recover=True,
            max_sequences=options.max_sequences,
            max_queue_size=max_queue_size,
            prefix_cache=options.prefix_cache,
            adapters=file.adapters,
            progress=progress,
        )
    except InputError as error:
        if error.reason != "no_tokenizer":
            raise
        tokenizer = f"{Path(file.path).stem}.tokenizer.json"
        hint = f"The server runs language, embedding and speech models: put {tokenizer} beside it."
        raise InputError(f"{file.path} has no tokenizer.json", hint=hint, code=error.reason) from error
    if options.warmup:
        llm.warmup(progress)
    return LanguageModelWorker(file, llm, send)


class LanguageModelWorker:
    """Responses of one language model. The engine's thread computes them, and sends each step as one message."""

    def __init__(self, file: ModelFile, llm: LLM, send: Send) -> None:
        self.llm = llm
        self._file = file
        self._send = send
        self._active: dict[int, SamplingRequest] = {}
        self._deltas: list[TokenDelta] = []  # of the current step
        self._failures: list[Failed] = []
        self._lock = threading.Lock()  # between the engine's thread and the reader of messages
        self._last_progress = 0.0
        llm.on_step(self._send_step)
        llm.on_device_lost(partial(recover_or_exit, llm.recover, file))

    @property
    def info(self) -> ModelInfo:
        llm, files = self.llm, self.llm.metadata
        tokenizer, config = str(files.tokenizer), files.tokenizer_config
        tokenizer_config = str(config) if config is not None else None
        return ModelInfo(
            name=self._file.name,
            path=self._file.path,
            kind="language",
            context=llm.capacity,
            vocabulary=llm.vocabulary,
            dimensions=0,
            max_batch=llm.max_sequences,
            fingerprint=llm.fingerprint,
            created=modified(self._file.path),
            text=TextFiles(
                tokenizer=tokenizer,
                tokenizer_config=tokenizer_config,
                template=files.template,
                eos_ids=files.eos_ids,
                bos_id=files.bos_id,
                stop_tokens=tuple(sorted(llm.stop_tokens)),
                sampling=dict(llm.sampling_defaults),
                images=llm.text_model.images.encoder if llm.text_model.images is not None else None,
                digest=text_digest(tokenizer, tokenizer_config, files.template),
            ),
            context_limit=llm.context_limit,
            adapters=llm.adapters,
            slot_bytes=sum(llm.engine.runner.sizes(llm.capacity)),
        )

    @property
    def stats(self) -> WorkerStats:
        stats = self.llm.stats
        return WorkerStats(stats.slots, stats.steps, stats.tokens, stats.recoveries)

    @property
    def last_progress(self) -> float | None:
        return self._last_progress if self._active else None

    def submit(self, request: Computation) -> None:
        if not isinstance(request, Generate):
            raise InputError(f"{self._file.name} is a language model; embeddings need an encoder")
        sink = _DeltaSink(self, request.id)
        open_file = functools.cache(_open_pixels)  # all tiles of an image share one mapping
        domain = request.domain
        segments = [each if isinstance(each, int) else self._input(each, domain, open_file) for each in request.tokens]
        generation = self.llm.request(segments, request.params, request.resumed, domain=domain, sink=sink)
        with self._lock:
            if not self._active:
                self._last_progress = time.monotonic()
            self._active[request.id] = generation
        try:
            self.llm.submit(generation)
        except BaseException:
            with self._lock:
                self._active.pop(request.id, None)
            raise

    def _input(self, tile: StoredTile, domain: str, open_file: Callable[[str], Array]) -> EncoderInput:
        """Return a tile as an input of the encoder. What the encoder has computed for another domain is not used."""
        images = self.llm.text_model.images
        if images is None:
            raise InputError(f"{self._file.name} reads no images", code="no_images")
        pixels = open_file(tile.path)[tile.offset :][: math.prod(tile.shape)].reshape(tile.shape)
        digest = bytes.fromhex(tile.digest)
        if domain:
            digest = hashlib.sha256(domain.encode() + digest).digest()[: len(digest)]
        return images.input(pixels, digest, tile.rows, ends_image=tile.ends_image)

    def cancel(self, id: int) -> None:
        with self._lock:
            generation = self._active.pop(id, None)
        if generation is not None:
            self.llm.abort(generation)

    def collect(self, id: int, outputs: Sequence[Output]) -> None:
        """Keep the outputs of a request until the end of the step. That it got a slot is sent at once."""
        with self._lock:
            if id not in self._active:  # cancelled
                return
            if len(outputs) == 1 and isinstance(outputs[0], Admitted):
                return self._send(StepOutput((TokenDelta(id, outputs[0].cached_tokens, (), None),)))
            cached = next((output.cached_tokens for output in outputs if isinstance(output, Admitted)), None)
            pieces = tuple(output for output in outputs if isinstance(output, Piece))
            end = outputs[-1] if isinstance(outputs[-1], Finished) else None
            if end is not None:
                del self._active[id]
            error = end.error if end is not None else None
            reason = end.reason if end is not None and error is None else None
            if cached is not None or pieces or reason is not None:
                self._deltas.append(TokenDelta(id, cached, pieces, reason, end.stop_string if end else None))
            if error is not None:
                self._failures.append(failed(id, error))

    def _send_step(self) -> None:
        with self._lock:
            deltas, self._deltas = self._deltas, []
            failures, self._failures = self._failures, []
            self._last_progress = time.monotonic()
        if deltas:
            self._send(StepOutput(tuple(deltas)))
        for failure in failures:
            self._send(failure)


def _open_pixels(path: str) -> Array:
    """Map the tiles of an image. The mapping stays when the server removes the file."""
    try:
        pixels: Array = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # the server has removed the file of a request that it no longer waits for
        raise InputError(f"the pixels of an image cannot be read: {error}", code="unreadable") from error
    return pixels


class _DeltaSink:
    """The outputs of one request. The server buffers them, so no request ever waits for its reader here."""

    def __init__(self, worker: LanguageModelWorker, id: int) -> None:
        self._worker = worker
        self._id = id

    def put(self, outputs: Sequence[Output]) -> None:
        self._worker.collect(self._id, outputs)

    def __len__(self) -> int:
        return 0


class ConstrainedRequests:
    """Starts requests with a constraint in a thread, one after the other. Compiling one takes up to seconds."""

    def __init__(self, start: Callable[[Generate], None], cancel: Callable[[int], None]) -> None:
        self._start = start
        self._cancel = cancel
        self._waiting: queue.SimpleQueue[Generate] = queue.SimpleQueue()
        self._ids: set[int] = set()  # of requests that wait or are being started, and are not cancelled
        self.last_progress: float | None = None  # None if no request waits
        threading.Thread(target=self._run, daemon=True, name="webpte constraints").start()

    def put(self, request: Generate) -> None:
        self._ids.add(request.id)
        self._waiting.put(request)

    def cancel(self, id: int) -> None:
        self._ids.discard(id)

    def _run(self) -> None:
        try:
            while True:
                request = self._waiting.get()
                self.last_progress = time.monotonic()
                if request.id in self._ids:
                    self._start(request)
                try:
                    self._ids.remove(request.id)
                except KeyError:  # cancelled, maybe before it was known to the model
                    self._cancel(request.id)
                self.last_progress = None
        except BaseException:
            logger.exception("the thread of constraints failed")
            os._exit(INTERNAL_ERROR)


LoadModel = Callable[[ModelFile, WorkerOptions, int, OnProgress, Send], ModelWorker]


class Worker:
    """The model of the process."""

    def __init__(self, pipe: Pipe, load: LoadModel = load_model) -> None:
        self._pipe = pipe
        self._load = load
        self._loading_progress: float | None = None  # None when loading is complete
        self._constrained = ConstrainedRequests(self._submit, self._cancel)
        self._model: ModelWorker | None = None  # None until it is loaded; requests arrive after that

    def run(self) -> int:
        """Load the model and compute until the input ends, which exits the process. Return 1 if loading fails."""
        start = self._pipe.receive()
        if not isinstance(start, Start):
            raise FormatError("the first message: expected start")
        self._loading_progress = time.monotonic()
        if start.options.memory is not None:
            limit_allocations(start.options.memory)
        reader = threading.Thread(target=self._read_messages, daemon=True, name="webpte messages")
        reader.start()
        try:
            model = self._load(start.model, start.options, start.max_queue_size, self._on_progress, self._pipe.send)
        except Error as error:
            self._pipe.send(LoadFailed(type(error).__name__, str(error), error.reason))
            return 1
        self._model, self._loading_progress = model, None
        self._pipe.send(Ready(model.info, allocated_bytes()))
        reader.join()
        return INTERNAL_ERROR  # not reached: the reader exits the process

    def _on_progress(self, event: Progress) -> None:
        self._loading_progress = time.monotonic()

    def _read_messages(self) -> None:
        try:
            while (message := self._pipe.receive()) is not None:
                self._handle(message)
        except OSError:
            pass  # as at the end
        except BaseException:
            logger.exception("messages cannot be read")
            os._exit(INTERNAL_ERROR)
        os._exit(0)  # other threads may be in the middle of a step that is not needed

    def _handle(self, message: ToWorker) -> None:
        if isinstance(message, Ping):
            self._pipe.send(Pong(self._busy_seconds(), self._stats()))
        elif isinstance(message, LimitMemory):
            self._pipe.send(MemoryUsed(limit_allocations(message.nbytes)))
        elif isinstance(message, Cancel):
            self._constrained.cancel(message.id)
            self._cancel(message.id)
        elif isinstance(message, Generate) and message.params.constraint is not None:
            self._constrained.put(message)
        elif isinstance(message, Generate | Embed | Transcribe):
            self._submit(message)
        else:
            raise FormatError("a running worker: expected a request, got start")

    def _submit(self, message: Computation) -> None:
        try:
            assert self._model is not None  # requests are sent after Ready
            self._model.submit(message)
        except Error as error:
            self._pipe.send(failed(message.id, error))
        except Exception as error:  # such as a schema too deep for a library: it fails its own request only
            logger.exception("request %d cannot be started", message.id)
            refused = InputError(
                f"the request cannot be started: {type(error).__name__}: {error}", code="request_failed"
            )
            self._pipe.send(failed(message.id, refused))

    def _cancel(self, id: int) -> None:
        if self._model is not None:
            self._model.cancel(id)

    def _busy_seconds(self) -> float:
        """Return the longest time that a busy thread has been without progress."""
        now = time.monotonic()
        times: Iterable[float | None] = (
            self._loading_progress,
            self._constrained.last_progress,
            self._model.last_progress if self._model is not None else None,
        )
        return now - min((moment for moment in times if moment is not None), default=now)

    def _stats(self) -> WorkerStats:
        stats = self._model.stats if self._model is not None else WorkerStats()
        return replace(stats, memory=allocated_bytes())


def own_pipe() -> Pipe:
    """Return stdin and stdout as a pipe, and give libraries others in their place: they may print."""
    sys.stdout.flush()
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return Pipe(open(reader, "rb"), open(writer, "wb"))


def main(load: LoadModel = load_model) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    ignore_stop_signals()
    return Worker(own_pipe(), load).run()


if __name__ == "__main__":  # under the module's own name, which is that of the logger
    from webpte.serve import worker

    sys.exit(worker.main())
