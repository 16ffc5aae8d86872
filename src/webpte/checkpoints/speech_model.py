"""What a speech model is: an encoder of audio, a decoder that attends to it, and the settings that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..json_files import read_json_object
from .architecture import Rope
from .config import FieldRule, Fields
from .recipe import EMBEDDING, HEAD
from .shapes import Shapes

# Fields of generation_config.json without effect on greedy decoding.
_IGNORED_IN_GENERATION = frozenset((
    "_from_model_config", "transformers_version", "pad_token_id", "bos_token_id", "use_cache", "temperature", "top_k",
    "top_p", "min_length", "length_penalty", "early_stopping", "output_attentions", "output_hidden_states",
    "output_scores", "return_dict_in_generate", "typical_p", "min_p", "epsilon_cutoff", "eta_cutoff",
    "remove_invalid_values", "num_return_sequences", "diversity_penalty", "cache_implementation",
))  # fmt: skip
_GENERATION_RULES = {
    "do_sample": FieldRule((False,), "sampling; decoding here is greedy"),
    "num_beams": FieldRule((1,), "beam search; decoding here is greedy"),
    "num_beam_groups": FieldRule((1,), "beam search; decoding here is greedy"),
    "repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "encoder_repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
    "encoder_no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
}
# Fields of preprocessor_config.json that follow from others, or concern batches.
_IGNORED_IN_FEATURES = frozenset(("padding_side", "return_attention_mask", "processor_class"))
_FEATURE_RULES = {
    "do_normalize": FieldRule((False,), "the audio is normalized"),
    "padding_value": FieldRule((0, 0.0), "padding other than silence"),
}


class Convolution(NamedTuple):
    """A convolution before the encoder's layers, over time."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    biased: bool
    activation: str

    def length(self, frames: int) -> int:
        """Return the number of outputs."""
        return (frames + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class SpeechModel:
    """The sizes of a speech model. Its parameters are named as in Whisper."""

    name: str
    vocabulary: int
    dim: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_hidden: int
    decoder_hidden: int
    convolutions: tuple[Convolution, ...]
    frames: int  # of the encoder's input: of a spectrogram, or samples
    target_positions: int  # of the decoder
    rope: Rope | None = None  # None: positions are learned, and every input has all frames
    gated: bool = False  # the feed-forward of the decoder
    biased: bool = True  # attention and norms
    first_norm: bool = False  # of all values together, after the first convolution
    scaled_embeddings: bool = False  # by the root of `dim`

    @property
    def source_positions(self) -> int:
        """Return the largest number of rows that the encoder returns."""
        frames = self.frames
        for convolution in self.convolutions:
            frames = convolution.length(frames)
        return frames

    def shapes(self) -> Shapes:
        """Return the shapes of the parameters by name."""
        dim = self.dim
        shapes: Shapes = {f"{EMBEDDING}.weight": (self.vocabulary, dim), f"{HEAD}.weight": (self.vocabulary, dim)}
        for number, each in enumerate(self.convolutions, 1):
            name = f"model.encoder.conv{number}"
            shapes[f"{name}.weight"] = (each.outputs, each.inputs, each.kernel)
            shapes |= {f"{name}.bias": (each.outputs,)} if each.biased else {}
        if self.first_norm:
            shapes |= {f"model.encoder.groupnorm.{kind}": (dim,) for kind in ("weight", "bias")}
        sides = (
            ("encoder", self.encoder_layers, self.encoder_hidden, self.source_positions, ("self_attn",)),
            ("decoder", self.decoder_layers, self.decoder_hidden, self.target_positions, ("self_attn", "encoder_attn")),
        )
        for side, layers, hidden, positions, attentions in sides:
            if self.rope is None:
                shapes[f"model.{side}.embed_positions.weight"] = (positions, dim)
            for number in range(layers):
                layer = f"model.{side}.layers.{number}"
                for attention in attentions:
                    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        shapes[f"{layer}.{attention}.{part}.weight"] = (dim, dim)
                        if self.biased and part != "k_proj":
                            shapes[f"{layer}.{attention}.{part}.bias"] = (dim,)
                    shapes |= self._norm(f"{layer}.{attention}_layer_norm")
                rows = 2 * hidden if self.gated and side == "decoder" else hidden
                shapes |= {f"{layer}.fc1.weight": (rows, dim), f"{layer}.fc1.bias": (rows,)}
                shapes |= {f"{layer}.fc2.weight": (dim, hidden), f"{layer}.fc2.bias": (dim,)}
                shapes |= self._norm(f"{layer}.final_layer_norm")
            shapes |= self._norm(f"model.{side}.layer_norm")
        return shapes

    def _norm(self, name: str) -> Shapes:
        return {f"{name}.{kind}": (self.dim,) for kind in (("weight", "bias") if self.biased else ("weight",))}


class SpeechConfig(NamedTuple):
    """What the JSON files of a checkpoint say."""

    model: SpeechModel
    task: dict[str, Any]  # the fields of the task file
    stored_names: Mapping[str, str]  # of parameters whose name in the checkpoint differs


def features_of(folder: Path) -> Fields:
    path = folder / "preprocessor_config.json"
    return Fields(str(path), read_json_object(path))


def refuse_other_features(fields: Fields, ignored: frozenset[str], rules: Mapping[str, FieldRule]) -> None:
    """Raise an error that lists fields of the features that were not read and have an effect."""
    fields.refuse_unread((_IGNORED_IN_FEATURES | ignored).__contains__, {**_FEATURE_RULES, **rules})


def generation_of(folder: Path) -> Fields:
    path = folder / "generation_config.json"
    fields = Fields(str(path), read_json_object(path))
    fields.require("decoder_start_token_id", "eos_token_id")
    return fields


def generation_task(fields: Fields, ignored: frozenset[str], rules: Mapping[str, FieldRule]) -> dict[str, Any]:
    """Return the special tokens of a model. Raise an error that lists fields that were not read and have an effect."""
    end = fields.get("eos_token_id")
    if not isinstance(end, int):
        raise UnsupportedError(
            items=["eos_token_id"],
            argument=f"{fields.where}: eos_token_id",
            expected="one token id",
            got=end,
            code="eos_token_id",
        )
    task = {
        "start_token": fields.get("decoder_start_token_id"),
        "end_token": end,
        "suppress_tokens": fields.get("suppress_tokens", []),
        "begin_suppress_tokens": fields.get("begin_suppress_tokens", []),
    }
    fields.refuse_unread((_IGNORED_IN_GENERATION | ignored).__contains__, {**_GENERATION_RULES, **rules})
    return task
