"""Positions of three axes: the offsets of a prompt's rows, and the graph that rotates by them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import UnsupportedError
from webpte.fusion.rope_axes import AXIS_ANGLES, with_rope_axes
from webpte.fusion.row_axes import SLOT_ATTENTION, SLOT_ROTARY
from webpte.graph import Bool, Double, DType, Graph, Int, SymInt, TensorSpec
from webpte.llm.engine.embeddings import AxisOffsets, EncoderInput, flatten

ROWS, HEADS, WIDTH, POSITIONS, SLOTS = 8, 2, 8, 32, 3


def image(rows: int, columns: int) -> EncoderInput:
    return EncoderInput(bytes([rows, columns]) * 8, rows, tuple, columns=columns)


def positions(*segments: int | EncoderInput, generated: int = 0) -> np.ndarray:
    """Return the positions along the axes of a prompt, and of tokens after it."""
    ids, inputs = flatten(segments)
    offsets = AxisOffsets(ids, inputs)
    return np.array([np.array(offsets.at(n)) + n for n in range(len(ids) + generated)]).T


def test_axis_offsets_are_those_of_the_grid_and_text_continues_after_its_longer_side():
    time, row, column = positions(7, 7, image(6, 3), 7, image(4, 1), generated=2)
    assert time.tolist() == [0, 1, *[2] * 6, 5, *[6] * 4, 10, 11]
    assert row.tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 9, 10, 11]
    assert column.tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 6, 6, 6, 10, 11]


def test_axis_offsets_of_an_image_without_a_grid_and_of_a_part_of_one():
    assert (positions(7, image(4, 0), 7) == np.arange(6)).all()
    ids, inputs = flatten([7, image(6, 3)])
    cut = AxisOffsets(ids[:4], inputs)  # of a prompt that was cancelled within the image
    assert [cut.at(n) for n in range(5)] == [(0, 0, 0), (0, 0, 0), (-1, -1, 0), (-2, -2, 0), (0, 0, 0)]


def _graph(norm_rows: list[int | None], name: str = SLOT_ATTENTION, dtype: DType = DType.FLOAT32) -> Graph:
    """Return layers of attention that rotate by one table, with weights of norms from these rows on."""
    model = GraphBuilder()
    tokens, mapping = model.tensor(1, ROWS, dtype=DType.INT32), model.tensor(ROWS, 2, dtype=DType.INT32)
    decoding, picked, offset = model.symint(), model.tensor(ROWS, dtype=DType.INT32), model.symint()
    total = POSITIONS + sum(row is not None for row in norm_rows)
    table = model.tensor(2, total, WIDTH, dtype=dtype)
    x = model.tensor(1, ROWS, HEADS, WIDTH)
    for row in norm_rows:
        caches = [model.tensor(SLOTS, POSITIONS, HEADS, WIDTH, mutable=True) for _ in "kv"]
        out = model.tensor(1, ROWS, HEADS, WIDTH)
        norm = (model.null(), model.null()) if row is None else (model.number(row), model.add(Double(1e-6)))
        limits = (model.null(), model.null(), *norm, model.null())
        rest = (model.null(), table, model.add(Bool(False)), *limits)
        args = (x, x, x, *caches, mapping, offset, decoding, *rest)
        model.call(name, args if name == SLOT_ATTENTION else (x, x, table, table, mapping, offset), out)
        x = out
    return model.graph([tokens, mapping, decoding, picked, offset], [x])


@pytest.mark.parametrize("norm_rows", [[None, None], [POSITIONS, POSITIONS + 1]])
def test_layers_share_the_angles_of_the_batch_after_the_weights_of_norms(norm_rows):
    result = with_rope_axes(_graph(norm_rows), (2, 1, 1))
    last = result.values[result.inputs[-1]]
    assert isinstance(last, TensorSpec) and last.dims == (ROWS, 3) and last.dtype is DType.INT32
    angles, *layers = result.calls
    assert angles.name == AXIS_ANGLES and [result.values[each] for each in angles.args[3:]] == [
        Int(POSITIONS), Int(1), Int(1),
    ]  # fmt: skip
    assert result.values[angles.args[2]] == SymInt()
    weights = 0 if norm_rows[0] is None else 2
    assert result.tensor(angles.outs[0]).dims == (2, weights + ROWS, WIDTH)
    assert [layer.args[9] for layer in layers] == [angles.outs[0]] * 2
    assert [result.values[layer.args[15]] for layer in layers] == [Int(weights)] * 2
    if weights:
        assert [result.values[layer.args[13]] for layer in layers] == [Int(0), Int(1)]


def test_rotation_that_has_no_table_of_the_batch_is_refused():
    with raises(UnsupportedError, "before the norms", code="rope_axes"):
        with_rope_axes(_graph([None], SLOT_ROTARY), (2, 1, 1))
    with raises(UnsupportedError, "f16", code="rope_axes"):
        with_rope_axes(_graph([None], dtype=DType.FLOAT16), (2, 1, 1))
