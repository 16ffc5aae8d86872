"""Tokens of texts in the page and natively: `python -m tests.studies in_page.tokens [--count 20000] [TOKENIZER.json
...]`.

Many texts over every block of Unicode, for every kind of tokenizer that a bundle takes, and for the given files: the
tokens, with and without those that every text gets, and the texts of the tokens. Ends with status 1 if any differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tests.support.harness.node import ask_node

from .token_corpus import texts, tokenizers


def differences(tokenizer: Tokenizer, corpus: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Text, native and page's (tokens, tokens with those of every text, decoded), where they are not the same."""
    plain = [each.ids for each in tokenizer.encode_batch(corpus, add_special_tokens=False)]
    full = [each.ids for each in tokenizer.encode_batch(corpus)]
    decoded = [tokenizer.decode(ids) for ids in plain]
    fields = {"tokenizer": json.loads(tokenizer.to_str()), "texts": corpus}
    pages = ask_node("language.mjs", "tokens", fields, timeout=900)
    for text, expected, actual in zip(corpus, zip(plain, full, decoded, strict=True), pages, strict=True):
        if list(expected) != actual:
            yield text, expected, actual


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies in_page.tokens", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="further tokenizers")
    parser.add_argument("--count", type=int, default=20_000, help="texts for each tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    corpus = texts(options.seed, options.count)
    kinds = tokenizers(corpus[:4000]) | {path.name: Tokenizer.from_file(str(path)) for path in options.files}
    total = 0
    for name, tokenizer in kinds.items():
        actual = list(differences(tokenizer, corpus))
        total += len(actual)
        print(f"{name}: {len(corpus)} texts, {len(actual)} different", flush=True)
        for text, expected, got in actual[:5]:
            print(f"  {text!a:.200}\n    native {expected!a:.300}\n    page   {got!a:.300}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
