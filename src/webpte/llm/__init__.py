"""Language models: prompts in, text out, over any program that ExecuTorch's Llama export made."""

from typing import TYPE_CHECKING

from ..deferred import lazy_exports
from ..errors import ConstraintError, ContextFullError, LogitsError, QueueFullError, StaleGenerationError

if TYPE_CHECKING:
    from .chat import Chat
    from .engine.output import Piece
    from .generation import Generation, Usage
    from .model import LLM
    from .sequence import Sequence
    from .settings import GenerateSettings
    from .tokenizer import Tokenizer
    from .tool_shapes import ToolCall, ToolFormat
    from .tools import parse_tool_calls

__all__ = [
    "LLM",
    "Chat",
    "ConstraintError",
    "ContextFullError",
    "GenerateSettings",
    "Generation",
    "LogitsError",
    "Piece",
    "QueueFullError",
    "Sequence",
    "StaleGenerationError",
    "Tokenizer",
    "ToolCall",
    "ToolFormat",
    "Usage",
    "parse_tool_calls",
]

# A server's process uses tokenizers, templates and settings, and leaves the GPU to another one: it must not load wgpu.
_HOMES = {
    "Chat": "chat",
    "LLM": "model",
    "GenerateSettings": "settings",
    "Generation": "generation",
    "Piece": "engine.output",
    "Sequence": "sequence",
    "Tokenizer": "tokenizer",
    "ToolCall": "tool_shapes",
    "ToolFormat": "tool_shapes",
    "Usage": "generation",
    "parse_tool_calls": "tools",
}

if not TYPE_CHECKING:  # type checkers would take it for a promise that any name is there
    __getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
