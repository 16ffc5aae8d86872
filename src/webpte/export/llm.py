"""Export the checkpoint of a language model as a program for `webpte generate`."""

from __future__ import annotations

import functools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..llm.context import LIMIT_METHOD
from ..progress import CancelToken, OnProgress, cancellable, ignore
from .checkpoint import check_source, read_checkpoint, write_tokenizer_files
from .context import ProgramSizes
from .family import Checkpoint, empty_module, fill
from .lowering import LOWERING_STAGES, Steps, lower_steps, require_executorch
from .options import ExportWarning, LLMOptions, check_disk_space, check_target
from .quantization import QuantizationReport, apply_recipe
from .quantization.bit_allocation import within_budget
from .quantization.calibration import calibration_text, chat_pieces, token_pieces
from .quantization.quantize import shapes_of
from .report import quality_measure, quality_path, write_quality
from .suppress_output import suppress_kernel_messages, suppress_logs

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]


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


def calibration_pieces(source: Checkpoint, options: LLMOptions) -> list[list[int]]:
    """Return the tokens that a model reads for calibration: a text in pieces, and conversations for its template."""
    size, vocabulary = options.sizes(source).max_tokens - 1, source.architecture.vocab_size
    pieces = token_pieces(source.tokenizer, calibration_text(options.calibrate), size, vocabulary)
    if options.calibrate is True and source.chat_template is not None:
        pieces += chat_pieces(source.tokenizer, source.chat_template, source.special_tokens, size, vocabulary)
    return pieces


def _lower(module: torch.nn.Module, source: Checkpoint, path: Path, sizes: ProgramSizes, steps: Steps) -> None:
    import torch

    # Two tokens: torch.export specialises a size of one as a constant.
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
