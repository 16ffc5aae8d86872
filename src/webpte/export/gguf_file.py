"""GGUF files: weights dequantised, the tokenizer rebuilt from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .checkpoint import GGUF, Checkpoint, Place, check_sizes, places, refuse_tensors, tie_output
from .fields import Fields, refuse_fields
from .gguf_fields import RULES, harmless, of_heads


def read_gguf(path: Path) -> Checkpoint:
    try:
        import gguf
    except ImportError as error:
        raise UnsupportedError("reading GGUF needs the gguf package: pip install 'webpte[export]'") from error
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is not a GGUF file: {error}") from error
    fields = Fields(str(path), {name: field.contents() for name, field in reader.fields.items()})
    architecture = fields.values.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedError(
            f"{path} holds a {architecture} model; Llama-family GGUF files are supported", ["general.architecture"]
        )
    arguments = _arguments(fields)
    rules = RULES | of_heads(arguments["dim"] / arguments["n_heads"])
    refuse_fields(fields, {key for key in fields.values if harmless(key)}, rules)
    check_sizes(fields.where, arguments)
    wanted = places(GGUF, arguments)
    tensors = {tensor.name: tensor for tensor in reader.tensors if not _is_plain(tensor)}
    refuse_tensors(fields.where, {name: _shape(tensor) for name, tensor in tensors.items()}, wanted, tied=True)
    eos = fields.values.get("tokenizer.ggml.eos_token_id")
    window = fields.values.get("llama.attention.sliding_window")
    return Checkpoint(
        arguments,
        lambda: _weights(path, tensors, wanted),
        _tokenizer(fields, path),
        fields.values.get("tokenizer.chat_template"),
        fields.values.get("tokenizer.ggml.bos_token_id"),
        () if eos is None else (eos,),
        _special_tokens(fields.values),
        window=fields.whole("llama.attention.sliding_window") if window else None,
    )


def _arguments(fields: Fields) -> dict[str, Any]:
    needed = {
        "dim": "llama.embedding_length",
        "n_layers": "llama.block_count",
        "n_heads": "llama.attention.head_count",
        "hidden_dim": "llama.feed_forward_length",
    }
    eps = "llama.attention.layer_norm_rms_epsilon"
    fields.need(*needed.values(), eps, "tokenizer.ggml.tokens", "tokenizer.ggml.model")
    sizes = {name: fields.whole(key) for name, key in needed.items()}
    return sizes | {
        "n_kv_heads": fields.whole("llama.attention.head_count_kv", sizes["n_heads"]),
        "vocab_size": len(fields.values["tokenizer.ggml.tokens"]),
        "norm_eps": fields.real(eps),
        "rope_freq_base": fields.real("llama.rope.freq_base", 10000.0),
    }


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(tensor.shape))  # GGUF counts the innermost dim first


def _is_plain(tensor: Any) -> bool:
    """Whether these are factors of rotary frequencies that change nothing."""
    return tensor.name == "rope_freqs.weight" and bool((tensor.data == 1).all())


def _weights(path: Path, tensors: Mapping[str, Any], wanted: Mapping[str, Place]) -> dict[str, Any]:
    """q and k are stored permuted for interleaved rotary pairs, which is what ExecuTorch's Llama expects."""
    import gguf
    import torch

    weights: dict[str, Any] = {}
    for name, tensor in tensors.items():
        try:
            dense = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise UnsupportedError(f"{path}: {name} is stored as {tensor.tensor_type.name}: {error}", [name]) from error
        weights[wanted[name].name] = torch.from_numpy(dense.copy()).reshape(_shape(tensor)).float()
    return tie_output(weights)


_CONTROL = 3  # gguf.TokenType.CONTROL
_USER_DEFINED = 4


# GGUF's names of how text is cut before merging. Of others nothing is known, and a guess would give other tokens.
_GPT2 = ("default", "gpt-2", "smollm")
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")


def _tokenizer(fields: Fields, path: Path) -> str:
    """A byte-level BPE tokenizer.json from the vocabulary and the merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    values = fields.values
    kind, cut = values["tokenizer.ggml.model"], values.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or cut not in _GPT2 + _LLAMA3:
        described = f"tokenizer.ggml.model = {kind}, tokenizer.ggml.pre = {cut}"
        raise UnsupportedError(
            f"{path} has a tokenizer that cannot be rebuilt ({described}); byte-level BPE, model gpt2, of the kinds "
            f"{', '.join(_GPT2 + _LLAMA3)} can be. Export from the safetensors checkpoint, which has a tokenizer.json.",
            ["tokenizer.ggml.model" if kind != "gpt2" else "tokenizer.ggml.pre"],
        )
    fields.need("tokenizer.ggml.merges")
    tokens = values["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in values["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_splitters(cut))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = values.get("tokenizer.ggml.token_type", [])
    special = [t for t, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return str(tokenizer.to_str())


def _special_tokens(values: Mapping[str, Any]) -> dict[str, str | bool]:
    """By the names they have in tokenizer_config.json."""
    tokens = values["tokenizer.ggml.tokens"]
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found: dict[str, str | bool] = {}
    for key, name in names.items():
        number = values.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            found[name] = tokens[number]
    # Where the file does not say, it is the custom of the kind of tokenizer.
    found["add_bos_token"] = bool(
        values.get("tokenizer.ggml.add_bos_token", values.get("tokenizer.ggml.pre") in _LLAMA3)
    )
    return found


def _splitters(kind: str) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in _GPT2)
    if kind in _LLAMA3:
        words = Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        return [pre_tokenizers.Split(words, behavior="isolated"), byte_level]
    if kind == "smollm":
        return [pre_tokenizers.Digits(individual_digits=True), byte_level]
    return [byte_level]
