"""Read the config files of a Moonshine checkpoint, whose encoder takes samples of any number up to 30 seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .config import FieldRule, Fields, read_rope
from .hugging_face import FIELD_RULES, IGNORED_FIELDS
from .recipe import EMBEDDING, HEAD
from .speech_model import (
    Convolution,
    SpeechConfig,
    SpeechModel,
    features_of,
    generation_of,
    generation_task,
    refuse_other_features,
)

MAX_SECONDS = 30  # of a piece of audio, as the longest that Moonshine was trained with
ROTATED_SHARE = 0.9  # of each head, unless config.json has another

_MODEL_RULES = {
    **FIELD_RULES,
    "is_encoder_decoder": FieldRule((True,), "no encoder"),
    "encoder_hidden_act": FieldRule(("gelu",), "an activation other than gelu"),
    "decoder_hidden_act": FieldRule(("silu",), "an activation other than silu"),
    "architectures": FieldRule((["MoonshineForConditionalGeneration"],), "a head of another task"),
    "tie_word_embeddings": FieldRule((True,), "a head with weights of its own"),
}
# Padding of heads is for kernels, and changes no result. The ids of tokens are those of generation_config.json.
_IGNORED = frozenset(("pad_head_dim_to_multiple_of", "bos_token_id", "eos_token_id", "ff_mult"))
_SAMPLE_RULES = {
    "feature_extractor_type": FieldRule(("Wav2Vec2FeatureExtractor",), "an input other than samples"),
    "feature_size": FieldRule((1,), "several channels"),
}
# Names of a layer's parts in Whisper, and in Moonshine.
_PARTS = {
    "encoder": {"self_attn_layer_norm": "input_layernorm", "final_layer_norm": "post_attention_layernorm"},
    "decoder": {
        "self_attn_layer_norm": "input_layernorm",
        "encoder_attn_layer_norm": "post_attention_layernorm",
        "final_layer_norm": "final_layernorm",
    },
}
_OTHER_PARTS = {"out_proj": "o_proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}


def read_moonshine_config(folder: Path, fields: Fields) -> SpeechConfig:
    """Return the sizes and the task of a Moonshine. `fields` are those of config.json."""
    dim, hidden = fields.integer("hidden_size", 288), fields.integer("intermediate_size", 1152)
    heads = {side: fields.integer(f"{side}_num_attention_heads", 8) for side in ("encoder", "decoder")}
    for side, count in heads.items():
        if fields.integer(f"{side}_num_key_value_heads", count) != count:
            fields.refuse(f"{side}_num_key_value_heads", "heads share keys and values")
    rate = features_of(folder).integer("sampling_rate", 16000)
    model = SpeechModel(
        name="Moonshine",
        vocabulary=fields.integer("vocab_size", 32768),
        dim=dim,
        encoder_layers=fields.layers("encoder_num_hidden_layers", 6),
        decoder_layers=fields.layers("decoder_num_hidden_layers", 6),
        encoder_heads=heads["encoder"],
        decoder_heads=heads["decoder"],
        encoder_hidden=hidden,
        decoder_hidden=hidden,
        convolutions=(
            Convolution(1, dim, 127, 64, 0, False, "tanh"),
            Convolution(dim, 2 * dim, 7, 3, 0, True, "gelu"),
            Convolution(2 * dim, dim, 3, 2, 0, True, "gelu"),
        ),
        frames=MAX_SECONDS * rate,
        target_positions=fields.integer("max_position_embeddings", 512),
        # transformers computes one table, with the width of the decoder's heads.
        rope=read_rope(fields, dim // heads["decoder"], partial=True, share=ROTATED_SHARE),
        gated=True,
        biased=False,
        first_norm=True,
    )
    if heads["encoder"] != heads["decoder"]:
        fields.refuse("encoder_num_attention_heads", "heads of another width than the decoder's")
    fields.refuse_unread((IGNORED_FIELDS | _IGNORED).__contains__, _MODEL_RULES)
    stored = {name: _stored_name(name) for name in model.shapes()}
    return SpeechConfig(model, _task(folder, model, rate), stored)


def _task(folder: Path, model: SpeechModel, rate: int) -> dict[str, Any]:
    features = features_of(folder)
    features.get("sampling_rate")
    refuse_other_features(features, frozenset(), _SAMPLE_RULES)
    fields = generation_of(folder)
    longest = fields.integer("max_length", model.target_positions)
    return {
        "rate": rate,
        "window": model.frames,
        "convolutions": [number for each in model.convolutions for number in (each.kernel, each.stride)],
        "positions": model.target_positions,
        "max_length": max(1, longest - 1),  # transformers counts the start token
        "languages": {},
        "language_names": {},
        "tasks": {},
        **generation_task(fields, frozenset(), {}),
    }


def _stored_name(name: str) -> str:
    """Return the checkpoint's name of a parameter."""
    if name in (f"{EMBEDDING}.weight", f"{HEAD}.weight"):
        return "model.decoder.embed_tokens.weight"
    if name == "model.decoder.layer_norm.weight":
        return "model.decoder.norm.weight"
    parts = name.split(".")
    if parts[2] != "layers":
        return name
    renamed = {**_PARTS[parts[1]], **_OTHER_PARTS}
    return ".".join(renamed.get(part, part) for part in parts)
