"""Small tokenizers of the kinds that language models have."""

from __future__ import annotations

from webpte.llm.tokenizer import Tokenizer

WORDS = (
    '{"', '":', '": "', '", "', '"}', "},", " the", " name", "name", " age", "id", "true", "false", "null", "12",
    "2026", "red", "green", "blue", " blue", "str", "eet", "stre", "   ", "ing", "é", "北", "apple", "ap", "app",
    "apricot", "\n\n",
)  # fmt: skip


def byte_level(words: tuple[str, ...] = WORDS, end: str = "<|im_end|>") -> Tokenizer:
    """Byte-level BPE: the 256 bytes, an end token, and words."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Inner

    vocabulary = {text: at for at, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for word in words:
        ((written, _),) = cut.pre_tokenize_str(word)
        for length in range(2, len(written) + 1):
            if written[:length] not in vocabulary:
                merges.append((written[: length - 1], written[length - 1]))
                vocabulary[written[:length]] = len(vocabulary)
    inner = Inner(models.BPE(vocabulary, merges))
    inner.pre_tokenizer, inner.decoder = cut, decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(end, special=True)])
    return Tokenizer(inner)


def byte_fallback() -> Tokenizer:
    """Return a tokenizer like SentencePiece's: a mark for spaces and before every text, and bytes for unknown text."""
    from tokenizers import AddedToken, decoders, models, normalizers
    from tokenizers import Tokenizer as Inner

    letters = [*map(chr, range(33, 127)), "▁"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, "na", "me", "name", "▁name", '{"', '":']
    merges = [("n", "a"), ("m", "e"), ("na", "me"), ("▁", "name"), ("{", '"'), ('"', ":")]
    vocabulary = {text: at for at, text in enumerate(tokens)}
    inner = Inner(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken("</s>", special=True)])
    return Tokenizer(inner)
