"""What a family of models is to the exporter; each is described in a file of its own in families/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..llm.tools import ToolFormat
from .architecture import Architecture
from .chat_format import ToolFormats, tool_format
from .fields import Fields, Neutral
from .places import GGUF, HUGGING_FACE, Names, Weights

if TYPE_CHECKING:
    import torch

# (what it computes, context, tokens of a call) -> the module, parameters on the device of the caller's choice
Build = Callable[[Architecture, int, int], "torch.nn.Module"]


def plain_decoder(model: Architecture, max_context: int, max_tokens: int) -> torch.nn.Module:
    from .modules.decoder import Decoder

    return Decoder(model.with_rows(max_context, max_tokens), max_context)


@dataclass(frozen=True)
class Family:
    """One kind of model: how its fields are read, where its tensors are, how it ends an answer."""

    name: str  # that people know
    models: str  # some of them
    special: str  # what it does that a Llama does not
    model_types: tuple[str, ...]  # of config.json
    classes: tuple[str, ...]  # of `architectures` there
    config: Callable[[Fields], Architecture]
    gguf_types: tuple[str, ...] = ()  # of general.architecture in GGUF files; none: the format has no name for it
    gguf: Callable[[Fields], Architecture] | None = None
    rules: Mapping[str, Neutral] = field(default_factory=dict)  # of its own fields of config.json
    names: Names = HUGGING_FACE
    gguf_names: Names = GGUF
    build: Build = plain_decoder
    # Texts of tokens that end an answer, besides those that the files name; tokenizers that have them not do without.
    end_tokens: tuple[str, ...] = ()
    tool_formats: ToolFormats = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A model of a known family, and what a runner needs to speak its language."""

    family: Family
    architecture: Architecture
    weights: Weights  # by the names of the module's parameters, read one at a time
    tokenizer: str  # the text of tokenizer.json
    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    # As in tokenizer_config.json: texts by name, such as bos_token, and with add_bos_token one before every text.
    special_tokens: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def tool_format(self) -> ToolFormat | None:
        """How it writes calls of tools, as its chat template has it."""
        return tool_format(self.family.tool_formats, self.chat_template)
