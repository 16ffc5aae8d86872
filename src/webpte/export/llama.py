"""From a Llama-family checkpoint to a program that `webpte generate` runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError
from ..progress import CancelToken, OnProgress, ignore, stoppable
from .checkpoint import Checkpoint, check_source, read_checkpoint
from .lowering import LOWERING, Steps, lower_steps, quantize_linears, quiet, require_executorch
from .options import Options, check_target

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]


def export_llama(
    checkpoint: PathLike,
    path: PathLike,
    *,
    quantize: str | None = None,
    group_size: int = 32,
    embedding: str | None = None,
    max_context: int = 1024,
    max_tokens: int = 256,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` under its stem.

    `quantize` is "4w" or "8da4w", `embedding` bits and group size such as "4,32". One call takes fewer than
    `max_tokens` tokens; longer prompts are fed in pieces.
    """
    target = Path(path)
    options = Options(quantize, group_size, embedding, max_context, max_tokens)
    options.check()
    check_target(target)
    check_source(Path(checkpoint))
    require_executorch()
    steps = Steps(stoppable(progress, cancel), ["read", "build", *LOWERING])
    steps.next()
    source = read_checkpoint(Path(checkpoint))
    options.check_fit(source)
    steps.next()
    with quiet():
        module = _with_fused_attention(_build(source, max_context, max_tokens))
        module = _quantize_embedding(module, embedding)
    if quantize is not None:
        module = quantize_linears(module, quantize, group_size)
    _lower(module, source, target, max_context, max_tokens, steps)
    write_language(source, target)
    return target


def write_language(source: Checkpoint, target: Path) -> None:
    """What turns text into tokens and back, beside a program."""
    texts = {"tokenizer.json": source.tokenizer, "chat_template.jinja": source.chat_template}
    if source.special_tokens:
        texts["tokenizer_config.json"] = json.dumps(dict(source.special_tokens), indent=2, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        if text is not None:
            target.with_name(f"{target.stem}.{name}").write_text(text, encoding="utf-8")


def _build(source: Checkpoint, max_context: int, max_tokens: int) -> torch.nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    arguments = ModelArgs(
        **source.arguments,
        max_seq_len=max_tokens,
        max_context_len=max_context,
        use_kv_cache=True,
        use_sdpa_with_kv_cache_op=True,
        enable_dynamic_shape=True,
    )
    module: torch.nn.Module = construct_transformer(arguments).eval()
    missing, unknown = module.load_state_dict(dict(source.weights()), strict=False)
    learned = {name for name, _ in module.named_parameters()}
    if unknown or learned & set(missing):
        absent = sorted(learned & set(missing))
        raise FormatError(f"the checkpoint does not fit the model: missing {absent[:5]}, unknown {unknown[:5]}")
    return module


def _with_fused_attention(module: torch.nn.Module) -> torch.nn.Module:
    from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
        replace_kv_cache_with_custom_kv_cache,
    )
    from executorch.examples.models.llama.source_transformation.sdpa import replace_sdpa_with_custom_op

    # The caches are recognised only behind the fused attention: this order.
    done: torch.nn.Module = replace_kv_cache_with_custom_kv_cache(replace_sdpa_with_custom_op(module))
    return done


def _quantize_embedding(module: torch.nn.Module, embedding: str | None) -> torch.nn.Module:
    if embedding is None:
        return module
    from executorch.examples.models.llama.source_transformation.quantize import get_quant_embedding_transform

    done: torch.nn.Module = get_quant_embedding_transform(embedding, False)(module)
    return done


def _lower(
    module: torch.nn.Module, source: Checkpoint, path: Path, max_context: int, max_tokens: int, steps: Steps
) -> None:
    import torch

    # Two tokens: a size of one would be taken for a constant.
    example = (torch.tensor([[1, 2]]), {"input_pos": torch.tensor([0])})
    shapes = ({1: torch.export.Dim("tokens", max=max_tokens - 1)}, {"input_pos": {0: 1}})
    lower_steps(
        module,
        example,
        shapes,
        steps,
        path=path,
        options={"require_dynamic_shapes": True},
        constant_methods=_metadata(source, max_context, max_tokens),
        cancel_transposes=True,
    )


def _metadata(source: Checkpoint, max_context: int, max_tokens: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "get_max_seq_len": max_tokens,
        "get_max_context_len": max_context,
        "get_n_layers": source.arguments["n_layers"],
        "get_vocab_size": source.arguments["vocab_size"],
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    if source.bos_id is not None:
        metadata["get_bos_id"] = source.bos_id
    if source.eos_ids:
        metadata["get_eos_ids"] = list(source.eos_ids)
    return metadata
