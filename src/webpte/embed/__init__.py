"""Texts to vectors: texts that mean the same get vectors that point the same way."""

from typing import TYPE_CHECKING

from ..deferred import names_of

if TYPE_CHECKING:
    from .embedder import Embedder
    from .texts import Texts

__all__ = ["Embedder", "Texts"]

if not TYPE_CHECKING:  # as in `webpte.llm`: texts become tokens without a GPU
    __getattr__ = names_of(__name__, {"Embedder": "embedder", "Texts": "texts"})


def __dir__() -> list[str]:
    return sorted(__all__)
