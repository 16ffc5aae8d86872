"""What the server and its worker say to each other, each a frozen dataclass that a frame carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..errors import FormatError
from .codec import from_json, to_json

# -- what both name -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFile:
    """A model to load, and the name by which it is asked for."""

    name: str
    path: str


@dataclass(frozen=True)
class Options:
    """How models are loaded: see `LLM.load`."""

    max_sequences: int = 16  # answers of a model that are computed at once
    kv_cache: str = "f32"
    memory: int | None = None  # bytes on the device, of all models together
    prefix_cache: int = 0  # bytes for beginnings that answers leave behind, beyond the slots of those at once
    prepare: bool = False  # before the first request: see `LLM.prepare`


@dataclass(frozen=True)
class Language:
    """What a language model's files say of text: enough to make tokens of it in another process."""

    tokenizer: str  # a file
    tokenizer_config: str | None
    template: str | None
    eos_ids: tuple[int, ...]
    bos_id: int | None
    stop_tokens: tuple[int, ...]


@dataclass(frozen=True)
class Served:
    """A model that a worker has loaded."""

    name: str
    path: str
    kind: str  # "language" or "encoder"
    context: int  # tokens of a sequence, or of a text
    vocabulary: int  # 0 for encoders, whose tokenizer knows
    dimensions: int  # of vectors; 0 for language models
    at_once: int  # answers, or texts in a call
    fingerprint: str
    created: int  # when the file was written, in seconds since 1970
    language: Language | None = None


@dataclass(frozen=True)
class Piece:
    """Text that became ready with a token. Empty while a character or a possible stop string is unfinished."""

    text: str
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Work:
    """What a worker has done since it began, and what it does now."""

    slots: int = 0
    passes: int = 0
    rows: int = 0  # of all passes
    device_losses: int = 0


# -- to the worker ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """The first of all: load these."""

    models: tuple[ModelFile, ...]
    options: Options
    most_waiting: int


@dataclass(frozen=True)
class Generate:
    """An answer, or the rest of one: `given` are the tokens that another worker has given already."""

    number: int
    model: str
    tokens: tuple[int, ...]
    settings: Mapping[str, Any]
    given: tuple[int, ...] = ()


@dataclass(frozen=True)
class Embed:
    """A vector for each row of tokens."""

    number: int
    model: str
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Cancel:
    """Nobody wants the rest."""

    number: int


@dataclass(frozen=True)
class Ping:
    number: int


# -- from the worker --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready:
    models: tuple[Served, ...]


@dataclass(frozen=True)
class Refused:
    """A model cannot be loaded, which trying again would not change."""

    kind: str  # of error
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Given:
    """What a pass has brought one answer."""

    number: int
    cached: int | None  # tokens of the prompt that were cached, once: it has got a slot
    pieces: tuple[Piece, ...]
    reason: str | None  # why it is over


@dataclass(frozen=True)
class Tick:
    """What a pass has brought, all of it: so an answer is never cut within what a pass gave."""

    given: tuple[Given, ...]


@dataclass(frozen=True)
class Vectors:
    """Of some rows of an Embed: f32 in base64, one after the other."""

    number: int
    rows: tuple[int, ...]
    dimensions: int
    data: str


@dataclass(frozen=True)
class Failed:
    """An answer or its vectors ended with an error."""

    number: int
    kind: str
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Pong:
    number: int
    busy_seconds: float  # since the last sign of progress; 0 if there is nothing to do
    work: Work


ToWorker = Start | Generate | Embed | Cancel | Ping
FromWorker = Ready | Refused | Tick | Vectors | Failed | Pong
Message = ToWorker | FromWorker
_KINDS = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """As a frame carries it: the name of its kind, and its fields."""
    return to_json([type(message).__name__, message])


def decode(data: bytes) -> Message:
    """What a frame carries; FormatError for anything that is no message."""
    try:
        found = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a frame of {len(data)} bytes is not JSON: {error}", code="invalid_json") from error
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str) or found[0] not in _KINDS:
        raise FormatError(f"a frame of {len(data)} bytes holds none of {', '.join(_KINDS)}", code="unknown_message")
    message: Message = from_json(_KINDS[found[0]], found[1])
    return message
