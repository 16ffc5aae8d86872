"""Texts to vectors, and scores of documents for a query."""

from typing import TYPE_CHECKING

from ..deferred import lazy_exports

if TYPE_CHECKING:
    from .embedder import Embedder
    from .language_reranker import LanguageReranker
    from .pair_tokenizer import PairPrompts, PairTokenizer
    from .reranker import Reranker
    from .text_tokenizer import TextTokenizer

__all__ = ["Embedder", "LanguageReranker", "PairPrompts", "PairTokenizer", "Reranker", "TextTokenizer"]
_HOMES = {
    "Embedder": "embedder",
    "LanguageReranker": "language_reranker",
    "PairPrompts": "pair_tokenizer",
    "PairTokenizer": "pair_tokenizer",
    "Reranker": "reranker",
    "TextTokenizer": "text_tokenizer",
}

if not TYPE_CHECKING:  # as in `webpte.llm`: tokenizing needs no GPU
    __getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
