"""Export text encoders and cross-encoders of transformers and sentence-transformers for `webpte.embed`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..builder.options import check_target
from ..checkpoints.checkpoint import check_source
from ..checkpoints.sentence_transformers import POOLINGS, EncoderConfig, read_dense, read_encoder_config
from ..errors import FormatError, InputError, UnsupportedError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..suppress_output import suppress_logs
from ..task_file import write_task
from .lowering import LOWERING_STAGES, Steps, lower_steps, require_executorch
from .pretrained import load_pretrained, read_config, require_transformers
from .sentence_encoder import cross_encoder, dense, sentence_encoder

if TYPE_CHECKING:
    import torch

PathLike = str | os.PathLike[str]
# model_type -> position embeddings that no token uses: some models number positions after the padding token.
MODEL_TYPES = {"bert": 0, "distilbert": 0, "modernbert": 0, "roberta": 2, "xlm-roberta": 2, "mpnet": 2}
# Fields of config.json that would change the mathematics, and that transformers reads no longer.
_PLAIN = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
}
# What is in a checkpoint beside the encoder: heads of its training, positions that are counted here.
_UNUSED = ("pooler.", "cls.", "lm_head.", "head.", "decoder.", "vocab_", "embeddings.position_ids", "qa_outputs.")
_POSITIONS = tuple(f"{name}embeddings.position_ids" for name in ("", "bert.", "roberta.", "distilbert.", "mpnet."))
MAX_TOKENS, MAX_BATCH_TEXTS = 512, 32
MAX_TENSOR_BYTES = 128 << 20  # bytes that a shader of any device can see as one buffer


def export_encoder(
    checkpoint: PathLike,
    path: PathLike,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    max_tokens: int | None = None,
    max_batch: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it `tokenizer.json` and `task.json` under its stem, for `webpte.embed.Embedder.load`.

    `pooling` ("mean", "cls", "max" or "last") and `normalize` default to the model's own. Texts have up to `max_tokens`
    tokens, by default the model's limit, at most 512. One call takes up to `max_batch` texts, by default 32, or fewer
    if a tensor would exceed the limits of common devices.
    """
    target, source = Path(path), Path(checkpoint)
    _check_options(pooling, normalize, max_tokens, max_batch)
    check_target(target)
    check_source(source)
    require_executorch()
    require_transformers()
    sentences = read_encoder_config(source if source.is_dir() else source.parent)
    config = _config(sentences.folder)
    pooling = pooling or sentences.pooling
    if pooling is None:
        raise InputError(
            f"{sentences.folder} does not define a pooling",
            code="pooling",
            hint="Pass pooling, such as --pooling mean.",
        )
    normalize = sentences.normalize if normalize is None else normalize
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING_STAGES])
    steps.next()
    tokens = _max_tokens(sentences, config, max_tokens)
    tokenizer = _tokenizer(sentences.folder, config["vocab_size"])
    bert = load_pretrained("AutoModel", sentences.folder, _UNUSED)
    module, dimensions = _encoder(bert, pooling, normalize, sentences)
    rows = max_batch or _fitting_batch(bert.config, tokens)
    _lower(module, target, rows, tokens, steps)
    target.with_name(f"{target.stem}.tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    fields = {"dimensions": dimensions, "pooling": pooling, "normalize": normalize, "max_tokens": tokens,
              "pad": tokenizer.pad, "lowercase": sentences.lowercase, "prompts": dict(sentences.prompts),
              "default_prompt": sentences.default_prompt}  # fmt: skip
    write_task(target, "embedding", fields)
    return target


