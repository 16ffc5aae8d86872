"""Build the program of a Whisper checkpoint for `webpte.speech.Transcriber`.

The decoder attends to keys and values that `encode` returns and `decode` takes, and to those of earlier tokens in its
own caches.
"""

from __future__ import annotations

import math
from pathlib import Path

from ..checkpoints.checkpoint import check_source
from ..checkpoints.recipe import EMBEDDING, HEAD, INT8, Recipe, check_quantizer, linear_recipe
from ..checkpoints.whisper import Whisper, WhisperCheckpoint, read_whisper
from ..container import DType
from ..errors import InputError
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..task_file import write_task
from .layers import LayerTrace
from .llm import layer_results, program_of, write_traced
from .ops import zeros
from .options import PathLike, check_disk_space, check_target, parameter_bytes
from .recipe import QuantizedWeights
from .report import QuantizationReport, write_quality
from .trace import TracedInt, TracedMethod, TracedTensor

MAX_CALL_TOKENS = 64  # of one call of the decoder: a short prompt, then one token at a time
_KINDS = ("4w", "8w")
_EPS = 1e-5  # of norms, as Whisper has it without a field


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
        _check_quantizer(quantize, group_size)
    check_target(target)
    check_source(folder)
    report = cancellable(progress, cancel)
    report(Progress("read", 0, 1, "steps"))
    source = read_whisper(folder if folder.is_dir() else folder.parent)
    report(Progress("read", 1, 1, "steps"))
    recipe = Recipe({})
    if quantize is not None:
        source = source.with_padded_head()
        recipe = speech_recipe(source, quantize, group_size)
    check_disk_space(target, parameter_bytes(source.weights.sources, recipe))
    weights = QuantizedWeights(source.weights)
    write_traced(target, program_of(trace_methods(source, recipe, weights)), report)
    write_task(target, "speech", source.task)
    target.with_name(f"{target.stem}.tokenizer.json").write_text(source.tokenizer, encoding="utf-8")
    if layers := layer_results(source.weights.sources, recipe, weights):
        write_quality(target, {"quantized": QuantizationReport(layers, recipe.notes).json()})
    return target


def _check_quantizer(mode: str, group_size: int) -> None:
    if mode not in _KINDS:
        raise InputError(
            argument="quantize",
            expected=f"one of {', '.join(_KINDS)} for speech models",
            got=repr(mode),
            code="quantize",
        )
    check_quantizer(mode, group_size)


def speech_recipe(source: WhisperCheckpoint, mode: str, group_size: int) -> Recipe:
    """Return the formats of a program's layers. Embedding and head have 8 bits."""
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in source.weights.sources.items()}
    linears = {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and name != EMBEDDING and not name.endswith("embed_positions")
    }
    recipe = linear_recipe(linears, mode, group_size, "8")
    recipe.embedding = INT8
    return recipe


def trace_methods(source: WhisperCheckpoint, recipe: Recipe, weights: QuantizedWeights) -> list[TracedMethod]:
    """Return the methods `encode` and `decode`. Weights are read when their bytes are viewed."""
    formats = {**recipe.linears, EMBEDDING: recipe.embedding}
    encode, decode = (
        WhisperTrace(LayerTrace(source.weights.sources, formats, weights), source.model) for _ in range(2)
    )
    hidden = encode.g.method("encode", encode.encoded(), {})
    return [hidden, decode.g.method("decode", [decode.logits()], {"require_dynamic_shapes": b"\1"})]


