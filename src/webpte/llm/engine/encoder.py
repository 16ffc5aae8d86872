"""The methods of a language model in a program, and the part of a runner that encodes images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...fusion.batching import embedding_pool
from ...fusion.llm_rewrites import with_stored_output
from ...fusion.rope_axes import RopeSections
from ...graph import Graph
from ...progress import OnProgress
from ...runtime import Method, Program

MIN_EMBEDDING_ROWS = 4096  # of encoder outputs on the device, rounded up to whole outputs


@dataclass(frozen=True)
class LanguageMethods:
    """The method of a program that decodes tokens."""

    name: str
    joined: Callable[[Graph, int], Graph]  # its graph, rows of embeddings -> that of tokens and positions
    encoder: str | None = None  # the method whose outputs (1, rows, N) can replace embeddings
    sections: RopeSections | None = None  # of a model that rotates rows of images by three axes
    bidirectional: bool = False  # rows of an image see each other

    @property
    def plain(self) -> bool:
        """Return whether rows of images are as those of tokens."""
        return self.sections is None and not self.bidirectional


FORWARD = LanguageMethods("forward", lambda graph, rows: graph)


def pool_blocks(rows: int) -> int:
    """Return how many encoder outputs of this many rows the device holds."""
    return -(-MIN_EMBEDDING_ROWS // rows)


class EncoderPart:
    """The part of a runner that encodes. Without an encoder it holds no embeddings."""

    embedding_blocks = embedding_rows = 0
    method: Method
    _encoder: Method | None = None

    def load_encoder(self, program: Program, model: LanguageMethods, progress: OnProgress) -> None:
        """Make the method of the encoder, if the model has one."""
        if model.encoder is None:
            return
        self.use_encoder(program.method(model.encoder, with_stored_output, progress, lazy=True))

    def use_encoder(self, encoder: Method) -> None:
        """Encode with this method, whose output is its state."""
        self._encoder = encoder
        (shape,) = (output.bound for output in encoder.outputs)
        assert shape is not None
        self.embedding_rows = shape[-2]
        self.embedding_blocks = pool_blocks(self.embedding_rows)

    def share_encoder(self, other: EncoderPart) -> None:
        """Use the encoder of another runner."""
        self._encoder = other._encoder
        self.embedding_rows, self.embedding_blocks = other.embedding_rows, other.embedding_blocks

    @property
    def pool_rows(self) -> int:
        """Return the rows of all outputs that the device holds."""
        return self.embedding_blocks * self.embedding_rows

    def pool(self) -> int | None:
        """Return the state of the method that holds the outputs."""
        return embedding_pool(self.method.plan.graph)

    def encode(self, arguments: tuple[Any, ...], block: int) -> None:
        assert self._encoder is not None
        pool = self.pool()
        assert pool is not None
        with self._encoder.exclusive() as encoded, self.method.exclusive() as state:
            self._encoder.run(arguments, outputs=())
            (output,) = self._encoder.plan.graph.outputs
            state.copy_rows(pool, block * self.embedding_rows, encoded, output)
