"""Options of a language model's engine: types, defaults, limits and descriptions, declared once.

The arguments of `LLM`, the command line, the server's configuration and the options of its worker take them from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from ..runtime.checks import check_bool, check_choice
from .settings import LARGEST, integer

KvCache = Literal["auto", "f32", "f16", "int8"]
MAX_SEQUENCES_LIMIT = 4096
MAX_PREFIX_CACHE_BYTES = 1 << 50


@dataclass(frozen=True)
class EngineOptions:
    """How the engine of a language model computes. Values are checked; NumPy's integers become integers."""

    kv_cache: KvCache = field(
        default="auto",
        metadata={
            "help": "dtype of the KV cache; f16 halves its memory, int8 about halves it again; "
            "auto is f16 on GPUs that have it"
        },
    )
    recover: bool = field(default=False, metadata={"help": "resume responses on another device if theirs is lost"})
    max_sequences: int = field(default=16, metadata={"help": "maximum responses generated at once, as memory allows"})
    max_queue_size: int = field(default=1024, metadata={"help": "maximum requests that wait"})
    prefix_cache: int = field(default=0, metadata={"help": "bytes for cached prefixes beyond the slots"})

    def __post_init__(self) -> None:
        check_choice(self.kv_cache, "kv_cache", get_args(KvCache))
        check_bool(self.recover, "recover")
        for name, low, high in (
            ("max_sequences", 1, MAX_SEQUENCES_LIMIT),
            ("max_queue_size", 1, LARGEST),
            ("prefix_cache", 0, MAX_PREFIX_CACHE_BYTES),
        ):
            object.__setattr__(self, name, integer(name, getattr(self, name), low, high))


ENGINE_HELP: dict[str, str] = {option.name: option.metadata["help"] for option in fields(EngineOptions)}
