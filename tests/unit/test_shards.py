"""Weights of a bundle: device-ready bytes in shards, each constant once, every byte where its spans say."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from webpte.bundles import methods
from webpte.bundles.methods import Shards, ShardSources
from webpte.bundles.site import without_comments
from webpte.container import DType, MappedFile, Span
from webpte.graph import Constant


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(methods, "MAX_SHARD_BYTES", 64)


def constant(array: np.ndarray, dtype: DType) -> Constant:
    data = array.tobytes()
    return Constant(Span(MappedFile.from_bytes("weights", data), 0, len(data)), dtype, "w")


def written() -> tuple[Shards, list[bytes]]:
    files: list[bytes] = []

    def write(data: bytes) -> str:
        files.append(data)
        return hashlib.sha256(data).hexdigest()

    return Shards(write), files


def gathered(described: dict, sources: ShardSources, files: list[bytes]) -> bytes:
    by_hash = {hashlib.sha256(data).hexdigest(): data for data in files}
    listed = [by_hash[item["sha256"]] for item in sources.listed()]
    assert all(offset % 4 == 0 for _, offset, _ in described["spans"])
    return b"".join(listed[file][offset : offset + size] for file, offset, size in described["spans"])


@pytest.mark.usefixtures("small_shards")
def test_constants_lie_in_shards_as_the_device_wants_them():
    shards, files = written()
    sources = ShardSources(shards)
    expected: list[tuple[np.ndarray, DType, DType, str, str]] = [
        (np.arange(37, dtype=np.float32), DType.FLOAT32, DType.FLOAT32, "f32", "<f4"),  # over three shards
        (np.arange(-5, 6, dtype=np.int64), DType.INT64, DType.INT32, "i32", "<i4"),
        (np.array([True, False, True]), DType.BOOL, DType.BOOL, "u32", "<u4"),
        (np.arange(7, dtype=np.float16), DType.FLOAT16, DType.WIDE_FLOAT16, "f32", "<f4"),
        (np.arange(7, dtype=np.int8), DType.INT8, DType.INT8, "i8", "<i1"),  # no multiple of four
    ]
    described = [sources.constant(constant(array, stored), dtype) for array, stored, dtype, _, _ in expected]
    shards.close()
    assert len(files) > 3 and all(0 < len(data) <= 64 for data in files)
    for (array, _, _, stored, held), item in zip(expected, described, strict=True):
        assert item["stored_dtype"] == stored
        assert gathered(item, sources, files) == array.astype(held).tobytes()
    *_, (_, offset, size) = described[-1]["spans"]
    assert files[-1][offset + size :] == bytes(1)  # a page writes whole words


def test_place_constants_of_any_size_begin_at_multiples_of_16_bytes():
    shards, files = written()
    arrays = [np.arange(1, 1 + size, dtype=np.float32) for size in (1, 4, 5, 7, 2)]
    spans = [shards.place(constant(array, DType.FLOAT32), DType.FLOAT32) for array in arrays]
    shards.close()
    assert spans == [[[0, 0, 4]], [[0, 16, 16]], [[0, 32, 20]], [[0, 64, 28]], [[0, 96, 8]]]
    (data,) = files
    for array, ((_, offset, size),) in zip(arrays, spans, strict=True):
        assert data[offset : offset + size] == array.tobytes()
        assert not any(data[offset + size : offset + -(-size // 16) * 16])


@pytest.mark.usefixtures("small_shards")
def test_shards_constant_named_twice_is_written_once():
    shards, files = written()
    weight = constant(np.arange(16, dtype=np.float32), DType.FLOAT32)
    first, second = ShardSources(shards), ShardSources(shards)
    same = first.constant(weight, DType.FLOAT32), second.constant(weight, DType.FLOAT32)
    shards.close()
    assert same[0] == same[1] and len(files) == 1 and first.listed() == second.listed()


def test_without_comments_removes_kernel_comments():
    text = "// a reason\nfn main() {\n    let x = 1; // why\n\n}\n"
    assert without_comments(text) == "fn main() {\nlet x = 1;\n}\n"
