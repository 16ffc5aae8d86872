"""Build the program of a language model from its checkpoint."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

from ..checkpoints.adapters import adapter_modules
from ..checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import (
    EMBEDDING,
    FROM_CHECKPOINT,
    UNQUANTIZED,
    Recipe,
    first_rounding,
    second_rounding,
)
from ..checkpoints.weights import WeightSource
from ..container import (
    BoolValue,
    EValue,
    IntValue,
    MappedFile,
    MethodPlan,
    ProgramFile,
    Span,
    TensorValue,
    parse_program,
    parse_vulkan,
    write_program,
)
from ..errors import UnsupportedError
from ..llm.adapters import MODULES
from ..llm.context import LIMIT_METHOD
from ..llm.image_processor import BIDIRECTIONAL_METHOD, SECTIONS_METHOD
from ..partial_files import output_file
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from .calibration_texts import calibration_pieces
from .context import ProgramSizes
from .decoder import DecoderTrace
from .layers import LayerTrace, WeightArrays
from .options import ExportWarning, LLMOptions, PathLike, check_disk_space, check_target, weight_bytes
from .recipe import ProgramWeights, QuantizedWeights
from .report import LayerResult, QuantizationReport, quality_path, write_quality
from .trace import TracedMethod
from .vision import trace_encoder


def export_llm(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = None,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    bits_per_weight: float | None = None,
    calibrate: bool | PathLike | None = None,
    max_context: int | None = None,
    max_tokens: int | None = None,
    quality: bool = False,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` under its stem.

    `checkpoint` is a .gguf file, or a folder with config.json and safetensors. `quantize` is "4w", "8w", "8da4w",
    "auto", "checkpoint", or None for f32. "auto" is "4w" with as many layers in 8 bits as `bits_per_weight` allows:
    those that lose the most. "checkpoint" chooses formats that suit those of the checkpoint. `embedding` is "8",
    "none", or bits and group size such as "4,32". `lm_head` is "8", "none", or "4" for the format of the layers. If
    layers are quantized, both default to "8". `calibrate` rounds weights for their inputs while the model reads a text
    on the device: the built-in text, or that of a file. It is the default of "4w", "8w", "8da4w" and "auto".

    The KV cache has `max_context` tokens: by default those of the model's own context, at most 8,192. One call takes
    fewer than `max_tokens` tokens, by default 256, or more if an image needs them; longer prompts are processed in
    chunks. With `quality`, the program is measured against the float model on the device, and the figures are written
    beside it as `quality.json`. Layers whose format in the checkpoint has no equivalent in the program are quantized
    again, with an `ExportWarning`.
    """
    options = LLMOptions(
        quantize=quantize,
        group_size=group_size,
        embedding=embedding,
        lm_head=lm_head,
        bits_per_weight=bits_per_weight,
        calibrate=quantize not in (None, FROM_CHECKPOINT) if calibrate is None else calibrate,
        max_context=max_context,
        max_tokens=max_tokens,
    )
    return _build(Path(checkpoint), Path(path), options, cancellable(progress, cancel), quality=quality)


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
    """Write the program that a checkpoint has on first use: the options are those of `export_llm`, except "auto".

    By default, formats suit those of the checkpoint, and nothing is calibrated. Weights are read and quantized one at a
    time, while they are written. `memory` limits the default of `max_context` to what fits, with the weights, into that
    many bytes.
    """
    options = LLMOptions(
        quantize=quantize,
        group_size=group_size,
        embedding=embedding,
        lm_head=lm_head,
        calibrate=calibrate,
        max_context=max_context,
        max_tokens=max_tokens,
    )
    return _build(Path(checkpoint), Path(path), options, cancellable(progress, cancel), memory=memory)


