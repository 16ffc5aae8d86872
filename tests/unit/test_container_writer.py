"""The conveniences of the file writer, which other tests build on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.harness.writer import Stream, pte_file, simple_pte
from webpte import container as c
from webpte.container import DType, MappedFile, parse_program

VALUES: list[c.VkValue] = [
    c.VkTensor(DType.INT32, (1, 7)),
    c.VkTensor(DType.FLOAT16, (7,), constant_id=0, staging_dtype=DType.FLOAT32),
    c.VkSymInt(),
    c.VkTensor(DType.FLOAT16, (1, 7), staging_dtype=DType.FLOAT32),
]
CALLS = [("aten.add.Tensor", (0, 1, 2, 3))]


@pytest.mark.parametrize("where", ["named", "inline", "external"])
def test_simple_pte(tmp_path: Path, where: str) -> None:
    weight = np.arange(7, dtype="<f2")
    path = tmp_path / "m.pte"
    keyed = simple_pte(path, VALUES, CALLS, [0, 2], [3], [weight], where=where, long_ints=True, dynamic=True)
    with MappedFile(path) as file:
        program = parse_program(file)
        (method,) = program.methods
        assert [getattr(v, "dtype", None) for v in method.values] == [DType.INT64, None, DType.FLOAT32]
        assert [getattr(v, "dynamic", None) for v in method.values] == [True, None, True]
        assert (method.inputs, method.outputs, method.instructions) == ((0, 1), (2,), (c.DelegateCall(0, (0, 1, 2)),))
        graph = c.parse_vulkan(method.delegates[0].blob)
        assert graph.values == tuple(VALUES) and graph.inputs == (0, 2) and graph.outputs == (3,)
        (constant,) = graph.constants
        assert (set(program.named_data) == set(keyed)) is (where == "named")
        span = constant.span or program.named_data.get(str(constant.key))
        assert constant.length == 14 and (span is None) is (where == "external")
        assert span is None or bytes(span.view()) == weight.tobytes()
        assert where == "inline" or constant.key in keyed


def test_writer_stream_is_written_in_chunks(tmp_path: Path) -> None:
    created = []

    def chunks():
        for index in range(3):
            created.append(index)
            yield bytes([index]) * 1000

    pte_file(tmp_path / "m.pte", [], named_data={"a": Stream(3000, chunks), "b": b"tail"})
    with MappedFile(tmp_path / "m.pte") as file:
        named = parse_program(file).named_data
        assert bytes(named["a"].view()) == b"\0" * 1000 + b"\1" * 1000 + b"\2" * 1000
        assert bytes(named["b"].view()) == b"tail" and created == [0, 1, 2]
