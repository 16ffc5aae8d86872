"""Folders as Hugging Face's transformers saves them: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .checkpoint import HUGGING_FACE, Checkpoint, Place, check_sizes, places, refuse_tensors, tie_output
from .config_fields import HARMLESS, RULES
from .fields import Fields, Neutral, refuse_fields

_MODEL_TYPES = ("llama", "mistral")
_FLOATS = ("F64", "F32", "F16", "BF16")
_REMEDY = "If you know that an unknown field changes nothing, take it out of config.json."


def read_folder(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    fields = Fields(str(folder / "config.json"), config)
    if config.get("model_type") not in _MODEL_TYPES:
        raise UnsupportedError(
            f"{folder} holds a {config.get('model_type')} model; Llama-family checkpoints are supported",
            ["model_type"],
        )
    arguments = _arguments(fields)
    size = arguments["dim"] / arguments["n_heads"]
    head_dim = Neutral((size,), f"heads of another size than hidden_size / num_attention_heads, {size:g}")
    refuse_fields(fields, HARMLESS, RULES | {"head_dim": head_dim}, _REMEDY)
    check_sizes(fields.where, arguments)
    if (folder / "adapter_config.json").exists():
        raise UnsupportedError(f"{folder} has an adapter_config.json: merge the adapter into the weights first")
    tied = config.get("tie_word_embeddings") is True
    found = _find_tensors(folder, fields)
    wanted = places(HUGGING_FACE, arguments)
    refuse_tensors(str(folder), {name: shape for name, (_, shape) in found.items()}, wanted, tied)
    eos = config.get("eos_token_id")
    return Checkpoint(
        arguments,
        lambda: _read_weights(folder, {name: file for name, (file, _) in found.items()}, wanted, arguments, tied),
        _read_text(folder / "tokenizer.json"),
        _chat_template(folder),
        config.get("bos_token_id"),
        tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
        _special_tokens(folder),
        window=_window(fields),
    )


# ---------------------------------------------------------------- config.json


def _arguments(fields: Fields) -> dict[str, Any]:
    fields.need(
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "rms_norm_eps"
    )
    heads = fields.whole("num_attention_heads")
    return {
        "dim": fields.whole("hidden_size"),
        "n_layers": fields.whole("num_hidden_layers"),
        "n_heads": heads,
        "n_kv_heads": fields.whole("num_key_value_heads", heads),
        "hidden_dim": fields.whole("intermediate_size"),
        "vocab_size": fields.whole("vocab_size"),
        "norm_eps": fields.real("rms_norm_eps"),
        "rope_freq_base": _rope_theta(fields),
    }


def _rope_theta(fields: Fields) -> float:
    """Older versions of transformers keep it apart, newer ones with the other settings of rotary embeddings."""
    bases = {"rope_theta": fields.values.get("rope_theta")}
    for name in ("rope_parameters", "rope_scaling"):
        rope = fields.values.get(name)
        if isinstance(rope, dict):
            bases[f"{name}.rope_theta"] = rope.get("rope_theta")
    told = {name: value for name, value in bases.items() if value is not None}
    if any(value != next(iter(told.values())) for value in told.values()):
        raise FormatError(f"{fields.where} contradicts itself: {', '.join(f'{n} is {v}' for n, v in told.items())}")
    return Fields(fields.where, told).real(next(iter(told), "rope_theta"), 10000.0)


def _window(fields: Fields) -> int | None:
    if "sliding_window" not in fields.values and fields.values["model_type"] == "mistral":
        return 4096  # what transformers takes where Mistral's config.json leaves it out
    return fields.whole("sliding_window") if fields.values.get("sliding_window") is not None else None


# ---------------------------------------------------------------- tensors


def _find_tensors(folder: Path, fields: Fields) -> dict[str, tuple[Path, tuple[int, ...]]]:
    """File and shape of every tensor but those the model computes itself."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, tuple[Path, tuple[int, ...]]] = {}
    odd: list[str] = []
    for path in _weight_files(folder):
        try:
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 — not a dict
                    part = file.get_slice(name)
                    if name.endswith("rotary_emb.inv_freq") and _is_plain(file.get_tensor(name), fields):
                        continue
                    if name in found:
                        raise FormatError(f"{name} is in {found[name][0]} and in {path}")
                    if part.get_dtype() not in _FLOATS:
                        odd.append(f"{name} ({part.get_dtype()})")
                    found[name] = (path, tuple(part.get_shape()))
        except (OSError, SafetensorError) as error:
            raise FormatError(f"{path} cannot be read: {error}") from error
    if not found:
        raise FormatError(f"{folder} has no safetensors with Llama weights")
    if odd:
        raise UnsupportedError(f"{folder} has tensors that are not floats: {', '.join(odd)}", odd)
    return found


def _weight_files(folder: Path) -> list[Path]:
    """Those that transformers would load; others may hold the same weights under other names."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    if (folder / "model.safetensors.index.json").exists():
        index = read_json(folder / "model.safetensors.index.json").get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
            raise FormatError(f"{folder / 'model.safetensors.index.json'} has no weight_map of file names")
        return sorted({folder / Path(name).name for name in index.values()})
    return sorted(folder.glob("*.safetensors"))


def _is_plain(frequencies: Any, fields: Fields) -> bool:
    """Whether stored rotary frequencies, perhaps rounded to half precision, are those that are computed here."""
    import torch

    size = fields.whole("hidden_size") // fields.whole("num_attention_heads")
    plain = _rope_theta(fields) ** -(torch.arange(0, size, 2) / size)
    alike = frequencies.shape == plain.shape and torch.allclose(frequencies.float(), plain, rtol=4e-3, atol=1e-7)
    return bool(alike)


def _read_weights(
    folder: Path, files: Mapping[str, Path], wanted: Mapping[str, Place], arguments: Mapping[str, Any], tied: bool
) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    weights: dict[str, Any] = {}
    for path in sorted(set(files.values())):
        for name, tensor in load_file(path).items():
            if name in wanted:
                place = wanted[name]
                weights[place.name] = _interleave(place.name, tensor.float(), arguments)
    embedding, head = weights["tok_embeddings.weight"], weights.get("output.weight")
    if tied and head is not None and not torch.equal(head, embedding):
        raise FormatError(
            f"{folder} contradicts itself: tie_word_embeddings is true, but lm_head.weight differs from the embedding"
        )
    return tie_output(weights)


def _interleave(name: str, weight: Any, arguments: Mapping[str, Any]) -> Any:
    """Hugging Face rotates halves, ExecuTorch interleaved pairs: reorder the rows of each head of q and k."""
    if not name.endswith(("wq.weight", "wk.weight")):
        return weight
    count = arguments["n_heads" if name.endswith("wq.weight") else "n_kv_heads"]
    rows, columns = weight.shape
    return weight.view(count, 2, rows // count // 2, columns).transpose(1, 2).reshape(rows, columns)


# ---------------------------------------------------------------- text


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read_text(path))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path} is not a JSON object")
    return found


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error


def _chat_template(folder: Path) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.exists():
        return _read_text(beside)
    config = folder / "tokenizer_config.json"
    template = read_json(config).get("chat_template") if config.exists() else None
    return template if isinstance(template, str) else None


def _special_tokens(folder: Path) -> dict[str, str | bool]:
    """What chat templates may call by name. transformers has kept it in either file, as texts or as objects."""
    found: dict[str, str | bool] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        listed = read_json(folder / name) if (folder / name).exists() else {}
        for key, value in listed.items():
            text = value.get("content") if isinstance(value, dict) else value
            if key.endswith("_token") and isinstance(text, str | bool):
                found[key] = text
    return found