def _build(
    checkpoint: Path,
    target: Path,
    options: LLMOptions,
    progress: OnProgress,
    *,
    memory: int | None = None,
    quality: bool = False,
) -> Path:
    """Read, quantize and write. Warnings are those of the caller's caller."""
    if find_spec("tokenizers") is None:
        raise UnsupportedError(
            "building a language model requires the tokenizers package",
            hint="Run pip install 'webpte[llm]'.",
            code="missing_package",
        )
    options.check()
    check_target(target)
    progress(Progress("read", 0, 1, "steps", subject=checkpoint.name))
    source = read_checkpoint(checkpoint)
    progress(Progress("read", 1, 1, "steps", subject=checkpoint.name))
    recipe = options.recipe(source)
    check_disk_space(target, weight_bytes(source, recipe))
    free = None if memory is None else max(0, memory - weight_bytes(source, recipe))
    sizes = options.sizes(source, memory=free)
    weights = ProgramWeights(source)
    if options.calibrate and options.quantize is not None:
        from .bit_allocation import within_budget  # these import the runtime
        from .calibration import calibrated_weights

        pieces = calibration_pieces(source, options)
        if options.bits_per_weight is not None:
            recipe = within_budget(source, recipe, options.bits_per_weight, pieces[0], sizes, progress)
        weights = calibrated_weights(source, recipe, pieces, sizes, progress)
    notes, losses = _requantized(source, recipe, weights)
    for text in [] if options.quantize == FROM_CHECKPOINT else losses:
        warnings.warn(text, ExportWarning, stacklevel=3)
    figures: dict[str, Any] = {}
    if quality:
        from .quality import measure_quality

        figures = measure_quality(source, recipe, weights, sizes, progress)
    program = trace_program(source, recipe, weights, sizes)
    write_traced(target, program, progress)
    write_tokenizer_files(source, target)
    if quality:
        if layers := layer_results(source.weights.sources, recipe, weights):
            figures["quantized"] = QuantizationReport(layers, [*recipe.notes, *notes], losses).json()
        write_quality(target, figures)
    else:
        quality_path(target).unlink(missing_ok=True)  # of the program that is replaced
    return target


def write_traced(target: Path, program: ProgramFile, progress: OnProgress) -> None:
    """Write a program whose weights are read while they are written, and read it as the runtime does."""
    with output_file(target) as temporary:
        with open(temporary, "wb") as file:
            write_program(cast(BinaryIO, _ProgressWriter(file, progress, _data_size(program))), program)
        _verify(Path(temporary))


def layer_results(sources: Mapping[str, WeightSource], recipe: Recipe, weights: QuantizedWeights) -> list[LayerResult]:
    """Return the format and the error of each layer that was written."""
    kinds = dict(recipe.linears)
    if recipe.embedding != UNQUANTIZED:
        kinds[EMBEDDING] = recipe.embedding
    results = []
    for name, kind in kinds.items():
        rows, columns = sources[f"{name}.weight"].shape
        results.append(LayerResult(name, kind, rows, columns, weights.errors.get(name, 0.0)))
    return results


def trace_program(source: Checkpoint, recipe: Recipe, weights: WeightArrays, sizes: ProgramSizes) -> ProgramFile:
    """Return the program of a checkpoint. Its weights are read when their bytes are viewed."""
    model = source.architecture
    layers = LayerTrace(source.weights.sources, {**recipe.linears, EMBEDDING: recipe.embedding}, weights)
    logits = DecoderTrace(layers, model, sizes.max_context, sizes.max_tokens).logits()
    specs = {"require_dynamic_shapes": b"\1", "alias_buffer_mutations": bytes([model.has_recurrent_state])}
    forward: TracedMethod = layers.method("forward", [logits], specs)
    encoders = [] if source.vision is None else [trace_encoder(source.vision, recipe)]
    metadata = decoder_metadata(source, sizes)
    program = program_of([forward, *encoders], [_constant_method(name, value) for name, value in metadata.items()])
    modules = Span.of("modules of the layers", adapter_modules(source.architecture, source.family.names))
    return replace(program, named_data=MappingProxyType({**program.named_data, MODULES: modules}))


def program_of(methods: Sequence[TracedMethod], constants: Sequence[MethodPlan] = ()) -> ProgramFile:
    """Return the program of methods, and of those that return constants."""
    plans = (*(method.plan for method in methods), *constants)
    named = {name: span for method in methods for name, span in method.named_data.items()}
    return ProgramFile("", 0, plans, MappingProxyType(named))


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
    tower = None if source.vision is None else source.vision.tower
    if tower is not None and tower.rope_sections is not None:
        metadata[SECTIONS_METHOD] = list(tower.rope_sections)
    if tower is not None and tower.bidirectional:
        metadata[BIDIRECTIONAL_METHOD] = True
    return metadata


def _requantized(source: Checkpoint, recipe: Recipe, weights: ProgramWeights) -> tuple[list[str], list[str]]:
    """Return a sentence for each format of the checkpoint that is kept, and one for each whose values are lost.

    Values are lost in layers of as many bits or fewer, unless the program has the codes and scales of the checkpoint.
    """
    kept: Counter[tuple[str, str]] = Counter()
    lost: Counter[tuple[str, str]] = Counter()
    for name, kind in {**recipe.linears, EMBEDDING: recipe.embedding}.items():
        stored = source.weights.stored_type(f"{name}.weight")
        if stored is None or kind == UNQUANTIZED:
            continue
        if weights.is_exact(name, kind):
            kept[stored.name, str(kind)] += 1
        elif kind.bits <= stored.bits:
            lost[stored.name, str(kind)] += 1
    return (
        [first_rounding(count, stored, kind) for (stored, kind), count in kept.items()],
        [second_rounding(count, stored, kind) for (stored, kind), count in lost.items()],
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
