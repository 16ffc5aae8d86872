"""Text embeddings: texts with similar meanings get vectors with similar directions."""

from typing import TYPE_CHECKING

from ..deferred import lazy_exports

if TYPE_CHECKING:
    from .embedder import Embedder
    from .text_tokenizer import TextTokenizer

__all__ = ["Embedder", "TextTokenizer"]

if not TYPE_CHECKING:  # as in `webpte.llm`: tokenizing needs no GPU
    __getattr__ = lazy_exports(__name__, {"Embedder": "embedder", "TextTokenizer": "text_tokenizer"})


def __dir__() -> list[str]:
    return sorted(__all__)
