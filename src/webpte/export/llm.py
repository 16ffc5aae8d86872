"""Export the checkpoint of a language model as a program for `webpte generate`."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..builder.calibration_texts import calibration_pieces
from ..builder.context import ProgramSizes
from ..builder.llm import FROM_CHECKPOINT, build_program, decoder_metadata
from ..builder.options import ExportWarning, LLMOptions, check_disk_space, check_target
from ..checkpoints.checkpoint import check_source, read_checkpoint, write_tokenizer_files
from ..checkpoints.family import Checkpoint
from ..checkpoints.recipe import AUTO
from ..errors import InputError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..suppress_output import suppress_kernel_messages, suppress_logs
from .decoder_module import empty_module, fill
from .lowering import LOWERING_STAGES, Steps, lower_steps, require_executorch
from .quantization import QuantizationReport, apply_recipe
from .quantization.bit_allocation import within_budget
from .quantization.quantize import shapes_of
from .report import quality_measure, quality_path, write_quality

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]
EXPORTERS = ("auto", "builder", "torch")


def export_llm(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = None,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    bits_per_weight: float | None = None,
    calibrate: bool | PathLike = True,
    max_context: int | None = None,
    max_tokens: int | None = None,
    quality: bool | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` under its stem.

    `quantize` is "4w", "8w", "8da4w" or "auto". `embedding` is "8", "none", or bits and group size such as "4,32".
    `lm_head` is "8", "none", or "4" for the format of the layers. If layers are quantized, both default to "8".
    "auto" is "4w" with as many layers in 8 bits as `bits_per_weight` allows: those that lose the most.
    `calibrate` rounds weights for their inputs while the model reads a text: the built-in text, or that of a file.
    The KV cache has `max_context` tokens: by default those of the model's own context, at most 8,192. One call takes
    fewer than `max_tokens` tokens, by default 256; longer prompts are processed in chunks.

    A quantized model is measured against the float model, and the figures are written beside the program as
    `quality.json`. A model of over 2 GB is measured only with `quality=True`, and no model with `quality=False`.
    Layers whose format in the checkpoint has no equivalent in the program are quantized again, with an
    `ExportWarning`.
    """
    target = Path(path)
    options = LLMOptions(
        quantize=quantize,
        group_size=group_size,
        embedding=embedding,
        lm_head=lm_head,
        bits_per_weight=bits_per_weight,
        calibrate=calibrate,
        max_context=max_context,
        max_tokens=max_tokens,
    )
    options.check()
    check_target(target)
    check_source(Path(checkpoint))
    require_executorch()
    report = cancellable(progress, cancel)
    steps = Steps(report, ["read", "build", *LOWERING_STAGES])
    steps.next()
    source = read_checkpoint(Path(checkpoint))
    options.check_fit(source)
    sizes = options.sizes(source)
    check_disk_space(target, options.weight_bytes(source))
    steps.next()
    requested = False if quality is None and (quantize or embedding) is None else quality
    with suppress_logs(), suppress_kernel_messages():
        module = empty_module(source, sizes.max_context, sizes.max_tokens)
        with quality_measure(module, source, sizes, requested, report) as measure:
            layers = quantize_module(module, source, options, report)
            figures = measure(module)
    for text in layers.warnings:
        warnings.warn(text, ExportWarning, stacklevel=2)
    _lower(module, source, target, sizes, steps)
    write_tokenizer_files(source, target)
    if figures is None:
        quality_path(target).unlink(missing_ok=True)  # of the program that is replaced
    else:
        write_quality(target, {"bytes": target.stat().st_size, **figures, "quantized": layers.json()})
    return target


