"""Define model families and checkpoints, and build the torch module of a checkpoint.

Each family is described in one file in families/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..llm.tokenizer_file import read_tokenizer
from ..llm.tools import ToolFormat
from .architecture import Architecture
from .config import FieldRule, Fields, is_token_id
from .suppress_output import suppress_logs
from .weights import GGUF, HUGGING_FACE, CheckpointWeights, TensorNames

if TYPE_CHECKING:
    import torch

# By a text that chat templates of the format have and others have not; None: a format that is not known here.
ToolFormats = Mapping[str, ToolFormat | None]

IN_TAGS = ToolFormat("object", "<tool_call>", "</tool_call>")
PARAMETERS_IN_TAGS = ToolFormat("parameters", "<tool_call>", "</tool_call>")


def tool_format(formats: ToolFormats, template: str | None) -> ToolFormat | None:
    """The format that the chat template is of: one family's models may write calls in several ways, or in none."""
    return next((found for sign, found in formats.items() if template is not None and sign in template), None)


def end_ids(where: str, told: Iterable[Any], names: Iterable[str], tokenizer: str) -> tuple[int, ...]:
    """Numbers of the tokens that end an answer: those that files tell, and those named here that the tokenizer has."""
    found: dict[int, None] = {}
    for value in told:
        for number in value if isinstance(value, list) else [value]:
            if not is_token_id(number):
                raise FormatError(f"{where}: eos_token_id has {number!r}; numbers of tokens are wanted")
            found[number] = None
    known = read_tokenizer(f"{where}: its tokenizer.json", tokenizer.encode()).get_vocab()
    return tuple(found | {known[name]: None for name in names if name in known})


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
    rules: Mapping[str, FieldRule] = field(default_factory=dict)  # of its own fields of config.json
    names: TensorNames = HUGGING_FACE
    gguf_names: TensorNames = GGUF
    build: Build = plain_decoder
    # Texts of tokens that end an answer, besides those that the files name; tokenizers that have them not do without.
    end_tokens: tuple[str, ...] = ()
    tool_formats: ToolFormats = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A model of a known family, and what a runner needs to speak its language."""

    family: Family
    architecture: Architecture
    weights: CheckpointWeights  # by the names of the module's parameters, read one at a time
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


def build_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """With its weights, as f32."""
    module = empty_module(source, max_context, max_tokens)
    fill(module, source)
    return module


def empty_module(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    """Its parameters take no memory yet: `fill` reads them."""
    return skeleton(source.family, source.architecture, max_context, max_tokens)


def fill(module: torch.nn.Module, source: Checkpoint, part: str = "") -> None:
    """Read the parameters whose names begin with `part`, such as `layers.3.`, one at a time, unless they are read."""
    import torch

    for name, parameter in list(module.named_parameters()):
        if not name.startswith(part) or not parameter.is_meta:
            continue
        weight = source.weights.read(name)
        if weight.shape != parameter.shape:
            raise FormatError(f"{name} is {list(weight.shape)} in the checkpoint, {list(parameter.shape)} in the model")
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, torch.nn.Parameter(weight, requires_grad=False))


def skeleton(family: Family, model: Architecture, max_context: int, max_tokens: int) -> torch.nn.Module:
    import torch

    with suppress_logs(), torch.device("meta"):
        module = family.build(model, max_context, max_tokens).eval()
    absent = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    assert not absent, f"buffers without values: {absent}; make them with device='cpu'"
    return module


def shapes_of(family: Family, model: Architecture) -> dict[str, tuple[int, ...]]:
    """Of the parameters, by name."""
    return {name: tuple(p.shape) for name, p in skeleton(family, model, 2, 2).named_parameters()}
