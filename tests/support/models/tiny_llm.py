"""The tiny Llama as a language model: 128 tokens, each a character, and random weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.export.exporting import export
from webpte.llm import Generation

CONTEXT, CHUNK, VOCAB = 64, 31, 128
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"


def write_tiny_llm(folder: Path) -> Path:
    """tiny.pte with tokenizer and chat template."""
    shutil.copy(export("llama").path, folder / "tiny.pte")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


def write_tokenizer(path: Path) -> None:
    """A character per token: code 0..127."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({chr(code): code for code in range(VOCAB)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(path))


def tokens_of(generation: Generation) -> list[int]:
    """All of an answer, even if it was begun."""
    generation.result()
    return generation.tokens
