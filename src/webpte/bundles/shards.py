"""Weights as a device wants them, in files of at most 16 MiB that are named by what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..container import DType
from ..device.weights import device_pieces, storage_dtype
from ..graph import Constant
from ..plan import BufferFill

MAX_SHARD_BYTES = 16 << 20  # bytes of a shard: a page verifies one as a whole, and holds no more than two
ALIGNMENT = 16  # of what begins in a shard


class Shard(NamedTuple):
    sha256: str
    nbytes: int


class Shards:
    """Constants, one after the other. A constant that many plans name is there once.

    `write` takes the bytes of a shard that is full, and gives its hash.
    """

    def __init__(self, write: Callable[[bytes], str]) -> None:
        self._write = write
        self._shards: list[Shard] = []
        self._open = bytearray()
        self._places: dict[object, list[list[int]]] = {}

    def place(self, constant: Constant, dtype: DType) -> list[list[int]]:
        """Spans of [shard, offset, bytes]. The bytes after the last are zeros, up to a multiple of 4."""
        key = (constant.identity, dtype)
        if key not in self._places:
            spans: list[list[int]] = []
            self._places[key] = spans
            self._open += bytes(-len(self._open) % ALIGNMENT)
            for _, piece in device_pieces(BufferFill(constant, dtype)):
                self._append(memoryview(piece).cast("B"), spans)
            spans[-1][2] -= sum(size for _, _, size in spans) - device_bytes(constant, dtype)
        return self._places[key]

    def _append(self, data: memoryview, spans: list[list[int]]) -> None:
        while data:
            if len(self._open) == MAX_SHARD_BYTES:
                self.close()
            taken = data[: MAX_SHARD_BYTES - len(self._open)]
            here = [len(self._shards), len(self._open), len(taken)]
            if spans and spans[-1][0] == here[0] and spans[-1][1] + spans[-1][2] == here[1]:
                spans[-1][2] += here[2]
            else:
                spans.append(here)
            self._open += taken
            data = data[len(taken) :]

    def close(self) -> None:
        """Write what is not written yet."""
        if self._open:
            data = bytes(self._open)
            self._shards.append(Shard(self._write(data), len(data)))
            self._open = bytearray()

    def __getitem__(self, number: int) -> Shard:
        return self._shards[number]


def device_bytes(constant: Constant, dtype: DType) -> int:
    """What a constant takes on the device, without padding."""
    return constant.nbytes // constant.dtype.itemsize * storage_dtype(dtype).itemsize


class ShardSources:
    """The shards that one plan names, by number; see plan.value_json.Sources."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.numbers: dict[int, int] = {}  # of a shard in the plan

    def constant(self, constant: Constant, dtype: DType) -> dict[str, Any]:
        spans = self._shards.place(constant, dtype)
        numbered = [[self.numbers.setdefault(shard, len(self.numbers)), *rest] for shard, *rest in spans]
        return {"name": "", "stored": _stored(dtype), "spans": numbered}

    def listed(self) -> list[dict[str, Any]]:
        shards = [self._shards[number] for number in self.numbers]
        return [{"name": f"{shard.sha256}.bin", "bytes": shard.nbytes, "sha256": shard.sha256} for shard in shards]


def _stored(dtype: DType) -> str:
    """A dtype of the same bytes as a device holds: bools, and halves where there is no f16, take a word."""
    stored = storage_dtype(dtype)
    if dtype.numpy == stored:
        return dtype.short
    return next(other.short for other in DType if other.numpy == stored)