def export_reranker(
    checkpoint: PathLike,
    path: PathLike,
    *,
    max_tokens: int | None = None,
    max_batch: int | None = None,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write `path`, and beside it `tokenizer.json` and `task.json` under its stem, for `webpte.embed.Reranker.load`.

    The checkpoint is a cross-encoder: a classifier of two texts with one score. `max_tokens` and `max_batch` are those
    of `export_encoder`, of pairs.
    """
    target, source = Path(path), Path(checkpoint)
    _check_options(None, None, max_tokens, max_batch)
    check_target(target)
    check_source(source)
    require_executorch()
    require_transformers()
    folder = source if source.is_dir() else source.parent
    config = _config(folder)
    steps = Steps(cancellable(progress, cancel), ["read", *LOWERING_STAGES])
    steps.next()
    tokens = _max_tokens(EncoderConfig(folder), config, max_tokens)
    tokenizer = _tokenizer(folder, config["vocab_size"])
    if tokenizer.separator is None:
        raise UnsupportedError(
            f"{folder}: the tokenizer has no token between two texts", ["sep_token"], code="no_separator"
        )
    model = load_pretrained("AutoModelForSequenceClassification", folder, _POSITIONS)
    if model.config.num_labels != 1:
        raise UnsupportedError(
            items=["num_labels"],
            argument=f"{folder / 'config.json'}: labels",
            expected="one, the score of a pair",
            got=model.config.num_labels,
            code="labels",
        )
    segments = getattr(model.config, "type_vocab_size", 0) > 1
    rows = max_batch or _fitting_batch(model.config, tokens)
    _lower(cross_encoder(model, segments), target, rows, tokens, steps, inputs=3 if segments else 2)
    target.with_name(f"{target.stem}.tokenizer.json").write_text(tokenizer.text, encoding="utf-8")
    write_task(target, "reranking", {"max_tokens": tokens, "pad": tokenizer.pad, "separator": tokenizer.separator})
    return target


def _check_options(pooling: object, normalize: object, max_tokens: object, max_batch: object) -> None:
    if pooling is not None and pooling not in POOLINGS.values():
        raise InputError(
            argument="pooling", expected=f"one of {', '.join(POOLINGS.values())}", got=repr(pooling), code="pooling"
        )
    if normalize is not None and not isinstance(normalize, bool):
        raise InputError(argument="normalize", expected="True or False", got=repr(normalize), code="normalize")
    for name, value, minimum in (("max_tokens", max_tokens, 2), ("max_batch", max_batch, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
            raise InputError(argument=name, expected=f"an integer of at least {minimum}", got=repr(value), code=name)


def _config(folder: Path) -> dict[str, Any]:
    config = read_config(folder, MODEL_TYPES, "text encoders")
    refused = [f"{name} is {config[name]!r}" for name, plain in _PLAIN.items() if config.get(name) not in plain]
    if refused:
        raise UnsupportedError(
            f"{folder / 'config.json'}: {', '.join(refused)}, which is not supported", refused, code="unsupported_field"
        )
    if not isinstance(config.get("vocab_size"), int):
        raise FormatError(f"{folder / 'config.json'}: missing field vocab_size", code="missing_field")
    return config


def _max_tokens(sentences: EncoderConfig, config: dict[str, Any], requested: int | None) -> int:
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int):
        raise FormatError(
            f"{sentences.folder / 'config.json'}: missing field max_position_embeddings", code="missing_field"
        )
    available = positions - MODEL_TYPES[config["model_type"]]
    if requested is not None and requested > available:
        raise InputError(
            argument="max_tokens",
            expected=f"at most the model's positions, for {available} tokens",
            got=requested,
            code="max_tokens",
        )
    return requested or min(sentences.max_tokens or available, available, MAX_TOKENS)


def _fitting_batch(config: Any, tokens: int) -> int:
    """Return the number of texts in a call for which no tensor exceeds MAX_TENSOR_BYTES."""
    hidden = getattr(config, "intermediate_size", 4 * config.hidden_size)
    widest = int(max(config.num_attention_heads * tokens, hidden))
    return max(1, min(MAX_BATCH_TEXTS, MAX_TENSOR_BYTES // (4 * tokens * widest)))


class _TokenizerFile(NamedTuple):
    """tokenizer.json as transformers loads it, and the ids of tokens that it does not name."""

    text: str
    pad: int
    separator: int | None  # between two texts


def _tokenizer(folder: Path, vocabulary: int) -> _TokenizerFile:
    with suppress_logs():
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            text = str(tokenizer.backend_tokenizer.to_str())
        except (OSError, ValueError, KeyError, AttributeError, ImportError) as error:
            raise FormatError(f"{folder}: the tokenizer cannot be read: {error}", code="tokenizer") from error
    if len(tokenizer) > vocabulary:
        raise FormatError(
            argument=f"{folder}: tokenizer",
            expected=f"at most the model's {vocabulary} tokens",
            got=len(tokenizer),
            code="tokenizer",
        )
    return _TokenizerFile(text, int(tokenizer.pad_token_id or 0), tokenizer.sep_token_id)


def _encoder(bert: Any, pooling: str, normalize: bool, sentences: EncoderConfig) -> tuple[torch.nn.Module, int]:
    """Return the module, and the size of its vectors."""
    layers = [dense(folder, read_dense(folder)) for folder in sentences.dense]
    width = int(bert.config.hidden_size)
    for folder, layer in zip(sentences.dense, layers, strict=True):
        if layer[0].in_features != width:
            raise FormatError(
                argument=f"{folder}: in_features",
                expected=f"the size of its input, {width}",
                got=layer[0].in_features,
                code="tensor_shape",
            )
        width = int(layer[0].out_features)
    return sentence_encoder(bert, pooling, layers, normalize), width


def _lower(module: torch.nn.Module, target: Path, rows: int, tokens: int, steps: Steps, inputs: int = 2) -> None:
    """Lower a module with this number of inputs of one shape: tokens, a mask, and segments."""
    import torch

    # Two rows: torch.export specializes a size of one as a constant.
    ids = torch.ones(min(2, rows), min(5, tokens), dtype=torch.long)
    dims = {1: torch.export.Dim("tokens", min=2, max=tokens)}
    if rows > 1:
        dims[0] = torch.export.Dim("texts", min=1, max=rows)
    lower_steps(
        module,
        (ids, *(torch.ones_like(ids) for _ in range(inputs - 1))),
        (dims,) * inputs,
        steps,
        path=target,
        options={"require_dynamic_shapes": True},
        constant_methods=None,
        strict=False,
    )
