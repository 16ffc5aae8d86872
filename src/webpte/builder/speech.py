"""Build the program of a speech checkpoint for `webpte.speech.Transcriber`.

The decoder attends to keys and values that `encode` returns and `decode` takes, and to those of earlier tokens in its
own caches.
"""

from __future__ import annotations

import math
from pathlib import Path

from ..checkpoints.checkpoint import check_source
from ..checkpoints.recipe import EMBEDDING, HEAD, INT8, Recipe, check_quantizer, linear_recipe
from ..checkpoints.speech import SpeechCheckpoint, read_speech, read_speech_config
from ..checkpoints.speech_model import Convolution, SpeechModel
from ..container import DType
from ..errors import InputError
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..task_file import write_task
from .layers import LayerTrace
from .llm import layer_results, program_of, write_traced
from .ops import constant, zeros
from .options import PathLike, check_disk_space, check_target, parameter_bytes
from .recipe import QuantizedWeights
from .report import QuantizationReport, write_quality
from .trace import Dim, TracedInt, TracedMethod, TracedTensor

MAX_CALL_TOKENS = 64  # of one call of the decoder: a short prompt, then one token at a time
_KINDS = ("4w", "8w")
_EPS = 1e-5  # of norms, which no config has as a field


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
    report(Progress("read", 0, 1, "steps", subject=folder.name))
    source = read_speech(folder if folder.is_dir() else folder.parent)
    report(Progress("read", 1, 1, "steps", subject=folder.name))
    recipe = Recipe({})
    if quantize is not None:
        source = source.with_padded_head()
        recipe = speech_recipe(source, quantize, group_size)
    check_disk_space(target, parameter_bytes(source.weights.sources, recipe))
    weights = QuantizedWeights(source.weights)
    write_traced(target, program_of(trace_methods(source, recipe, weights)), report)
    write_speech_files(folder if folder.is_dir() else folder.parent, target)
    if layers := layer_results(source.weights.sources, recipe, weights):
        write_quality(target, {"quantized": QuantizationReport(layers, recipe.notes).json()})
    return target


def write_speech_files(checkpoint: PathLike, path: PathLike) -> list[Path]:
    """Write what `Transcriber` reads beside a program, from the JSON files of its checkpoint; return the paths.

    For the program of another exporter, which must be of this checkpoint.
    """
    config, tokenizer = read_speech_config(Path(checkpoint))
    tokenizer_path = Path(path).with_name(f"{Path(path).stem}.tokenizer.json")
    tokenizer_path.write_text(tokenizer, encoding="utf-8")
    return [write_task(Path(path), "speech", config.task), tokenizer_path]


def _check_quantizer(mode: str, group_size: int) -> None:
    if mode not in _KINDS:
        raise InputError(
            argument="quantize",
            expected=f"one of {', '.join(_KINDS)} for speech models",
            got=repr(mode),
            code="quantize",
        )
    check_quantizer(mode, group_size)


def speech_recipe(source: SpeechCheckpoint, mode: str, group_size: int) -> Recipe:
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


def trace_methods(source: SpeechCheckpoint, recipe: Recipe, weights: QuantizedWeights) -> list[TracedMethod]:
    """Return the methods `encode` and `decode`. Weights are read when their bytes are viewed."""
    formats = {**recipe.linears, EMBEDDING: recipe.embedding}
    encode, decode = (SpeechTrace(LayerTrace(source.weights.sources, formats, weights), source.model) for _ in range(2))
    dynamic = {"require_dynamic_shapes": b"\1"}
    hidden = encode.g.method("encode", encode.encoded(), {} if source.model.rope is None else dynamic)
    return [hidden, decode.g.method("decode", [decode.logits()], dynamic)]


