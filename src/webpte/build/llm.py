"""Build the program of a language model from its checkpoint, without torch: what `webpte.export.export_llm` exports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

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
from ..export.checkpoint import write_tokenizer_files
from ..export.family import Checkpoint
from ..export.llm import decoder_metadata
from ..export.options import LLMOptions, PathLike, check_disk_space, check_target
from ..export.quantization.recipe import EMBEDDING, Recipe, WeightFormat
from ..export.quantization.recipe import check_embedding as check_embedding_format
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from .checkpoint import ArrayCheckpoint, read_checkpoint
from .decoder import DecoderTrace
from .layers import LayerTrace, WeightArrays
from .recipe import ProgramWeights, default_recipe
from .trace import TracedMethod

FROM_CHECKPOINT = "checkpoint"
_FORMATS = ("4w", "8w", "f32")  # of layers that the builder writes; 8da4w needs ExecuTorch's exporter


def build_program(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = FROM_CHECKPOINT,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    max_context: int = 1024,
    max_tokens: int = 256,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it the files of the tokenizer under its stem.

    `checkpoint` is a .gguf file, or a folder with config.json and safetensors. `quantize` is "checkpoint" for formats
    that suit those of the checkpoint, "4w", "8w", or None for f32; the other options are those of `export_llm`.
    Weights are read and quantized one at a time, while they are written.
    """
    target = Path(path)
    by_checkpoint = quantize == FROM_CHECKPOINT
    options = LLMOptions(
        None if by_checkpoint else quantize, group_size, embedding, lm_head, None, False, max_context, max_tokens
    )
    options.check()
    check_target(target)
    report = cancellable(progress, cancel)
    source = read_checkpoint(Path(checkpoint))
    recipe = default_recipe(source) if by_checkpoint else _recipe(options, source)
    program = trace_program(source, recipe, ProgramWeights(source), max_context, max_tokens)
    size = _data_size(program)
    check_disk_space(target, size)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            write_program(cast(BinaryIO, _ProgressWriter(file, report, size)), program)
        _verify(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    write_tokenizer_files(source, target)
    return target


def trace_program(
    source: Checkpoint, recipe: Recipe, weights: WeightArrays, max_context: int, max_tokens: int
) -> ProgramFile:
    """Return the program of a checkpoint. Its weights are read when their bytes are viewed."""
    model = source.architecture
    layers = LayerTrace(source.weights.sources, {**recipe.linears, EMBEDDING: recipe.embedding}, weights)
    logits = DecoderTrace(layers, model, max_context, max_tokens).logits()
    specs = {"require_dynamic_shapes": b"\1", "alias_buffer_mutations": bytes([model.has_recurrent_state])}
    forward: TracedMethod = layers.method("forward", [logits], specs)
    metadata = decoder_metadata(source, max_context, max_tokens)
    methods = (forward.plan, *(_constant_method(name, value) for name, value in metadata.items()))
    return ProgramFile("", 0, methods, MappingProxyType(forward.named_data))


def refusal(options: Mapping[str, Any]) -> str | None:
    """Return why the builder cannot do what `export_llm` does with these options, or None if it can."""
    if options.get("quantize") not in (None, *_FORMATS):
        return f"layers in the format {options['quantize']} are exported through torch"
    if options.get("quantize") is not None and options.get("calibrate", True) is not False:
        return "calibration runs in torch"
    if options.get("quality"):
        return "the quality of a program is measured in torch"
    return None


def _recipe(options: LLMOptions, source: ArrayCheckpoint) -> Recipe:
    shapes = {name.removesuffix(".weight"): weight.shape for name, weight in source.weights.sources.items()}
    recipe = options.recipe({n: shape for n, shape in shapes.items() if len(shape) == 2 and n != EMBEDDING})
    check_embedding_format(recipe.embedding, source.architecture.dim)
    _check_formats({**recipe.linears, EMBEDDING: recipe.embedding})
    return recipe


def _check_formats(formats: Mapping[str, WeightFormat]) -> None:
    if other := {name: kind for name, kind in formats.items() if kind.name not in _FORMATS}:
        name, kind = next(iter(other.items()))
        raise UnsupportedError(
            items=list(other),
            argument=name,
            expected=f"one of the formats {', '.join(_FORMATS)}",
            got=str(kind),
            code="weight_format",
            hint="Export it through torch: webpte export --exporter torch.",
        )


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
