"""Embeddings inside a prompt: their ids among its tokens, and the rows on the device that hold them.

A row of embeddings has an id as a token has, above those of every vocabulary. The id is that of the content, so that
the prefix cache compares tokens and content with one comparison, and a chunk of a prompt may end between any two rows,
unless they see each other: ids of such rows have a bit of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import InputError

DIGEST_BYTES = 16
FIRST_EMBEDDING_ID = 1 << 160  # the ids of tokens are below
_ROW_BITS = 24
_BIDIRECTIONAL = 1 << (_ROW_BITS + 8 * DIGEST_BYTES)


@dataclass(frozen=True, eq=False)
class EncoderInput:
    """What an encoder turns into rows of embeddings: an image, or a part of one. Equal digests mean equal rows."""

    digest: bytes  # of the content, DIGEST_BYTES
    rows: int
    arguments: Callable[[], tuple[Any, ...]]  # of the encoder, computed when it runs
    # Of the grid that the rows are, row by row; 0: positions have one axis.
    columns: int = field(default=0, kw_only=True)
    ends_image: bool = field(default=True, kw_only=True)  # no further part of the image follows
    bidirectional: bool = field(default=False, kw_only=True)  # its rows see each other: one step computes all

    @property
    def ids(self) -> list[int]:
        """Return the id of each row."""
        first = FIRST_EMBEDDING_ID | int.from_bytes(self.digest, "big") << _ROW_BITS
        first |= _BIDIRECTIONAL * self.bidirectional
        return list(range(first, first + self.rows))


Segment = int | EncoderInput  # of a prompt: a token, or rows of embeddings
EncoderInputs = Mapping[int, EncoderInput]  # by the content's part of their ids


def flatten(segments: Iterable[Segment]) -> tuple[list[int], dict[int, EncoderInput]]:
    """Return the ids of a prompt's tokens and rows, and what its rows are encoded from."""
    ids: list[int] = []
    inputs: dict[int, EncoderInput] = {}
    for segment in segments:
        if isinstance(segment, EncoderInput):
            ids += segment.ids
            inputs[_content(ids[-1])] = segment
        else:
            ids.append(segment)
    return ids, inputs


def is_token(number: int) -> bool:
    """Return whether an id is that of a token, not of a row of embeddings."""
    return number < FIRST_EMBEDDING_ID


def _content(number: int) -> int:
    return number >> _ROW_BITS


def _row(number: int) -> int:
    return number & ((1 << _ROW_BITS) - 1)


def rows_after(number: int, inputs: EncoderInputs) -> int:
    """Return how many rows after its own the row of an id sees."""
    return inputs[_content(number)].rows - 1 - _row(number) if number & _BIDIRECTIONAL else 0


def whole_inputs(ids: Sequence[int], count: int) -> int:
    """Return how many of the first `count` ids there are without an end between rows that see each other."""
    after = ids[count] if count < len(ids) else 0
    return count - _row(after) if after & _BIDIRECTIONAL else count


def image_ends(ids: Sequence[int], inputs: EncoderInputs) -> list[int]:
    """Return the numbers of a prompt's ids up to the last row of each image."""
    numbered = ((position, number) for position, number in enumerate(ids, 1) if not is_token(number))
    rows = ((position, inputs[_content(number)], _row(number)) for position, number in numbered)
    return [position for position, each, row in rows if each.ends_image and row == each.rows - 1]


Offsets = tuple[int, int, int]  # added to a position to get those along three axes: time, row, column


class AxisOffsets:
    """The offsets of a prompt's positions along the axes. A grid of h by w rows takes up the positions of max(h, w)
    tokens: at the first of them, each row of it has its own row and column.
    """

    def __init__(self, ids: Sequence[int], inputs: EncoderInputs) -> None:
        self._offsets: list[Offsets] = []  # by position
        self._after = 0  # of all axes, after the prompt
        for number in ids:
            each = None if is_token(number) else inputs[_content(number)]
            if each is None or not each.columns:
                self._offsets.append((self._after,) * 3)
                continue
            row = _row(number)
            first = self._after - row
            self._offsets.append((first, first + row // each.columns, first + row % each.columns))
            if row == each.rows - 1:
                self._after += max(each.rows // each.columns, each.columns) - each.rows

    def at(self, position: int) -> Offsets:
        """Return the offsets of a position."""
        return self._offsets[position] if position < len(self._offsets) else (self._after,) * 3


class EncoderBackend(Protocol):
    """The part of a model runner that encodes."""

    @property
    def embedding_blocks(self) -> int:
        """Return how many encoder outputs the device holds; 0 without an encoder."""

    @property
    def embedding_rows(self) -> int:
        """Return the most rows of one encoder output."""

    def encode(self, arguments: tuple[Any, ...], block: int) -> None:
        """Run the encoder, and keep its output as a block."""


class EmbeddingPool:
    """The encoder outputs that the device holds, by content. Those that were used least recently are replaced first."""

    def __init__(self, backend: EncoderBackend) -> None:
        self._backend = backend
        self._blocks: dict[int, int] = {}  # content -> block, the least recently used first
        self._in_use: set[int] = set()  # contents that the current step reads
        self._left = 0  # inputs that the current step may still encode

    def begin_step(self, max_encoded: int) -> None:
        """Begin a step that encodes at most `max_encoded` inputs."""
        self._in_use.clear()
        self._left = max_encoded

    def invalidate(self) -> None:
        """Record that the device holds nothing any more."""
        self._blocks.clear()

    def encode(self, ids: Sequence[int], inputs: EncoderInputs) -> int:
        """Encode what the first ids need. Return how many of them the step can compute."""
        for position, number in enumerate(ids):
            if not is_token(number) and not self._hold(_content(number), inputs):
                return position
        return len(ids)

    def _hold(self, content: int, inputs: EncoderInputs) -> bool:
        """Make the device hold a content during the step. Return False if the step can encode no more."""
        if content not in self._in_use:
            block = self._blocks.pop(content, None)
            if block is None:
                block = self._free_block() if self._left else None
                if block is None:
                    return False
                self._left -= 1
                self._backend.encode(inputs[content].arguments(), block)
            self._blocks[content] = block  # now the most recently used
            self._in_use.add(content)
        return True

    def _free_block(self) -> int | None:
        """Return a block without content that the step reads; its content is dropped."""
        if len(self._blocks) < self._backend.embedding_blocks:
            return min(set(range(self._backend.embedding_blocks)) - {*self._blocks.values()})
        unused = next((content for content in self._blocks if content not in self._in_use), None)
        return None if unused is None else self._blocks.pop(unused)

    def token(self, number: int) -> int:
        """Return the number of an id in a batch: that of the token, or below 0 of a row that the device holds."""
        if is_token(number):
            return number
        return -1 - (self._blocks[_content(number)] * self._backend.embedding_rows + _row(number))


def check_encoder_inputs(inputs: EncoderInputs, backend: EncoderBackend) -> None:
    """Raise InputError unless the model has an encoder with as many rows."""
    for each in inputs.values():
        fits = 1 <= each.rows <= backend.embedding_rows and len(each.digest) == DIGEST_BYTES
        if not backend.embedding_blocks or not fits:
            raise InputError(
                argument="tokens",
                expected=f"encoder inputs of 1 to {backend.embedding_rows} rows"
                if backend.embedding_blocks
                else "tokens only, as the model has no encoder",
                got=f"an encoder input of {each.rows} rows",
                code="encoder_input",
            )
