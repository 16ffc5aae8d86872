"""Llama-family checkpoints, GGUF or safetensors with config.json, as ExecuTorch's Llama takes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..container import MappedFile, Other, recognise
from ..errors import FormatError, InputError, UnsupportedError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Checkpoint:
    """Architecture, weights by ExecuTorch's names, and what a runner needs to speak the model's language."""

    arguments: Mapping[str, Any]  # of ExecuTorch's ModelArgs
    weights: Callable[[], Mapping[str, torch.Tensor]]  # reads them, which takes time and memory
    tokenizer: str  # the text of tokenizer.json
    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    # As in tokenizer_config.json: texts by name, such as bos_token, and with add_bos_token one before every text.
    special_tokens: Mapping[str, str | bool] = field(default_factory=dict)
    window: int | None = None  # how many tokens a token sees, where that is fewer than all before it


def check_source(path: Path) -> None:
    """Whether a checkpoint is there, told by its first bytes: importing torch takes seconds, reading one minutes."""
    if path.is_dir():
        _folder_of(path)
        return
    with MappedFile(path) as file:
        found = recognise(file)
    if path.suffix == ".gguf":
        if found is None or "GGUF" not in found.kind:
            instead = f" but {found.kind}" if found is not None else ""
            raise FormatError(f"{path} is not a GGUF file{instead}. Download or copy it again.")
        return
    if found is not None and "GGUF" in found.kind:
        raise InputError(f"{path} is a GGUF checkpoint: rename it to {path.stem}.gguf, by which it is told")
    if found is not None and found.kind.startswith("an ExecuTorch program"):
        raise InputError(f"{path} is a program already: webpte inspect {path} shows it, webpte generate talks to it")
    _folder_of(path, found)


def _folder_of(path: Path, found: Other | None = None) -> Path:
    """The folder of a checkpoint, which is named itself or by a file in it."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").exists():
        known = f" It is {found.kind}: {found.remedy}" if found is not None else ""
        raise FormatError(f"{path} is neither a .gguf file nor a folder with config.json and safetensors.{known}")
    return folder


def read_checkpoint(path: Path) -> Checkpoint:
    """A .gguf file, or a folder (or a file in it) with config.json and safetensors."""
    check_source(path)
    if path.suffix == ".gguf":
        from .gguf_file import read_gguf

        return read_gguf(path)
    from .hugging_face import read_folder

    return read_folder(_folder_of(path))


def check_sizes(where: str, arguments: Mapping[str, Any]) -> None:
    """Heads that share the width evenly, in pairs that can be rotated."""
    dim, heads, kv_heads = (arguments[name] for name in ("dim", "n_heads", "n_kv_heads"))
    if dim % heads or dim // heads % 2:
        raise UnsupportedError(f"{where}: {heads} heads of a width of {dim} are {dim / heads:g} wide; even is wanted")
    if heads % kv_heads:
        raise FormatError(f"{where}: {heads} heads cannot share {kv_heads} key and value heads evenly")


class Place(NamedTuple):
    """Where a tensor of a checkpoint goes."""

    name: str  # ExecuTorch's
    shape: tuple[int, ...]


class Names(NamedTuple):
    """How a kind of checkpoint calls a model's tensors, in the order of _LAYER and of _TOP."""

    layer: str  # with the number and the part to fill in
    parts: tuple[str, ...]
    top: tuple[str, ...]


_LAYER = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1", "feed_forward.w2",
          "feed_forward.w3", "attention_norm", "ffn_norm")  # fmt: skip
_TOP = ("tok_embeddings", "norm", "output")

GGUF = Names(
    "blk.{}.{}.weight",
    ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down", "ffn_up", "attn_norm", "ffn_norm"),
    ("token_embd.weight", "output_norm.weight", "output.weight"),
)
HUGGING_FACE = Names(
    "model.layers.{}.{}.weight",
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj",
     "mlp.up_proj", "input_layernorm", "post_attention_layernorm"),
    ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
)  # fmt: skip


def places(names: Names, arguments: Mapping[str, Any]) -> dict[str, Place]:
    """Every tensor a Llama of these sizes has, by the checkpoint's name."""
    dim, hidden, vocabulary = (arguments[name] for name in ("dim", "hidden_dim", "vocab_size"))
    kv = dim // arguments["n_heads"] * arguments["n_kv_heads"]
    shapes = ((dim, dim), (kv, dim), (kv, dim), (dim, dim), (hidden, dim), (dim, hidden), (hidden, dim), (dim,), (dim,))
    found = {
        theirs: Place(f"{ours}.weight", shape)
        for theirs, ours, shape in zip(names.top, _TOP, ((vocabulary, dim), (dim,), (vocabulary, dim)), strict=True)
    }
    for number in range(arguments["n_layers"]):
        for theirs, ours, shape in zip(names.parts, _LAYER, shapes, strict=True):
            found[names.layer.format(number, theirs)] = Place(f"layers.{number}.{ours}.weight", shape)
    return found


def refuse_tensors(where: str, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, Place], tied: bool) -> None:
    """Raise one error with every tensor (shape by name) that is left over, or with all that are missing or misfit."""
    if strange := [name for name in found if name not in wanted]:
        count = "a tensor" if len(strange) == 1 else f"{len(strange)} tensors"
        first = f"{where} has {count} that no part of a Llama takes; without them it would be another model:"
        raise UnsupportedError("\n".join([first, *by_layer(strange)]), strange)
    optional = {name for name, place in wanted.items() if tied and place.name == "output.weight"}
    missing = [name for name in wanted if name not in found and name not in optional]
    wrong = [
        f"{name} is {list(found[name])}, not {list(place.shape)}"
        for name, place in wanted.items()
        if name in found and found[name] != place.shape
    ]
    if missing or wrong:
        lines = [f"{where} does not hold the model it describes:", *(f"  {line}" for line in wrong)]
        raise FormatError("\n".join(lines + by_layer(f"{name} is missing" for name in missing)))


def by_layer(names: Iterable[str]) -> list[str]:
    """A line per name; one for all layers that repeat it."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[re.sub(r"(?<=\.)\d+(?=\.)", "*", name)].append(name)
    return [f"  {pattern} (x{len(same)})" if len(same) > 1 else f"  {same[0]}" for pattern, same in groups.items()]


def tie_output(weights: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without an output head uses the embedding's rows."""
    weights.setdefault("output.weight", weights["tok_embeddings.weight"])
    return weights