def export_language_model(
    checkpoint: PathLike,
    path: PathLike,
    *,
    exporter: str = "auto",
    quantize: str | None = None,
    group_size: int = 32,
    embedding: str | None = None,
    lm_head: str | None = None,
    bits_per_weight: float | None = None,
    calibrate: bool | PathLike | None = None,
    max_context: int | None = None,
    max_tokens: int | None = None,
    quality: bool | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Build a program without torch if the options allow it; otherwise export it with `export_llm`.

    `exporter` is "auto", "builder" or "torch". Measured quality and "auto" need torch. If layers are quantized
    to a format that is named, `calibrate` is on unless it is false.
    """
    if exporter not in EXPORTERS:
        raise InputError(
            argument="exporter", expected=f"one of {', '.join(EXPORTERS)}", got=repr(exporter), code="exporter"
        )
    needed = _torch_reason(quantize, bits_per_weight, quality)
    if exporter == "builder" and needed is not None:
        raise InputError(
            argument="exporter",
            expected=f"'torch' or 'auto', since {needed}",
            got=repr(exporter),
            code="exporter",
        )
    sizes = {"group_size": group_size, "embedding": embedding, "lm_head": lm_head}
    common: dict[str, Any] = {**sizes, "max_context": max_context, "max_tokens": max_tokens}
    common["calibrate"] = quantize != FROM_CHECKPOINT if calibrate is None else calibrate
    if exporter != "torch" and needed is None:
        return build_program(checkpoint, path, quantize=quantize, **common, progress=progress, cancel=cancel)
    if quantize == FROM_CHECKPOINT:
        raise InputError(
            argument="quantize",
            expected="'4w', '8w', '8da4w' or 'auto' with torch",
            got=repr(quantize),
            code="quantize",
        )
    common["bits_per_weight"] = bits_per_weight
    return export_llm(checkpoint, path, quantize=quantize, **common, quality=quality, progress=progress, cancel=cancel)


def _torch_reason(quantize: str | None, bits_per_weight: float | None, quality: bool | None) -> str | None:
    """Return why options need torch, or None if they do not."""
    if quantize == AUTO or bits_per_weight is not None:
        return f"torch chooses the formats of {AUTO}"
    return "torch measures the quality of a program" if quality else None


def quantized_module(source: Checkpoint, options: LLMOptions) -> tuple[torch.nn.Module, QuantizationReport]:
    """Return the module that is exported, and the report of its quantization."""
    with suppress_logs(), suppress_kernel_messages():
        sizes = options.sizes(source)
        module = empty_module(source, sizes.max_context, sizes.max_tokens)
        return module, quantize_module(module, source, options)


def quantize_module(
    module: torch.nn.Module, source: Checkpoint, options: LLMOptions, progress: OnProgress = ignore
) -> QuantizationReport:
    """Quantize a module in place; read each weight when it is needed, and drop it when it is quantized."""
    pieces = calibration_pieces(source, options) if options.quantize is not None and options.calibrate else []
    recipe = options.recipe(shapes_of(module))
    if options.bits_per_weight is not None:
        fill(module, source)  # the loss of one layer is measured with all others in float
        recipe = within_budget(module, recipe, options.bits_per_weight, pieces, progress)
    formats = {name.removesuffix(".weight"): kind for name, kind in source.weights.formats().items()}
    read = functools.partial(fill, module, source)
    report = apply_recipe(module, recipe, pieces=pieces, formats=formats, read=read, progress=progress)
    fill(module, source)  # parameters that are not quantized
    return report


def _lower(module: torch.nn.Module, source: Checkpoint, path: Path, sizes: ProgramSizes, steps: Steps) -> None:
    import torch

    # Two tokens: torch.export specializes a size of one as a constant.
    example = (torch.tensor([[1, 2]]), {"input_pos": torch.tensor([0])})
    shapes = ({1: torch.export.Dim("tokens", max=sizes.max_tokens - 1)}, {"input_pos": {0: 1}})
    lower_steps(
        module,
        example,
        shapes,
        steps,
        path=path,
        options={"require_dynamic_shapes": True, "alias_buffer_mutations": source.architecture.has_recurrent_state},
        constant_methods=decoder_metadata(source, sizes),
    )
