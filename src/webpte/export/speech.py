"""Export Whisper checkpoints as programs for `webpte.speech.Transcriber`.

The encoder and the decoder are torch modules with the weights of transformers' model and the attention of ExecuTorch,
so that both are delegated completely. `et_vk.sdpa` is the fused attention of ExecuTorch's Vulkan backend. The decoder's
self-attention is `update_cache` and `custom_sdpa`, which a pattern of that backend fuses into one op with a cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..builder.options import check_target
from ..builder.report import QuantizationReport, write_quality
from ..checkpoints.checkpoint import check_source
from ..checkpoints.config import FieldRule, Fields
from ..checkpoints.hugging_face import read_json
from ..checkpoints.recipe import INT8, check_quantizer, linear_recipe
from ..errors import FormatError, InputError, UnsupportedError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..suppress_output import suppress_logs
from ..task_file import write_task
from .lowering import LOWERING_STAGES, MethodSpec, Steps, lower_methods, require_executorch
from .pretrained import load_pretrained, read_config, require_transformers
from .quantize import apply_recipe, linear_shapes_of

if TYPE_CHECKING:
    import torch


def encode_module(model: Any) -> torch.nn.Module:
    """Return a module from a spectrogram (1, bands, 2 S) to hidden states (1, S, C), keys and values (1, H, S, D)."""
    import torch

    class Encode(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model.model.encoder
            self.cross = torch.nn.ModuleList([layer.encoder_attn for layer in model.model.decoder.layers])

        def forward(self, mel: Any) -> Any:
            gelu = torch.nn.functional.gelu
            hidden = gelu(self.encoder.conv2(gelu(self.encoder.conv1(mel))))  # (1, C, S)
            hidden = hidden.transpose(1, 2) + self.encoder.embed_positions.weight  # (1, S, C)
            for layer in self.encoder.layers:
                attention, normed = layer.self_attn, layer.self_attn_layer_norm(hidden)
                projections = (attention.q_proj, attention.k_proj, attention.v_proj)
                query, key, value = (_heads(project(normed), attention) for project in projections)
                hidden = hidden + _attend(attention, query, key, value)
                hidden = hidden + _feed_forward(layer, hidden)
            hidden = self.encoder.layer_norm(hidden)
            keys = [_heads(attention.k_proj(hidden), attention).contiguous() for attention in self.cross]
            values = [_heads(attention.v_proj(hidden), attention).contiguous() for attention in self.cross]
            return hidden, keys, values

    return Encode().eval()


def decode_module(model: Any) -> torch.nn.Module:
    """Return a module from tokens (1, T) at `position` (1,) and outputs of `Encode` to logits (1, V) of the last."""
    import torch

    decoder = model.model.decoder
    positions = model.config.max_target_positions
    heads, vocabulary = model.config.decoder_attention_heads, model.config.vocab_size
    cache = (1, positions, heads, model.config.d_model // heads)

    class Decode(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.decoder = decoder
            self.head = model.proj_out
            for number in range(len(decoder.layers)):
                self.register_buffer(f"keys_{number}", torch.zeros(cache))
                self.register_buffer(f"values_{number}", torch.zeros(cache))

        def forward(self, tokens: Any, position: Any, keys: Any, values: Any) -> Any:
            start = position[0].item()
            torch._check_is_size(start)
            torch._check(start < positions)
            places = decoder.embed_positions.weight.narrow(0, start, tokens.shape[1])  # (T, C)
            hidden = decoder.embed_tokens(tokens) * decoder.embed_scale + places  # (1, T, C)
            for number, layer in enumerate(self.decoder.layers):
                caches = getattr(self, f"keys_{number}"), getattr(self, f"values_{number}")
                hidden = hidden + _attend_to_past(layer.self_attn, layer.self_attn_layer_norm(hidden), caches, start)
                attention, normed = layer.encoder_attn, layer.encoder_attn_layer_norm(hidden)
                query = _heads(attention.q_proj(normed), attention)
                hidden = hidden + _attend(attention, query, keys[number], values[number])
                hidden = hidden + _feed_forward(layer, hidden)
            logits = self.head(self.decoder.layer_norm(hidden)[:, -1])
            return logits if logits.shape[-1] == vocabulary else logits[:, :vocabulary]  # the head may have been padded

    return Decode().eval()


def _heads(hidden: Any, attention: Any) -> Any:
    """Return (1, T, C) as (1, H, T, D)."""
    return hidden.view(1, -1, attention.num_heads, attention.head_dim).transpose(1, 2)


def _attend(attention: Any, query: Any, key: Any, value: Any) -> Any:
    import torch

    mixed = torch.ops.et_vk.sdpa(query, key, value, None, attention.scaling)  # (1, H, T, D)
    return attention.out_proj(mixed.transpose(1, 2).reshape(1, -1, attention.embed_dim))  # (1, T, C)


def _attend_to_past(attention: Any, hidden: Any, caches: tuple[Any, Any], start: Any) -> Any:
    import torch

    shape = (1, hidden.shape[1], attention.num_heads, attention.head_dim)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    query, key, value = (project(hidden).view(shape) for project in projections)  # (1, T, H, D)
    torch.ops.llama.update_cache(key, caches[0], start)
    torch.ops.llama.update_cache(value, caches[1], start)
    mixed = torch.ops.llama.custom_sdpa(query, *caches, start, None, 0, True, attention.scaling)  # (1, T, H, D)
    return attention.out_proj(mixed.view(hidden.shape))


def _feed_forward(layer: Any, hidden: Any) -> Any:
    return layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden))))


_KINDS = ("4w", "8w")
_TABLE, _HEAD = "model.decoder.embed_tokens", "proj_out"  # one tensor in the checkpoint
_ROWS = 4  # the exporter requires a multiple of this


def check_speech_quantizer(mode: str, group_size: int) -> None:
    if mode not in _KINDS:
        raise InputError(
            argument="quantize",
            expected=f"one of {', '.join(_KINDS)} for speech models",
            got=repr(mode),
            code="quantize",
        )
    check_quantizer(mode, group_size)


def quantize_speech(model: Any, mode: str, group_size: int, progress: OnProgress = ignore) -> QuantizationReport:
    """Quantize a model in place. The head may be padded with rows of zeros, which the decoder module drops."""
    with suppress_logs():
        model.proj_out = _padded_head(model.proj_out)
        recipe = linear_recipe(linear_shapes_of(model), mode, group_size)
        recipe.linears[_HEAD] = recipe.embedding = INT8
        return apply_recipe(model, recipe, embedding=_TABLE, progress=progress)


def _padded_head(head: torch.nn.Linear) -> torch.nn.Linear:
    """Return a copy of the head with a multiple of four rows. The embedding, which shares its weights, is unchanged."""
    import torch

    rows = -(-head.out_features // _ROWS) * _ROWS
    filled = torch.nn.Linear(head.in_features, rows, bias=False)
    with torch.no_grad():
        filled.weight.zero_()
        filled.weight[: head.out_features] = head.weight
    return filled


PathLike = str | os.PathLike[str]
MAX_CALL_TOKENS = 64  # of one call of the decoder: a short prompt, then one token at a time

# Fields of generation_config.json without effect on greedy decoding.
_IGNORED = frozenset((
    "_from_model_config", "transformers_version", "pad_token_id", "bos_token_id", "use_cache", "alignment_heads",
    "median_filter_width", "prev_sot_token_id", "return_timestamps", "task", "forced_decoder_ids",
    "prompt_condition_type", "temperature", "top_k", "top_p", "min_length", "length_penalty", "early_stopping",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict_in_generate", "typical_p", "min_p",
    "epsilon_cutoff", "eta_cutoff", "remove_invalid_values", "num_return_sequences", "diversity_penalty",
    "cache_implementation",
))  # fmt: skip
# Fields of preprocessor_config.json that follow from others, or concern batches.
_DERIVED = frozenset((
    "n_samples", "nb_max_frames", "padding_side", "return_attention_mask", "processor_class", "mel_filters",
))  # fmt: skip
_RULES = {
    "do_sample": FieldRule((False,), "sampling; decoding here is greedy"),
    "num_beams": FieldRule((1,), "beam search; decoding here is greedy"),
    "num_beam_groups": FieldRule((1,), "beam search; decoding here is greedy"),
    "repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "encoder_repetition_penalty": FieldRule((1, 1.0), "a penalty of repeated tokens"),
    "no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
    "encoder_no_repeat_ngram_size": FieldRule((0,), "a ban of repeated n-grams"),
    "condition_on_prev_tokens": FieldRule((False,), "each window is prompted with the text of the previous one"),
}
_RULES_OF_SPECTROGRAMS = {
    "feature_extractor_type": FieldRule(("WhisperFeatureExtractor",), "an input other than Whisper's spectrogram"),
    "dither": FieldRule((0, 0.0), "noise is added to the audio"),
    "do_normalize": FieldRule((False,), "the audio is normalized"),
    "padding_value": FieldRule((0, 0.0), "padding other than silence"),
}


def export_speech(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = None,
    group_size: int = 32,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path` with the methods `encode` and `decode`, and beside it `task.json` and `tokenizer.json` by its stem.

    The checkpoint is a folder in Hugging Face's format. `quantize` is "4w" (linear layers in 4 bits and groups) or
    "8w" (8 bits and a scale per row), without calibration. Embedding and head then have 8 bits. The format of each
    layer is written to `quality.json`.
    """
    target, folder = Path(path), Path(checkpoint)
    if quantize is not None:
        check_speech_quantizer(quantize, group_size)
    check_target(target)
    check_source(folder)
    folder = folder if folder.is_dir() else folder.parent
    config = read_config(folder, ("whisper",), "speech")
    about = {**_spectrogram(folder, config), **_generation(folder, config)}
    tokenizer = _tokenizer(folder)
    require_executorch()
    require_transformers()
    steps = Steps(cancellable(progress, cancel), ["read", "build", *LOWERING_STAGES])
    steps.next()
    model = load_pretrained("WhisperForConditionalGeneration", folder)
    about["language_names"] = _language_names(about["languages"])
    steps.next()
    layers = None if quantize is None else quantize_speech(model, quantize, group_size, steps.progress)
    lower_methods(_methods(model), steps, path=target)
    write_task(target, "speech", about)
    if layers is not None:
        write_quality(target, {"quantized": layers.json()})
    target.with_name(f"{target.stem}.tokenizer.json").write_text(tokenizer, encoding="utf-8")
    return target


