"""GGUF files: weights dequantised, the tokenizer rebuilt from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .checkpoint import Checkpoint, executorch_name, tie_output


def read_gguf(path: Path) -> Checkpoint:
    try:
        import gguf
    except ImportError as error:
        raise UnsupportedError("reading GGUF needs the gguf package: pip install 'webpte[export]'") from error
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} is not a GGUF file: {error}") from error
    fields = _Fields(reader)
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedError(f"{path} holds a {architecture} model; Llama-family GGUF files are supported")
    tokens = fields.get("tokenizer.ggml.tokens")
    arguments = {
        "dim": fields.get("llama.embedding_length"),
        "n_layers": fields.get("llama.block_count"),
        "n_heads": fields.get("llama.attention.head_count"),
        "n_kv_heads": fields.get("llama.attention.head_count_kv"),
        "hidden_dim": fields.get("llama.feed_forward_length"),
        "vocab_size": len(tokens),
        "norm_eps": fields.get("llama.attention.layer_norm_rms_epsilon"),
        "rope_freq_base": fields.get("llama.rope.freq_base", 10000.0),
    }
    eos = fields.get("tokenizer.ggml.eos_token_id", None)
    return Checkpoint(
        arguments,
        _weights(reader),
        _tokenizer(fields, path),
        fields.get("tokenizer.chat_template", None),
        fields.get("tokenizer.ggml.bos_token_id", None),
        () if eos is None else (eos,),
    )


class _Fields:
    """Metadata by key."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields

    def get(self, key: str, *default: Any) -> Any:
        field = self._fields.get(key)
        if field is None:
            if default:
                return default[0]
            raise FormatError(f"the GGUF file has no {key}")
        return field.contents()


def _weights(reader: Any) -> dict[str, Any]:
    """q and k are stored permuted for interleaved rotary pairs, which is what ExecuTorch's Llama expects."""
    import gguf
    import torch

    weights: dict[str, Any] = {}
    for tensor in reader.tensors:
        name = executorch_name(tensor.name)
        if name is not None:
            dense = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            shape = tuple(int(size) for size in reversed(tensor.shape))  # GGUF counts the innermost dim first
            weights[name] = torch.from_numpy(dense.copy()).reshape(shape).float()
    if "tok_embeddings.weight" not in weights:
        raise FormatError("the GGUF file has no token embedding")
    return tie_output(weights)


_CONTROL = 3  # gguf.TokenType.CONTROL
_USER_DEFINED = 4


def _tokenizer(fields: _Fields, path: Path) -> str:
    """A byte-level BPE tokenizer.json from the vocabulary and the merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if fields.get("tokenizer.ggml.model") != "gpt2":
        raise UnsupportedError(
            f"{path} has a {fields.get('tokenizer.ggml.model')} tokenizer; byte-level BPE is supported. "
            "Export from the safetensors checkpoint, which brings its tokenizer.json."
        )
    tokens = fields.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in fields.get("tokenizer.ggml.merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_splitters(fields.get("tokenizer.ggml.pre", "default")))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields.get("tokenizer.ggml.token_type", [])
    special = [t for t, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return str(tokenizer.to_str())


def _splitters(kind: str) -> list[Any]:
    from tokenizers import Regex, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in ("smollm", "default", "gpt-2"))
    if kind == "llama-bpe":
        words = Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        return [pre_tokenizers.Split(words, behavior="isolated"), byte_level]
    if kind == "smollm":
        return [pre_tokenizers.Digits(individual_digits=True), byte_level]
    return [byte_level]
