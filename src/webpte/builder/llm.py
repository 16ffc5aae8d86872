"""Build the program of a language model from its checkpoint, without torch: what `webpte.export.export_llm` exports."""

from __future__ import annotations

import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from ..checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import AUTO, EMBEDDING, QUANTIZERS, Recipe, second_rounding
from ..checkpoints.recipe import check_embedding as check_embedding_format
from ..container import (
    BoolValue,
    EValue,
    IntValue,
    MappedFile,
    MethodPlan,
    ProgramFile,
    TensorValue,
    parse_program,
    parse_vulkan,
    write_program,
)
from ..errors import UnsupportedError
from ..llm.context import LIMIT_METHOD
from ..partial_files import output_file
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from .calibration_texts import calibration_pieces
from .context import ProgramSizes
from .decoder import DecoderTrace
from .layers import LayerTrace, WeightArrays
from .options import ExportWarning, LLMOptions, PathLike, check_disk_space, check_target, weight_bytes
from .recipe import ProgramWeights, default_recipe, holds_q4_0
from .trace import TracedMethod

FROM_CHECKPOINT = "checkpoint"


def build_program(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = FROM_CHECKPOINT,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    calibrate: bool | PathLike = False,
    max_context: int | None = None,
    max_tokens: int | None = None,
    memory: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it the files of the tokenizer under its stem.

    `checkpoint` is a .gguf file, or a folder with config.json and safetensors. `quantize` is "checkpoint" for formats
    that suit those of the checkpoint, "4w", "8w", "8da4w", or None for f32; the others are options of `export_llm`.
    Weights are read and quantized one at a time, while they are written. With `calibrate`, they are rounded before for
    the inputs that they have while the model reads a text on the device. `memory` limits the default of `max_context`
    to what fits, with the weights, into that many bytes.
    """
    if quantize == AUTO:
        raise UnsupportedError(
            items=[AUTO],
            argument="quantize",
            expected=f"one of {FROM_CHECKPOINT}, {', '.join(QUANTIZERS)}",
            got=repr(AUTO),
            code="weight_format",
            hint="Run webpte export with --exporter torch.",
        )
    if find_spec("tokenizers") is None:
        raise UnsupportedError(
            "building a language model requires the tokenizers package",
            hint="Run pip install 'webpte[llm]'.",
            code="missing_package",
        )
    target = Path(path)
    by_checkpoint = quantize == FROM_CHECKPOINT
    options = LLMOptions(
        quantize=None if by_checkpoint else quantize,
        group_size=group_size,
        embedding=embedding,
        lm_head=lm_head,
        bits_per_weight=None,
        calibrate=calibrate,
        max_context=max_context,
        max_tokens=max_tokens,
    )
    options.check()
    check_target(target)
    report = cancellable(progress, cancel)
    report(Progress("read", 0, 1, "steps"))
    source = read_checkpoint(Path(checkpoint))
    report(Progress("read", 1, 1, "steps"))
    recipe = default_recipe(source) if by_checkpoint else _recipe(options, source)
    for text in [] if by_checkpoint else _second_quantizations(source, recipe):
        warnings.warn(text, ExportWarning, stacklevel=2)
    free = None if memory is None else max(0, memory - weight_bytes(source, recipe))
    sizes = options.sizes(source, memory=free)
    weights = ProgramWeights(source)
    if calibrate and quantize is not None:
        from .calibration import calibrated_weights  # imports the runtime

        pieces = calibration_pieces(source, options)
        weights = calibrated_weights(source, recipe, pieces, sizes, report)
    program = trace_program(source, recipe, weights, sizes)
    size = _data_size(program)
    check_disk_space(target, size)
    with output_file(target) as temporary:
        with open(temporary, "wb") as file:
            write_program(cast(BinaryIO, _ProgressWriter(file, report, size)), program)
        _verify(Path(temporary))
    write_tokenizer_files(source, target)
    return target


def trace_program(source: Checkpoint, recipe: Recipe, weights: WeightArrays, sizes: ProgramSizes) -> ProgramFile:
    """Return the program of a checkpoint. Its weights are read when their bytes are viewed."""
    model = source.architecture
    layers = LayerTrace(source.weights.sources, {**recipe.linears, EMBEDDING: recipe.embedding}, weights)
    logits = DecoderTrace(layers, model, sizes.max_context, sizes.max_tokens).logits()
    specs = {"require_dynamic_shapes": b"\1", "alias_buffer_mutations": bytes([model.has_recurrent_state])}
    forward: TracedMethod = layers.method("forward", [logits], specs)
    metadata = decoder_metadata(source, sizes)
    methods = (forward.plan, *(_constant_method(name, value) for name, value in metadata.items()))
    return ProgramFile("", 0, methods, MappingProxyType(forward.named_data))


def decoder_metadata(source: Checkpoint, sizes: ProgramSizes) -> dict[str, Any]:
    """Return the metadata of a program, by the names that ExecuTorch's runners use."""
    metadata: dict[str, Any] = {
        "get_max_seq_len": sizes.max_tokens,
        "get_max_context_len": sizes.max_context,
        LIMIT_METHOD: sizes.context.numbers(),
        "get_n_layers": source.architecture.n_layers,
        "get_vocab_size": source.architecture.vocab_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    if (window := source.architecture.cache_window(sizes.max_context, sizes.max_tokens)) is not None:
        metadata["get_state_reach"] = list(window)
    if source.bos_id is not None:
        metadata["get_bos_id"] = source.bos_id
    if source.eos_ids:
        metadata["get_eos_ids"] = list(source.eos_ids)
    return metadata


def _recipe(options: LLMOptions, source: Checkpoint) -> Recipe:
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in source.weights.sources.items()}
    recipe = options.recipe({n: shape for n, shape in shapes.items() if len(shape) == 2 and n != EMBEDDING})
    check_embedding_format(recipe.embedding, source.architecture.dim)
    return recipe


def _second_quantizations(source: Checkpoint, recipe: Recipe) -> list[str]:
    """Return a sentence for each format of the checkpoint whose values are lost in layers of as many bits or fewer."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, kind in {**recipe.linears, EMBEDDING: recipe.embedding}.items():
        stored = source.weights.stored_type(f"{name}.weight")
        exact = stored is not None and stored.name == "Q4_0" and holds_q4_0(kind)
        if stored is not None and kind.bits <= stored.bits and not exact:
            counts[stored.name, str(kind)] += 1
    return [second_rounding(count, stored, kind) for (stored, kind), count in counts.items()]


def _constant_method(name: str, value: int | bool | list[int]) -> MethodPlan:
    values: list[EValue] = [
        BoolValue(each) if isinstance(each, bool) else IntValue(each)
        for each in (value if isinstance(value, list) else [value])
    ]
    return MethodPlan(name, tuple(values), (), tuple(range(len(values))), (), ())


def _data_size(program: ProgramFile) -> int:
    values = (value for method in program.methods for value in method.values if isinstance(value, TensorValue))
    spans = {value.data for value in values if value.data is not None} | set(program.named_data.values())
    return sum(span.size for span in spans)


class _ProgressWriter:
    """A file that reports the bytes written."""

    def __init__(self, file: BinaryIO, report: OnProgress, total: int) -> None:
        self._file, self._report, self._total = file, report, total
        self._done = 0
        report(Progress("build", 0, total, "bytes"))

    def write(self, data: Any) -> int:
        written = self._file.write(data)
        self._done += written
        self._report(Progress("build", min(self._done, self._total), self._total, "bytes"))
        return written


def _verify(path: Path) -> None:
    """Read the program as the runtime does: an error here is one of the builder."""
    with MappedFile(path) as file:
        for method in parse_program(file).methods:
            for delegate in method.delegates:
                parse_vulkan(delegate.blob)
