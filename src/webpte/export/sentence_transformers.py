"""Read folders of sentence-transformers, and build the modules that follow the transformer: pooling and linears."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, UnsupportedError
from .hugging_face import read_json

if TYPE_CHECKING:
    import torch

# 1_Pooling/config.json -> our names. Of the others there, such as weightedmean, none may be on.
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_MODES = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}  # as newer versions write it
ACTIVATIONS = ("Identity", "Tanh")  # of a Dense module
_FOLDER = re.compile(r"\w[\w-]*")
_SIZES = {"word_embedding_dimension", "embedding_dimension"}


@dataclass(frozen=True)
class EncoderConfig:
    """How texts are encoded, as far as the folder says."""

    folder: Path  # of the transformer
    pooling: str | None = None
    normalize: bool = False
    dense: tuple[Path, ...] = ()  # folders of linears after the pooling
    max_tokens: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None


def read_encoder_config(folder: Path) -> EncoderConfig:
    """A folder without modules.json is a transformer alone, which does not say how to pool."""
    if not (folder / "modules.json").exists():
        return EncoderConfig(folder)
    modules = read_modules(folder)
    kinds, paths = [kind for kind, _ in modules], [folder / part for _, part in modules]
    middle = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in middle):
        raise UnsupportedError(
            f"{folder / 'modules.json'} lists {', '.join(kinds)}; what is understood is Transformer, Pooling, any "
            "number of Dense, and perhaps Normalize",
            kinds,
            code="unknown_module",
        )
    prompts, default = _prompts(folder / "config_sentence_transformers.json")
    max_tokens, lowercase = _text(paths[0] / "sentence_bert_config.json")
    return EncoderConfig(
        paths[0],
        _pooling(paths[1] / "config.json", bool(prompts)),
        kinds[-1] == "Normalize",
        tuple(paths[2 : 2 + len(middle)]),
        max_tokens,
        lowercase,
        prompts,
        default,
    )


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module, as modules.json names them: the folder may be "", the whole one."""
    path = folder / "modules.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        found = [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in listed]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{path} is no list of modules with type and path: {error!r}") from error
    if not found:
        raise FormatError(f"{path} lists no modules")
    if odd := [part for _, part in found if part and not _FOLDER.fullmatch(part)]:
        raise FormatError(f"{path} names {odd[0]!r}, which is no folder beside it", code="file_name")
    return found


def _pooling(path: Path, prompts: bool) -> str:
    config = read_json(path)
    if config.pop("include_prompt", True) is not True and prompts:
        raise UnsupportedError(f"{path}: include_prompt is false, and prompts are pooled here", ["include_prompt"])
    modes = {name: value for name, value in config.items() if name not in _SIZES}
    if isinstance(told := modes.get("pooling_mode"), str):
        if told in _MODES and len(modes) == 1:
            return _MODES[told]
        raise UnsupportedError(f"{path}: pooling_mode is {told}; understood are {', '.join(_MODES)}", ["pooling_mode"])
    chosen = [name for name, on in modes.items() if on is not False]
    if len(chosen) != 1 or chosen[0] not in POOLINGS or modes[chosen[0]] is not True:
        raise UnsupportedError(
            f"{path}: {', '.join(chosen) or 'nothing'} is on; one of {', '.join(POOLINGS)} is understood", chosen
        )
    return POOLINGS[chosen[0]]


def _text(path: Path) -> tuple[int | None, bool]:
    """The most tokens, and whether texts are put in lower case before the tokenizer sees them."""
    config = read_json(path) if path.exists() else {}
    most, lower = config.pop("max_seq_length", None), config.pop("do_lower_case", False)
    if strange := [name for name, value in config.items() if value not in ({}, None)]:
        raise UnsupportedError(f"{path}: {', '.join(strange)} may change how texts are read, and is unknown", strange)
    if not isinstance(lower, bool) or not (most is None or (isinstance(most, int) and most > 1)):
        raise FormatError(f"{path}: max_seq_length is {most!r}, do_lower_case is {lower!r}")
    return most, lower


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    config: dict[str, Any] = read_json(path) if path.exists() else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise FormatError(f"{path}: prompts are texts by name, not {prompts!r}")
    if default is not None and default not in prompts:
        raise FormatError(f"{path}: default_prompt_name is {default!r}, which is none of its prompts")
    # Newer versions write empty prompts for every model.
    return {name: text for name, text in prompts.items() if text or name == default}, default


def read_dense(folder: Path) -> dict[str, Any]:
    """A linear and its activation: sizes, `bias`, and the name of the activation in torch."""
    path = folder / "config.json"
    config = read_json(path)
    found = {
        "in": config.pop("in_features", None),
        "out": config.pop("out_features", None),
        "bias": config.pop("bias", True),
        "activation": str(config.pop("activation_function", "Tanh")).rpartition(".")[2],
    }
    odd = [name for name, value in config.items() if value is not None]
    if odd or found["activation"] not in ACTIVATIONS:
        raise UnsupportedError(
            f"{path}: {', '.join(odd) or found['activation']} is not understood; activations are "
            f"{', '.join(ACTIVATIONS)}",
            odd or ["activation_function"],
        )
    if not all(isinstance(found[name], int) for name in ("in", "out")) or not isinstance(found["bias"], bool):
        raise FormatError(f"{path} has no in_features, out_features and bias of a linear: {found}")
    return found


def sentence_encoder(
    bert: torch.nn.Module, pooling: str, layers: Sequence[torch.nn.Module], normalize: bool
) -> torch.nn.Module:
    """Tokens and their mask (B, T), 1 for a token and 0 behind the end, to vectors (B, D)."""
    import torch

    class SentenceEncoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert
            self.layers = torch.nn.Sequential(*layers)

        def forward(self, tokens: Any, mask: Any) -> Any:
            hidden = self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state  # (B, T, C)
            vector = self.layers(pooled(hidden, mask, pooling))  # (B, D)
            return torch.nn.functional.normalize(vector, dim=1) if normalize else vector

    return SentenceEncoder().eval()


def pooled(hidden: Any, mask: Any, pooling: str) -> Any:
    """Vectors of tokens (B, T, C) to one of each text (B, C)."""
    import torch

    if pooling == "cls":
        return hidden[:, 0]
    kept = mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
    if pooling == "max":
        return (hidden + (kept - 1) * 1e9).amax(1)
    if pooling == "mean":
        return (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
    count = mask.sum(1, keepdim=True)  # (B, 1)
    last = torch.arange(1, mask.shape[1] + 1, device=mask.device).unsqueeze(0) == count  # (B, T)
    return (hidden * last.unsqueeze(-1).to(hidden.dtype)).sum(1)


def dense(folder: Path, config: Mapping[str, Any]) -> torch.nn.Sequential:
    """A linear with its activation, of a Dense module of sentence-transformers."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    linear = torch.nn.Linear(config["in"], config["out"], bias=config["bias"])
    try:
        weights = load_file(folder / "model.safetensors")
        linear.load_state_dict({name.removeprefix("linear."): tensor.float() for name, tensor in weights.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise FormatError(
            f"{folder / 'model.safetensors'} does not hold the linear of {dict(config)}: {error}"
        ) from error
    return torch.nn.Sequential(linear, getattr(torch.nn, config["activation"])())
