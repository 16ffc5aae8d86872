"""Read folders of sentence-transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from ..fields import ReadFields
from ..json_files import read_json, read_json_object
from .config import is_token_id

# Fields of 1_Pooling/config.json -> names here. Other modes, such as weightedmean, are refused if enabled.
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_MODES = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}  # values of pooling_mode in newer versions
ACTIVATIONS = ("Identity", "Tanh")  # of a Dense module
_FOLDER = re.compile(r"\w[\w-]{,127}")
_SIZES = {"word_embedding_dimension", "embedding_dimension"}


@dataclass(frozen=True)
class EncoderConfig:
    """How texts are encoded, as far as the folder defines it."""

    folder: Path  # of the transformer
    pooling: str | None = None
    normalize: bool = False
    dense: tuple[Path, ...] = ()  # folders of linears after the pooling
    max_tokens: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


def read_encoder_config(folder: Path) -> EncoderConfig:
    """Read the folder of an encoder. A folder without modules.json is a transformer without pooling."""
    if not (folder / "modules.json").exists():
        return EncoderConfig(folder)
    modules = read_modules(folder)
    kinds, paths = [kind for kind, _ in modules], [folder / part for _, part in modules]
    middle = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in middle):
        raise UnsupportedError(
            items=kinds,
            argument=str(folder / "modules.json"),
            expected="Transformer, Pooling, any number of Dense, and optionally Normalize",
            got=", ".join(kinds),
            code="unknown_module",
        )
    prompts, default = _prompts(folder / "config_sentence_transformers.json")
    max_tokens, lowercase = _text(paths[0] / "sentence_bert_config.json")
    return EncoderConfig(
        folder=paths[0],
        pooling=_pooling(paths[1] / "config.json", bool(prompts)),
        normalize=kinds[-1] == "Normalize",
        dense=tuple(paths[2 : 2 + len(middle)]),
        max_tokens=max_tokens,
        lowercase=lowercase,
        prompts=prompts,
        default_prompt=default,
    )


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return kind and folder of each module in modules.json; "" is the folder itself."""
    path = folder / "modules.json"
    listed = read_json(path)
    try:
        modules = [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in listed]
    except (TypeError, KeyError) as error:
        raise FormatError(
            argument=str(path), expected="a list of modules with type and path", got=repr(error), code="modules"
        ) from error
    if not modules:
        raise FormatError(argument=str(path), expected="at least one module", got="none", code="modules")
    if paths := [part for _, part in modules if part and not _FOLDER.fullmatch(part)]:
        raise FormatError(
            argument=str(path), expected="names of folders beside it", got=repr(paths[0]), code="file_name"
        )
    return modules


def read_answer_tokens(folder: Path) -> tuple[int, int] | None:
    """Return the tokens that say yes and no, if modules.json ranks by the logits of a language model; else None."""
    if not (folder / "modules.json").exists():
        return None
    modules = read_modules(folder)
    if [kind for kind, _ in modules] != ["Transformer", "LogitScore"]:
        return None
    path = folder / modules[1][1] / "config.json"
    fields = ReadFields(str(path), read_json_object(path))
    yes, no = fields.get("true_token_id"), fields.get("false_token_id")
    fields.warn_unread(lambda name: False, {})
    if modules[0][1] or not is_token_id(yes) or not is_token_id(no):
        raise UnsupportedError(
            items=["LogitScore"],
            argument=str(path),
            expected="true_token_id and false_token_id, beside a transformer without a folder of its own",
            got=f"{yes!r}, {no!r} and the folder {modules[0][1]!r}",
            code="reranker_tokens",
        )
    return fields.values["true_token_id"], fields.values["false_token_id"]


def _pooling(path: Path, prompts: bool) -> str:
    config = read_json_object(path)
    if config.pop("include_prompt", True) is not True and prompts:
        raise UnsupportedError(
            f"{path}: include_prompt is false; the tokens of prompts are always pooled",
            ["include_prompt"],
            code="pooling",
        )
    modes = {name: value for name, value in config.items() if name not in _SIZES}
    if isinstance(mode := modes.get("pooling_mode"), str):
        if mode in _MODES and len(modes) == 1:
            return _MODES[mode]
        raise UnsupportedError(
            items=["pooling_mode"],
            argument=f"{path}: pooling_mode",
            expected=f"one of {', '.join(_MODES)}",
            got=mode,
            code="pooling",
        )
    chosen = [name for name, on in modes.items() if on is not False]
    if len(chosen) != 1 or chosen[0] not in POOLINGS or modes[chosen[0]] is not True:
        raise UnsupportedError(
            items=chosen,
            argument=str(path),
            expected=f"one enabled mode of {', '.join(POOLINGS)}",
            got=", ".join(chosen) or "none",
            code="pooling",
        )
    return POOLINGS[chosen[0]]


def _text(path: Path) -> tuple[int | None, bool]:
    """Return the limit of tokens, and whether texts are lowercased before tokenization."""
    config = read_json_object(path) if path.exists() else {}
    limit, lower = config.pop("max_seq_length", None), config.pop("do_lower_case", False)
    if unknown := [name for name, value in config.items() if value not in ({}, None)]:
        raise UnsupportedError(f"{path}: unknown field {', '.join(unknown)}", unknown, code="unsupported_field")
    if not isinstance(lower, bool) or not (limit is None or (isinstance(limit, int) and limit > 1)):
        raise FormatError(
            argument=f"{path}: max_seq_length and do_lower_case",
            expected="an integer above 1 and a boolean",
            got=f"{limit!r} and {lower!r}",
            code="invalid_field",
        )
    return limit, lower


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    fields = ReadFields(str(path), read_json_object(path) if path.exists() else {})
    prompts, default = fields.get("prompts", {}), fields.get("default_prompt_name")
    fields.warn_unread({"__version__", "model_type", "similarity_fn_name"}.__contains__, {})
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise FormatError(
            argument=f"{path}: prompts", expected="strings by name", got=repr(prompts), code="invalid_field"
        )
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise FormatError(
            argument=f"{path}: default_prompt_name",
            expected="the name of a prompt",
            got=repr(default),
            code="invalid_field",
        )
    # Newer versions write empty prompts for every model.
    return {name: text for name, text in prompts.items() if text or name == default}, default


def read_dense(folder: Path) -> dict[str, Any]:
    """Return the sizes, the bias and the activation (a class of torch.nn) of a Dense module."""
    path = folder / "config.json"
    config = read_json_object(path)
    layer = {
        "in": config.pop("in_features", None),
        "out": config.pop("out_features", None),
        "bias": config.pop("bias", True),
        "activation": str(config.pop("activation_function", "Tanh")).rpartition(".")[2],
    }
    unknown = [name for name, value in config.items() if value is not None]
    if unknown or layer["activation"] not in ACTIVATIONS:
        raise UnsupportedError(
            f"{path}: unsupported {', '.join(unknown) or layer['activation']}",
            unknown or ["activation_function"],
            code="unsupported_field",
            hint=f"Supported activations are {', '.join(ACTIVATIONS)}.",
        )
    if not all(isinstance(layer[name], int) for name in ("in", "out")) or not isinstance(layer["bias"], bool):
        raise FormatError(
            argument=str(path),
            expected="in_features, out_features and bias of a linear",
            got=layer,
            code="invalid_field",
        )
    return layer
