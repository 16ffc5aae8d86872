"""Models of real shapes with random weights, exported once: names, sizes, and the builders that need torch.

Language models have their real widths and vocabulary but few layers, because layers have the same kernels. Numbers of a
language model are scaled to its real number of layers (`programs.py`). Exports are in the cache of the tests' exports.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.export.exporter_files import exporter_files
from tests.support.export.exporting import cache_root, export, fill, versions
from tests.support.export.sources import source_hash
from webpte.builder import build_program

MAX_CONTEXT, MAX_TOKENS = 1024, 256


@dataclass(frozen=True)
class LanguageModel:
    """A checkpoint's config.json, and the layers of the real model."""

    layers: int
    config: Mapping[str, Any]


_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5}
LANGUAGE_MODELS = {
    "llama256": LanguageModel(4, {
        **_LLAMA, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 2048, "rope_theta": 10000.0,
    }),
    "smollm2-135m": LanguageModel(30, {
        **_LLAMA, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 9,
        "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152, "rope_theta": 100000.0,
        "tie_word_embeddings": True,
    }),
    "llama-3.2-1b": LanguageModel(16, {
        **_LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    }),
    "qwen3-0.6b": LanguageModel(28, {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
    }),
    "gemma-3-1b": LanguageModel(26, {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": True,
    }),
}  # fmt: skip


def language_model(name: str) -> Path:
    """Return the program of a language model in 4 bits, built as by `webpte export --quantize 4w --embedding 4,32`."""
    config = LANGUAGE_MODELS[name].config

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            _write_checkpoint(Path(checkpoint), config)
            build_program(
                checkpoint,
                folder / "model.pte",
                quantize="4w",
                embedding="4,32",
                max_context=MAX_CONTEXT,
                max_tokens=MAX_TOKENS,
            )

    family = str(config["model_type"]).removesuffix("_text")
    sources = exporter_files("builder/llm", f"checkpoints/families/{family}")
    return _kept(name, [config, MAX_CONTEXT, MAX_TOKENS], sources, make)


def _write_checkpoint(folder: Path, config: Mapping[str, Any]) -> None:
    import torch
    import transformers

    from tests.studies.large.checkpoints import _write_tokenizer

    torch.manual_seed(0)
    loaded = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(loaded, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(folder / "tokenizer.json", int(config["vocab_size"]))


def whisper() -> Path:
    """Return the program of Whisper tiny's shape in f32."""

    def make(folder: Path) -> None:
        from tests.support.models.whisper import real_whisper
        from webpte.export import export_speech

        with tempfile.TemporaryDirectory() as checkpoint:
            export_speech(real_whisper(Path(checkpoint)), folder / "model.pte")

    return _kept("whisper-tiny", [], exporter_files("builder/speech"), make)


def _kept(name: str, settings: list[Any], sources: list[Path], make: Callable[[Path], None]) -> Path:
    """Return model.pte of a folder of the cache, keyed by what it is made of."""
    hashes = [source_hash(path) for path in sources]
    parts = json.dumps([settings, hashes, versions(), sys.version_info[:2]])
    folder = cache_root() / f"shape-{name}-{hashlib.sha256(parts.encode()).hexdigest()[:24]}"

    def write() -> None:
        partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
        try:
            make(partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    return fill(folder, write) / "model.pte"


# ---------------------------------------------------------------- other models


def minilm() -> Path:
    """Return MiniLM's shape in f32: 2 to 127 tokens, one text."""
    return export(_minilm).path


def cnn(name: str) -> Path:
    """Return a network of MobileNetV2's blocks, for images of 64 by 64, in f32 or int8."""
    return export(_cnn, int8=name == "cnn-int8").path


def _minilm() -> Any:
    import torch
    from torch.export import Dim
    from transformers import BertConfig, BertModel

    from tests.support.export.lowering import forward
    from tests.support.models.real import SentenceEncoder

    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    bert = BertModel(BertConfig(**sizes, attn_implementation="eager"), add_pooling_layer=False).eval()
    example = (torch.ones((1, 32), dtype=torch.int64), torch.ones((1, 32), dtype=torch.int64))
    tokens = Dim("tokens", min=2, max=127)
    return forward(SentenceEncoder(bert), example, [[example]], dynamic_shapes=({1: tokens}, {1: tokens}), strict=False)


def _cnn(int8: bool) -> Any:
    import torch
    from torch import nn

    from tests.support.export.lowering import forward
    from tests.support.models.int8 import Bottleneck, quantized

    torch.manual_seed(0)
    blocks = nn.Sequential(Bottleneck(32), Bottleneck(32))
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU())
    head = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = nn.Sequential(stem, blocks, head, nn.Linear(64, 1000)).eval()
    example = (torch.randn(1, 3, 64, 64),)
    return quantized(module, [example], None) if int8 else forward(module, example, [[example]])
