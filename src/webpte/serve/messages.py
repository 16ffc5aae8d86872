"""Messages between the server and its worker process: one line of JSON each, declared here and validated by pydantic.

The server and the worker are of the same version, so a message that does not match its declaration is a bug or a
corrupted pipe. Both sides then fail with `FormatError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ..errors import FormatError, InputError
from ..llm.context import ContextLimit
from ..llm.engine.output import Piece
from ..llm.image_prompts import ImageEncoder
from ..llm.options import EngineOptions, KvCache
from ..llm.settings import SamplingParams

MAX_MESSAGE_BYTES = 64 << 20
Id = Annotated[int, Field(ge=0)]  # of a request
Count = Annotated[int, Field(ge=0)]
SpeechTask = Literal["transcribe", "translate"]
ModelState = Literal["unloaded", "loading", "loaded", "failed"]
ModelKind = Literal["language", "encoder", "reranker", "speech"]


@dataclass(frozen=True)
class ModelFile:
    """A model to load, and the name that requests use for it."""

    name: str
    path: str
    adapters: dict[str, str] = field(default_factory=dict)  # folders by name, of a language model


@dataclass(frozen=True)
class WorkerOptions:
    """How a model is loaded. Most fields are those of `LLM.load`."""

    max_sequences: Annotated[int, Field(ge=1)] = EngineOptions.max_sequences
    kv_cache: KvCache = EngineOptions.kv_cache
    memory: int | None = None  # bytes on the device
    prefix_cache: Count = EngineOptions.prefix_cache  # bytes for prefixes of finished requests, beyond the slots
    warmup: bool = False  # warm up before the first request: see `LLM.warmup`


@dataclass(frozen=True)
class TextFiles:
    """What the server needs to tokenize for a language model and to render its chat template."""

    tokenizer: str  # a path
    tokenizer_config: str | None
    template: str | None
    eos_ids: tuple[int, ...]
    bos_id: int | None
    stop_tokens: tuple[int, ...]
    sampling: dict[str, int | float] = field(default_factory=dict)  # defaults of the settings of responses
    images: ImageEncoder | None = None  # of a model that reads images
    digest: str = ""  # of tokenizer, configuration and template, as the worker has read them


def text_digest(tokenizer: str, tokenizer_config: str | None, template: str | None) -> str:
    """Return a digest of what turns texts into tokens: two files and a template."""
    digest = hashlib.sha256()
    for path in (tokenizer, tokenizer_config):
        content = Path(path).read_bytes() if path is not None else b""
        digest.update(hashlib.sha256(content).digest())
    digest.update((template or "").encode("utf-8", "replace"))
    return digest.hexdigest()


@dataclass(frozen=True)
class ModelInfo:
    """A model that the worker has loaded."""

    name: str
    path: str
    kind: ModelKind
    context: Count  # tokens of a sequence, or of a text; 0 for speech models
    vocabulary: Count  # of a language model; 0 for others
    dimensions: Count  # of the vectors of an encoder; 1 for a reranker; 0 for others
    max_batch: Count  # sequences, or texts of a call
    fingerprint: str
    created: int  # modification time of the file, in seconds since 1970
    text: TextFiles | None = None  # of a language model
    context_limit: ContextLimit | None = None  # of a language model
    rate: Count = 0  # samples per second of a speech model; 0 for others
    slot_bytes: Count = 0  # on the device, of each sequence of a language model
    adapters: tuple[str, ...] = ()  # of a language model
    adapter: str | None = None  # that requests for the model have, whose name then ends with it

    @property
    def version(self) -> str:
        """Return what a prompt was tokenized for: the program, and its tokenizer and template."""
        return f"{self.fingerprint} {self.text.digest if self.text is not None else ''}"

    def with_adapters(self) -> list[ModelInfo]:
        """Return the model with each of its adapters. The names are MODEL:ADAPTER."""
        names = ((adapter, f"{self.name}:{adapter}") for adapter in self.adapters)
        return [replace(self, name=name, adapters=(), adapter=adapter) for adapter, name in names]

    @property
    def base(self) -> str:
        """Return the name of the model without its adapter, as the worker knows it."""
        return self.name if self.adapter is None else self.name.removesuffix(f":{self.adapter}")


@dataclass(frozen=True)
class WorkerStats:
    """Counters of a worker since its start, and the number of its cache slots."""

    slots: Count = 0
    steps: Count = 0
    tokens: Count = 0  # of all steps
    device_losses: Count = 0
    memory: Count = 0  # bytes on the device


@dataclass(frozen=True)
class TokenDelta:
    """What a step added to one request."""

    id: Id
    cached_tokens: Count | None  # of the prompt; sent once, when the request gets its slot
    pieces: tuple[Piece, ...]
    finish_reason: str | None
    stop_string: str | None = None  # that ended the text


@dataclass(frozen=True)
class StoredTile:
    """A tile of an image in a prompt. Its pixels are in a file, which the server removes when the request ends."""

    digest: str  # of the pixels, in hexadecimal digits
    rows: Annotated[int, Field(ge=1)]  # of embeddings
    path: str  # of a file with the pixels of an image's tiles, as bytes
    offset: Count  # of this tile
    shape: tuple[Count, ...]
    ends_image: bool  # no further tile of the image follows


PromptItem = Count | StoredTile


def prompt_length(items: Sequence[PromptItem]) -> int:
    """Return the number of tokens and rows of embeddings of a prompt."""
    return sum(1 if isinstance(each, int) else each.rows for each in items)


# -- from the server to the worker -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """The first message: load this model."""

    model: ModelFile
    options: WorkerOptions
    max_queue_size: Count
    type: Literal["start"] = field(default="start", kw_only=True)


@dataclass(frozen=True)
class Generate:
    """Generate a response, or its rest: `resumed` are the tokens that an earlier worker has already produced."""

    id: Id
    tokens: tuple[PromptItem, ...]
    params: SamplingParams
    resumed: tuple[Count, ...] = ()
    domain: str = ""  # of the requests that share cached prefixes
    type: Literal["generate"] = field(default="generate", kw_only=True)


@dataclass(frozen=True)
class Embed:
    """Compute a vector for each row of tokens."""

    id: Id
    rows: tuple[tuple[Count, ...], ...]
    type: Literal["embed"] = field(default="embed", kw_only=True)


@dataclass(frozen=True)
class Transcribe:
    """Turn the samples in a file, little-endian f32 at the model's rate, into text."""

    id: Id
    samples: str  # a path; the server removes the file when the request ends
    language: str | None
    task: SpeechTask
    timestamps: bool
    type: Literal["transcribe"] = field(default="transcribe", kw_only=True)


