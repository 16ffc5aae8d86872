"""Read GGUF checkpoints: keys, tokenizer, and weights, which are dequantised one at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FormatError, UnsupportedError
from .architecture import Architecture
from .config import MAX_DIM_SIZE, FieldRule, Fields
from .families import family_of_gguf
from .family import Checkpoint, Family, end_ids, shapes_of
from .gguf_reader import StoredTensor, read_header
from .gguf_tokenizer import rebuild_tokenizer, special_tokens
from .weights import HEAD, CheckpointWeights, check_layers, check_tensors, map_weights

if TYPE_CHECKING:
    import torch

# Tensors that are settings: divisors of rotary frequencies. They are read as fields are.
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

# Namespaces and keys that do not shape the model -> what they tell.
_WITHOUT_EFFECT = {
    "general.": "where the file comes from and how it is stored",
    "tokenizer.": "how text becomes tokens; read for the tokenizer and the chat template",
    "quantize.": "how its weights were rounded",
    "mradermacher.": "who converted it, and when",
    "split.tensors.count": "tensors in all parts of a file; that there is one part is checked",
}

_SCALE = "numbers on the way are scaled by it"
_EXPERTS = "its layers choose among experts"
_FREQUENCIES = "other rotary frequencies than the default"

_RULES: dict[str, FieldRule] = {
    "general.type": FieldRule(("model",), "the file is not a model of its own"),
    "split.count": FieldRule((0, 1), "the model is in several files; merge them with gguf-split"),
    "split.no": FieldRule((0,), "the model is in several files; merge them with gguf-split"),
}
# Under the name of the architecture:
_OF_MODELS: dict[str, FieldRule] = {
    "rope.scaling.type": FieldRule(("none",), _FREQUENCIES),
    "rope.scaling.factor": FieldRule((0, 1), _FREQUENCIES),
    "rope.scaling.attn_factor": FieldRule((1,), _FREQUENCIES),
    "rope.scaling.original_context_length": FieldRule((), _FREQUENCIES),
    "rope.scaling.finetuned": FieldRule((False,), _FREQUENCIES),
    "rope.scale_linear": FieldRule((0, 1), _FREQUENCIES),
    "attention.causal": FieldRule((True,), "tokens see those behind them"),
    "attention.scale": FieldRule((0,), "attention scores are scaled otherwise"),
    "attention.clamp_kqv": FieldRule((0,), "queries, keys and values are capped"),
    "attention.max_alibi_bias": FieldRule((0,), "positions are told by a bias"),
    "attn_logit_softcapping": FieldRule((0,), "attention scores are capped"),
    "final_logit_softcapping": FieldRule((0,), "logits are capped"),
    "logit_scale": FieldRule((0, 1), _SCALE),
    "residual_scale": FieldRule((0, 1), _SCALE),
    "embedding_scale": FieldRule((0, 1), _SCALE),
    "use_parallel_residual": FieldRule((False,), "attention and feed-forward run side by side"),
    "expert_count": FieldRule((0,), _EXPERTS),
    "expert_used_count": FieldRule((0,), _EXPERTS),
    "tensor_data_layout": FieldRule(("Meta AI original pth",), "weights are stored in another order"),
}
_WITHOUT_EFFECT_OF_MODELS = {
    "context_length": "how far it was trained; rotary tables are computed for any position",
    "vocab_size": "the tokens are counted",
}


def is_ignored_key(key: str, architecture: str) -> bool:
    if key.startswith(f"{architecture}."):
        return key.removeprefix(f"{architecture}.") in _WITHOUT_EFFECT_OF_MODELS
    return key not in _RULES and key.startswith(tuple(_WITHOUT_EFFECT))


def key_rules(architecture: str) -> dict[str, FieldRule]:
    return _RULES | {f"{architecture}.{key}": rule for key, rule in _OF_MODELS.items()}


def read_gguf(path: Path) -> Checkpoint:
    if find_spec("gguf") is None:
        raise UnsupportedError("reading GGUF needs the gguf package: pip install 'webpte[export]'")
    values, tensors = read_header(path)
    values |= {name: _numbers(path, tensors.pop(name)) for name in ROTARY_TENSORS if name in tensors}
    fields = Fields(str(path), values)
    architecture = values.get("general.architecture")
    family = family_of_gguf(fields.where, architecture)
    model = read_keys(family, fields, str(architecture))
    model = replace(model, tied=family.gguf_names.stored(HEAD) not in tensors)
    check_layers(fields.where, model.n_layers, len(tensors))
    wanted = map_weights(shapes_of(family, model), model, family.gguf_names)
    check_tensors(fields.where, family.name, {name: stored.shape for name, stored in tensors.items()}, wanted, ())
    keys = fields.with_prefix("tokenizer.ggml.")
    ends = [keys.token_id(f"{kind}_token_id") for kind in ("eos", "eot", "eom")]  # of a text, a turn, a message
    tokenizer = rebuild_tokenizer(fields, path)
    return Checkpoint(
        family,
        model,
        CheckpointWeights(wanted, lambda name: _load(path, tensors[name]), _formats(tensors)),
        tokenizer,
        fields.string("tokenizer.chat_template"),
        keys.token_id("bos_token_id"),
        end_ids(str(path), [end for end in ends if end is not None], family.end_tokens, tokenizer),
        special_tokens(fields),
    )


def read_keys(family: Family, fields: Fields, architecture: str) -> Architecture:
    """Every key read, or known to change nothing, or refused by name."""
    assert family.gguf is not None, family.name
    model = family.gguf(fields.with_prefix(f"{architecture}."))
    fields.refuse_unread(lambda name: is_ignored_key(name, architecture), key_rules(architecture))
    model.check(fields.where)
    return model


def _formats(tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Of those that are quantised: everything but floats."""
    names = {name: tensor.type.name for name, tensor in tensors.items()}
    return {name: kind for name, kind in names.items() if kind not in ("F64", "F32", "F16", "BF16")}


def _numbers(path: Path, tensor: StoredTensor) -> list[float] | None:
    """Divisors of rotary frequencies; ones, which change nothing, are as good as none."""
    if math.prod(tensor.shape) > MAX_DIM_SIZE:
        raise FormatError(f"{path}: {tensor.name} is {list(tensor.shape)}; expected a factor for each pair of a head")
    numbers = _load(path, tensor).flatten().tolist()
    return None if all(number == 1 for number in numbers) else numbers


def _load(path: Path, tensor: StoredTensor) -> torch.Tensor:
    import gguf
    import numpy as np
    import torch

    rows = np.frombuffer(tensor.span.view(), np.uint8).reshape(-1, tensor.row_bytes)
    try:
        with np.errstate(all="ignore"):  # damaged scales are NaN or infinite, which whoever uses the weight looks for
            dense = gguf.quants.dequantize(rows, tensor.type)
    except NotImplementedError as error:
        stored = f"{path}: {tensor.name} is stored as {tensor.type.name}"
        raise UnsupportedError(f"{stored}: {error}", [tensor.name]) from error
    return torch.from_numpy(dense.copy()).reshape(tensor.shape).float()