class SpeechTrace:
    """A speech model. Each part is recorded when its method is called."""

    def __init__(self, layers: LayerTrace, model: SpeechModel) -> None:
        self.g = layers
        self.model = model
        self._turns: tuple[TracedTensor, ...] = ()  # cosines and sines of the positions, (S, D / 2)

    def encoded(self) -> list[TracedTensor]:
        """Record the encoder. Return hidden states (1, S, C), then keys and values of each layer, (1, S, H, D)."""
        g, model, heads = self.g, self.model, self.model.encoder_heads
        x, rows = self._stem()
        if model.rope is None:
            x = g.add(x, g.packed(g.parameter("model.encoder.embed_positions.weight")))
        else:
            self._turn(model.source_positions, heads, 0, rows, rows)
        for number in range(model.encoder_layers):
            layer = f"model.encoder.layers.{number}"
            q, k, v = self._projected(self._norm(x, f"{layer}.self_attn_layer_norm"), f"{layer}.self_attn", heads)
            x = g.add(x, self._mixed(self._attention(q, k, v, 0), f"{layer}.self_attn", x))
            x = g.add(x, self._feed_forward(x, layer, model.encoder_hidden))
        x = self._norm(x, "model.encoder.layer_norm")
        layers = [f"model.decoder.layers.{number}.encoder_attn" for number in range(model.decoder_layers)]
        states = [g.linear(x, f"{layer}.{part}_proj", model.decoder_heads) for part in "kv" for layer in layers]
        return [x, *states]

    def logits(self) -> TracedTensor:
        """Record the decoder of tokens, a position, and what the encoder returned after the hidden states.

        If inputs of the encoder differ in length, the number of its rows follows the position.
        """
        g, model, heads = self.g, self.model, self.model.decoder_heads
        most = min(MAX_CALL_TOKENS, model.target_positions - 1)
        tokens = g.input("tokens", DType.INT64, (1, TracedInt(most)))
        first = g.input("position", DType.INT64, (1,))
        rows: Dim = model.source_positions
        length = g.input("rows", DType.INT64, (1,)) if model.rope is not None else None
        held: Dim = model.source_positions if length is None else TracedInt(model.source_positions)
        shape = (1, held, heads, model.dim // heads)
        names = [f"{part}_{number}" for part in ("keys", "values") for number in range(model.decoder_layers)]
        heard = [g.input(name, DType.FLOAT32, shape) for name in names]
        x = g.embedding(tokens)  # in 8 bits a kernel call: before all delegates
        count = g.size(tokens, 1)
        start = g.element(first, 0, model.target_positions - 1)
        if length is not None:
            rows = g.element(length, 0, model.source_positions)
        before = g.minus(rows, count)  # attention without a mask is to all rows up to `before + count`
        if model.scaled_embeddings:
            x = g.scaled(x, math.sqrt(model.dim))
        if model.rope is None:
            positions = g.packed(g.parameter("model.decoder.embed_positions.weight"))
            x = g.add(x, g.slice(positions, 0, start, g.plus(start, count), count))
        else:
            self._turn(model.target_positions, heads, start, g.plus(start, count), count)
        for number in range(model.decoder_layers):
            layer = f"model.decoder.layers.{number}"
            q, k, v = self._projected(self._norm(x, f"{layer}.self_attn_layer_norm"), f"{layer}.self_attn", heads)
            caches = [zeros((1, model.target_positions, heads, model.dim // heads)) for _ in range(2)]
            options = (start, 1, None, 0, True, None)
            past = g.call("sdpa_with_kv_cache.default", q, k, v, *caches, *options, dims=q.dims)
            x = g.add(x, self._mixed(past, f"{layer}.self_attn", x))
            q = g.linear(self._norm(x, f"{layer}.encoder_attn_layer_norm"), f"{layer}.encoder_attn.q_proj", heads)
            mixed = self._attention(q, heard[number], heard[model.decoder_layers + number], before)
            x = g.add(x, self._mixed(mixed, f"{layer}.encoder_attn", x))
            x = g.add(x, self._feed_forward(x, layer, model.decoder_hidden, model.gated))
        logits = g.linear(self._norm(g.select(x, 1, -1), "model.decoder.layer_norm"), HEAD)
        if logits.dims[1] == model.vocabulary:
            return logits
        return g.slice(logits, 1, 0, model.vocabulary, model.vocabulary)

    def _stem(self) -> tuple[TracedTensor, Dim]:
        """Record the convolutions. Return their features (1, S, C), and S."""
        g, model = self.g, self.model
        first = model.convolutions[0]
        frames: Dim = model.frames if model.rope is None else TracedInt(model.frames)
        x = g.input("mel" if first.inputs > 1 else "samples", DType.FLOAT32, (1, first.inputs, frames))
        for number, each in enumerate(model.convolutions, 1):
            x = self._convolved(x, f"model.encoder.conv{number}", each)
            if number == 1 and model.first_norm:
                x = self._normed_together(x, "model.encoder.groupnorm")
        rows = x.dims[2]
        return g.permute(x, (0, 2, 1)), rows if isinstance(rows, int) else g.size(x, 2)

    def _convolved(self, x: TracedTensor, name: str, convolution: Convolution) -> TracedTensor:
        g, frames = self.g, x.dims[2]
        length = convolution.length(x.bounds[2])
        dims = (1, convolution.outputs, length if isinstance(frames, int) else TracedInt(length))
        options = ((convolution.stride,), (convolution.padding,), (1,), False, (0,), 1)
        bias = g.parameter(f"{name}.bias") if convolution.biased else None
        out = g.call("aten.convolution.default", x, g.parameter(f"{name}.weight"), bias, *options, dims=dims)
        return g.gelu(out) if convolution.activation == "gelu" else g.unary(convolution.activation, out)

    def _normed_together(self, x: TracedTensor, name: str) -> TracedTensor:
        """Record the norm of all values (1, C, S) together."""
        g, channels = self.g, x.bounds[1]
        weights = g.parameter(f"{name}.weight"), g.parameter(f"{name}.bias")
        sizes = (1, channels, g.size(x, 2), 1, _EPS)
        return g.call_several("aten.native_group_norm.default", x, *weights, *sizes, dims=(x.dims, (1, 1), (1, 1)))[0]

    def _turn(self, positions: int, heads: int, start: Dim, end: Dim, count: Dim) -> None:
        """Record the cosines and sines of some positions."""
        g, model = self.g, self.model
        assert model.rope is not None
        names = (f"{table} of {positions}" for table in ("cosines", "sines"))
        tables = zip(names, model.rope.tables(positions, model.dim // heads), strict=True)
        self._turns = tuple(g.slice(g.packed(constant(*each)), 0, start, end, count) for each in tables)

    def _projected(self, x: TracedTensor, name: str, heads: int) -> tuple[TracedTensor, ...]:
        """Record queries, keys and values of self-attention, (1, S, H, D)."""
        g = self.g
        q, k, v = (g.linear(x, f"{name}.{part}_proj", heads) for part in "qkv")
        if self._turns:
            q, k = g.call_several("et_vk.apply_rotary_emb.default", q, k, *self._turns, dims=(q.dims, k.dims))
        return q, k, v

    def _attention(self, q: TracedTensor, k: TracedTensor, v: TracedTensor, before: Dim) -> TracedTensor:
        """Record the attention of every query to all keys up to the last of the queries, `before` keys later."""
        return self.g.call("custom_sdpa.default", q, k, v, before, None, 0, False, None, dims=q.dims)

    def _mixed(self, mixed: TracedTensor, name: str, x: TracedTensor) -> TracedTensor:
        """Record the output of attention, (1, S, H, D)."""
        return self.g.linear(self.g.view(mixed, x.dims), f"{name}.out_proj")

    def _feed_forward(self, x: TracedTensor, layer: str, width: int, gated: bool = False) -> TracedTensor:
        g = self.g
        hidden = g.linear(self._norm(x, f"{layer}.final_layer_norm"), f"{layer}.fc1")
        if gated:
            up, gate = (g.slice(hidden, 2, start, start + width, width) for start in (0, width))
            return g.linear(g.mul(g.silu(gate), up), f"{layer}.fc2")
        return g.linear(g.gelu(hidden), f"{layer}.fc2")

    def _norm(self, x: TracedTensor, name: str) -> TracedTensor:
        g = self.g
        bias = g.parameter(f"{name}.bias") if f"{name}.bias" in g.shapes else None
        return g.layer_norm(x, g.parameter(f"{name}.weight"), bias, _EPS)