@dataclass(frozen=True)
class Cancel:
    """Stop working for a request."""

    id: Id
    type: Literal["cancel"] = field(default="cancel", kw_only=True)


@dataclass(frozen=True)
class LimitMemory:
    """Let the model take this many bytes on the device, or what it takes now if that is more. The worker answers with
    `MemoryUsed`."""

    nbytes: Count
    type: Literal["limit_memory"] = field(default="limit_memory", kw_only=True)


@dataclass(frozen=True)
class Ping:
    """Ask for a `Pong`."""

    type: Literal["ping"] = field(default="ping", kw_only=True)


# -- from the worker to the server -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    """The model is loaded."""

    model: ModelInfo
    memory: Count = 0  # bytes on the device
    type: Literal["ready"] = field(default="ready", kw_only=True)


@dataclass(frozen=True)
class LoadFailed:
    """A model cannot be loaded. Another attempt would fail in the same way."""

    error: str  # the name of the class
    message: str
    reason: str = ""
    type: Literal["load_failed"] = field(default="load_failed", kw_only=True)


@dataclass(frozen=True)
class MemoryUsed:
    """The bytes that the worker has allocated on the device."""

    nbytes: Count
    type: Literal["memory_used"] = field(default="memory_used", kw_only=True)


@dataclass(frozen=True)
class StepOutput:
    """Everything that one step produced. It is one message, so no step is ever half delivered."""

    deltas: tuple[TokenDelta, ...]
    type: Literal["step_output"] = field(default="step_output", kw_only=True)


@dataclass(frozen=True)
class Vectors:
    """The vectors of some rows of an `Embed`."""

    id: Id
    rows: tuple[Count, ...]
    dimensions: Annotated[int, Field(ge=1)]
    data: str  # little-endian f32, row after row, in base64
    type: Literal["vectors"] = field(default="vectors", kw_only=True)


@dataclass(frozen=True)
class SpokenSegment:
    """A part of a transcript between two times, in seconds."""

    start: float
    end: float
    text: str
    tokens: tuple[Count, ...]


@dataclass(frozen=True)
class TranscribedText:
    """The text of a `Transcribe` so far."""

    id: Id
    text: str
    type: Literal["transcribed_text"] = field(default="transcribed_text", kw_only=True)


@dataclass(frozen=True)
class Transcribed:
    """The transcript of a `Transcribe`."""

    id: Id
    text: str
    language: str | None
    seconds: float  # of audio
    segments: tuple[SpokenSegment, ...]  # without timestamps, none
    type: Literal["transcribed"] = field(default="transcribed", kw_only=True)


@dataclass(frozen=True)
class Failed:
    """A request ended with an error."""

    id: Id
    error: str  # the name of the class
    message: str
    reason: str = ""
    type: Literal["failed"] = field(default="failed", kw_only=True)


@dataclass(frozen=True)
class Pong:
    """The worker's reader is alive; `busy_seconds` is the time since its computing threads last made progress."""

    busy_seconds: float  # 0 when there is nothing to do
    stats: WorkerStats
    type: Literal["pong"] = field(default="pong", kw_only=True)


Computation = Generate | Embed | Transcribe
ToWorker = Start | Computation | Cancel | LimitMemory | Ping
Computed = StepOutput | Vectors | TranscribedText | Transcribed | Failed
FromWorker = Ready | LoadFailed | Computed | MemoryUsed | Pong
_CONFIG = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="constants")
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="type")], config=_CONFIG)
FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(Annotated[FromWorker, Field(discriminator="type")], config=_CONFIG)


def encode(message: ToWorker | FromWorker) -> bytes:
    """Return the line of a message, with its newline."""
    line = TO_WORKER.dump_json(message) if isinstance(message, ToWorker) else FROM_WORKER.dump_json(message)
    line += b"\n"
    if len(line) > MAX_MESSAGE_BYTES:
        raise InputError(
            f"{message.type}: the message has {len(line):,} bytes; the limit is {MAX_MESSAGE_BYTES:,}",
            code="message_too_large",
        )
    return line


def decode_to_worker(line: bytes) -> ToWorker:
    """Return the message that the server sent."""
    message: ToWorker = _decode(TO_WORKER, line)
    return message


def decode_from_worker(line: bytes) -> FromWorker:
    """Return the message that the worker sent."""
    message: FromWorker = _decode(FROM_WORKER, line)
    return message


def _decode(adapter: TypeAdapter[Any], line: bytes) -> Any:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise FormatError(
            f"a message of {len(line):,} bytes is not valid: {where}: {first['msg']}", code="invalid_message"
        ) from None