class WhisperTrace:
    """A Whisper. Each part is recorded when its method is called."""

    def __init__(self, layers: LayerTrace, model: Whisper) -> None:
        self.g = layers
        self.model = model

    def encoded(self) -> list[TracedTensor]:
        """Record the encoder. Return hidden states (1, S, C), then keys and values of each layer, (1, H, S, D)."""
        g, model, heads = self.g, self.model, self.model.encoder_heads
        mel = g.input("mel", DType.FLOAT32, (1, model.bands, 2 * model.source_positions))
        x = self._convolved(self._convolved(mel, "model.encoder.conv1", 1), "model.encoder.conv2", 2)
        x = g.add(g.permute(x, (0, 2, 1)), g.packed(g.parameter("model.encoder.embed_positions.weight")))
        for number in range(model.encoder_layers):
            layer = f"model.encoder.layers.{number}"
            normed = self._norm(x, f"{layer}.self_attn_layer_norm")
            q, k, v = (self._heads(normed, f"{layer}.self_attn.{part}_proj", heads) for part in "qkv")
            x = g.add(x, self._mixed(g.attention(q, k, v), f"{layer}.self_attn", x))
            x = g.add(x, self._feed_forward(x, layer))
        x = self._norm(x, "model.encoder.layer_norm")
        layers = [f"model.decoder.layers.{number}.encoder_attn" for number in range(model.decoder_layers)]
        states = [self._heads(x, f"{layer}.{part}_proj", model.decoder_heads) for part in "kv" for layer in layers]
        return [x, *states]

    def logits(self) -> TracedTensor:
        """Record the decoder of tokens, a position, and what the encoder returned after the hidden states."""
        g, model, heads = self.g, self.model, self.model.decoder_heads
        most = min(MAX_CALL_TOKENS, model.target_positions - 1)
        tokens = g.input("tokens", DType.INT64, (1, TracedInt(most)))
        first = g.input("position", DType.INT64, (1,))
        shape = (1, heads, model.source_positions, model.dim // heads)
        names = [f"{part}_{number}" for part in ("keys", "values") for number in range(model.decoder_layers)]
        heard = [g.input(name, DType.FLOAT32, shape) for name in names]
        x = g.embedding(tokens)  # in 8 bits a kernel call: before all delegates
        count = g.size(tokens, 1)
        start = g.element(first, 0, model.target_positions - 1)
        if model.scaled_embeddings:
            x = g.scaled(x, math.sqrt(model.dim))
        positions = g.packed(g.parameter("model.decoder.embed_positions.weight"))
        x = g.add(x, g.slice(positions, 0, start, g.plus(start, count), count))
        for number in range(model.decoder_layers):
            layer = f"model.decoder.layers.{number}"
            normed = self._norm(x, f"{layer}.self_attn_layer_norm")
            q, k, v = (g.linear(normed, f"{layer}.self_attn.{part}_proj", heads) for part in "qkv")
            caches = [zeros((1, model.target_positions, heads, model.dim // heads)) for _ in range(2)]
            options = (start, 1, None, 0, True, None)
            past = g.call("sdpa_with_kv_cache.default", q, k, v, *caches, *options, dims=q.dims)
            x = g.add(x, g.linear(g.view(past, x.dims), f"{layer}.self_attn.out_proj"))
            normed = self._norm(x, f"{layer}.encoder_attn_layer_norm")
            q = self._heads(normed, f"{layer}.encoder_attn.q_proj", heads)
            mixed = g.attention(q, heard[number], heard[model.decoder_layers + number])
            x = g.add(x, self._mixed(mixed, f"{layer}.encoder_attn", x))
            x = g.add(x, self._feed_forward(x, layer))
        logits = g.linear(self._norm(g.select(x, 1, -1), "model.decoder.layer_norm"), HEAD)
        if logits.dims[1] == model.vocabulary:
            return logits
        return g.slice(logits, 1, 0, model.vocabulary, model.vocabulary)

    def _convolved(self, x: TracedTensor, name: str, stride: int) -> TracedTensor:
        g = self.g
        options = ((stride,), (1,), (1,), False, (0,), 1)
        dims = (1, self.model.dim, x.bounds[2] // stride)
        weights = g.parameter(f"{name}.weight"), g.parameter(f"{name}.bias")
        return g.gelu(g.call("aten.convolution.default", x, *weights, *options, dims=dims))

    def _heads(self, x: TracedTensor, name: str, heads: int) -> TracedTensor:
        """Record a projection, heads first: (1, H, S, D)."""
        return self.g.permute(self.g.linear(x, name, heads), (0, 2, 1, 3))

    def _mixed(self, mixed: TracedTensor, name: str, x: TracedTensor) -> TracedTensor:
        """Record the output of attention, (1, H, S, D)."""
        g = self.g
        return g.linear(g.view(g.permute(mixed, (0, 2, 1, 3)), x.dims), f"{name}.out_proj")

    def _feed_forward(self, x: TracedTensor, layer: str) -> TracedTensor:
        g = self.g
        hidden = g.gelu(g.linear(self._norm(x, f"{layer}.final_layer_norm"), f"{layer}.fc1"))
        return g.linear(hidden, f"{layer}.fc2")

    def _norm(self, x: TracedTensor, name: str) -> TracedTensor:
        return self.g.layer_norm(x, self.g.parameter(f"{name}.weight"), self.g.parameter(f"{name}.bias"), _EPS)