def _methods(model: Any) -> dict[str, MethodSpec]:
    with suppress_logs():  # importing these registers the ops that the modules call
        import executorch.backends.vulkan.custom_ops_lib
        import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
        import torch

    config = model.config
    encode, decode = encode_module(model), decode_module(model)
    mel = torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions)
    layers, heads = config.decoder_layers, config.decoder_attention_heads
    shape = (1, heads, config.max_source_positions, config.d_model // heads)
    # Separate tensors: torch.export treats inputs that are one object in the example as one input.
    keys, values = ([torch.zeros(shape) for _ in range(layers)] for _ in range(2))
    count = torch.export.Dim("tokens", max=min(MAX_CALL_TOKENS, config.max_target_positions - 1))
    # Three tokens: torch.export specializes a size of one as a constant.
    example = (torch.tensor([[1, 2, 3]]), torch.tensor([0]), keys, values)
    shapes = ({1: count}, None, [None] * layers, [None] * layers)
    return {"encode": MethodSpec(encode, (mel,)), "decode": MethodSpec(decode, example, shapes)}


def _spectrogram(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the spectrogram."""
    path = folder / "preprocessor_config.json"
    fields = Fields(str(path), read_json(path))
    bands, rate = fields.integer("feature_size", 80), fields.integer("sampling_rate", 16000)
    hop, window = fields.integer("hop_length", 160), fields.integer("chunk_length", 30) * rate
    about = {"rate": rate, "bands": bands, "fft": fields.integer("n_fft", 400), "hop": hop, "window": window}
    fields.refuse_unread(_DERIVED.__contains__, _RULES_OF_SPECTROGRAMS)
    model = Fields(str(folder / "config.json"), config)
    expected = (model.integer("num_mel_bins", 80), 2 * model.integer("max_source_positions", 1500))
    if (bands, window // hop) != expected:
        raise FormatError(
            f"{path} defines {bands} bands of {window // hop} frames, but the model of config.json takes "
            f"{expected[0]} of {expected[1]}",
            code="spectrogram",
        )
    return about


def _generation(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return the special tokens and the suppressed tokens."""
    path = folder / "generation_config.json"
    fields = Fields(str(path), read_json(path))
    fields.require("decoder_start_token_id", "eos_token_id")
    end = fields.get("eos_token_id")
    if not isinstance(end, int):
        raise UnsupportedError(
            items=["eos_token_id"],
            argument=f"{path}: eos_token_id",
            expected="one token id",
            got=end,
            code="eos_token_id",
        )
    languages = {name.strip("<|>"): token for name, token in fields.get("lang_to_id", {}).items()}
    multilingual, default = fields.boolean("is_multilingual", bool(languages)), fields.get("language")
    tasks = fields.get("task_to_id", {})
    positions = Fields(str(folder / "config.json"), config).integer("max_target_positions", 448)
    about = {
        "positions": positions,
        "max_length": fields.integer("max_length", positions),
        "start_token": fields.get("decoder_start_token_id"),
        "end_token": end,
        "no_timestamps_token": fields.get("no_timestamps_token_id"),
        "suppress_tokens": fields.get("suppress_tokens", []),
        "begin_suppress_tokens": fields.get("begin_suppress_tokens", []),
        "max_initial_timestamp_index": fields.get("max_initial_timestamp_index"),
        "languages": languages if multilingual else {},
        "tasks": tasks if multilingual else {},
        "language": default.strip("<|>") if multilingual and isinstance(default, str) else None,
    }
    fields.refuse_unread(_IGNORED.__contains__, _RULES)
    return about


def _language_names(languages: dict[str, int]) -> dict[str, str]:
    with suppress_logs():
        from transformers.models.whisper.tokenization_whisper import LANGUAGES
    return {code: LANGUAGES[code] for code in languages if code in LANGUAGES}


def _tokenizer(folder: Path) -> str:
    try:
        return (folder / "tokenizer.json").read_text(encoding="utf-8")
    except OSError as error:
        raise FormatError(
            f"{folder}: tokenizer.json cannot be read: {error.strerror}",
            code="tokenizer",
            hint="Write it with transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
        ) from error
