"""Define model families and checkpoints.

Each family is described in one file in families/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import FormatError
from ..llm.tokenizer_file import read_tokenizer
from ..llm.tool_shapes import ToolFormat
from .architecture import Architecture
from .config import FieldRule, Fields, is_token_id
from .vision_tower import Vision
from .weights import GGUF, HUGGING_FACE, CheckpointWeights, TensorNames

# A string that only chat templates of the format contain -> the format; None: a format that is not supported.
ToolFormats = Mapping[str, ToolFormat | None]

IN_TAGS = ToolFormat("object", "<tool_call>", "</tool_call>")
NAMED_IN_BRACKETS = ToolFormat("named", "[TOOL_CALLS]", arguments="[ARGS]")
PARAMETERS_IN_TAGS = ToolFormat("parameters", "<tool_call>", "</tool_call>")


def tool_format(formats: ToolFormats, template: str | None) -> ToolFormat | None:
    """Return the tool-call format of a chat template. Models of one family may have different formats, or none."""
    return next((known for sign, known in formats.items() if template is not None and sign in template), None)


def end_ids(where: str, values: Iterable[Any], names: Iterable[str], tokenizer: str) -> tuple[int, ...]:
    """Return the ids of the tokens that end an answer: `values` of eos_token_id, and `names` in the vocabulary."""
    ids: dict[int, None] = {}
    for value in values:
        for number in value if isinstance(value, list) else [value]:
            if not is_token_id(number):
                raise FormatError(
                    argument=f"{where}: eos_token_id", expected="token ids", got=repr(number), code="eos_token_id"
                )
            ids[number] = None
    vocabulary = read_tokenizer(f"{where}: its tokenizer.json", tokenizer.encode()).get_vocab()
    return tuple(ids | {vocabulary[name]: None for name in names if name in vocabulary})


@dataclass(frozen=True)
class Family:
    """A kind of model: how its fields are read, the names of its tensors, and the tokens that end an answer."""

    name: str  # for documents and messages
    models: str  # examples, for documents
    special: str  # differences from Llama, for documents
    model_types: tuple[str, ...]  # values of `model_type` in config.json
    classes: tuple[str, ...]  # values of `architectures` in config.json
    config: Callable[[Fields], Architecture]
    gguf_types: tuple[
        str, ...
    ] = ()  # values of general.architecture in GGUF files; none: the format does not support it
    gguf: Callable[[Fields], Architecture] | None = None
    rules: Mapping[str, FieldRule] = field(default_factory=dict)  # of fields of config.json, in place of FIELD_RULES
    names: TensorNames = HUGGING_FACE
    stacked_names: TensorNames | None = None  # of files in which the matrices of all experts are one tensor
    gguf_names: TensorNames = GGUF
    # Tensors with a number that is the same in every model, by their names with "*" for a layer.
    fixed_tensors: Mapping[str, float] = field(default_factory=dict)
    # Tokens that end an answer, besides those of eos_token_id. Tokens that the tokenizer does not have are ignored.
    end_tokens: tuple[str, ...] = ()
    tool_formats: ToolFormats = field(default_factory=dict)

    def names_for(self, tensors: Iterable[str]) -> TensorNames:
        """Return the names that a folder with these tensors uses."""
        if self.stacked_names is not None and any(name.endswith(".experts.gate_up_proj") for name in tensors):
            return self.stacked_names
        return self.names


@dataclass(frozen=True)
class Checkpoint:
    """A model of a known family, with its tokenizer and chat template."""

    family: Family
    architecture: Architecture
    weights: CheckpointWeights  # read one at a time, by the names of the module's parameters
    tokenizer: str  # the text of tokenizer.json
    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    # As in tokenizer_config.json: strings by name, such as bos_token. With add_bos_token, every text begins with it.
    special_tokens: Mapping[str, str | bool] = field(default_factory=dict)
    generation_config: Mapping[str, Any] = field(default_factory=dict)  # sampling defaults, as transformers names them
    vision: Vision | None = None  # the image encoder
    context: int | None = None  # tokens that the model was trained for; None if the checkpoint does not state them

    @property
    def tool_format(self) -> ToolFormat | None:
        """Return the tool-call format of its chat template."""
        return tool_format(self.family.tool_formats, self.chat_template)
