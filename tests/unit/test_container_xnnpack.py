"""XNNPACK delegate blobs."""

from __future__ import annotations

import dataclasses
import json
import struct

import pytest

from tests.studies.xnnpack.facts import FACTS, SAMPLES, delegate_facts
from tests.support.harness.errors import raises
from tests.support.harness.flat_builder import Builder
from tests.support.harness.xnn_writer import xnn_blob, xnn_node, xnn_sample, xnn_sample_blob, xnn_value
from webpte.container import MappedFile, Span, XnnGraph, XnnType, parse_program, parse_xnnpack
from webpte.errors import FormatError

BEFORE = 3  # bytes ahead of the blob in its file, so that a position in the one is not one in the other


def parse(blob: bytes) -> XnnGraph:
    return parse_xnnpack(Span(MappedFile.from_bytes("m.pte", bytes(BEFORE) + blob), BEFORE, len(blob)))


@pytest.mark.parametrize("framing", ["offsets", "inline"])
def test_xnnpack_blob_round_trips(framing: str) -> None:
    values, nodes, constants = xnn_sample()
    graph = parse(xnn_sample_blob(framing))
    assert graph.arguments == 2
    assert [dataclasses.replace(v, quant=None) for v in graph.values] == [
        dataclasses.replace(v, quant=None) for v in values
    ]
    assert [v.quant for v in graph.values] == [v.quant for v in values]
    assert [(n.type, dict(n.ids), dict(n.numbers), dict(n.lists), n.clamp) for n in graph.nodes] == [
        (n.type, dict(n.ids), dict(n.numbers), dict(n.lists), n.clamp) for n in nodes
    ]
    spans = [constant.span for constant in graph.constants[1:]]
    assert [bytes(span.view()) for span in spans if span] == [array.tobytes() for array in constants]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_has_the_facts_of_an_independent_decoder(path) -> None:
    with MappedFile(path) as file:
        delegates = [d for m in parse_program(file).methods for d in m.delegates if d.backend == "XnnpackBackend"]
        read = [delegate_facts(parse_xnnpack(d.blob)) for d in delegates]
    assert read == json.loads(FACTS.read_text())[path.stem]


def test_truncated_header_is_an_error() -> None:
    for size in range(1, 30):
        with raises(FormatError):
            parse(xnn_sample_blob("offsets")[:size])


@pytest.mark.parametrize(
    ("at", "code", "value"), [(8, "H", 29), (10, "I", 0), (14, "I", 2**31), (18, "I", 1), (22, "Q", 2**40)]
)
def test_header_out_of_order_is_an_error(at: int, code: str, value: int) -> None:
    blob = bytearray(xnn_sample_blob("offsets"))
    struct.pack_into("<" + code, blob, at, value)
    with raises(FormatError, code="invalid_header"):
        parse(bytes(blob))


def test_xnnpack_blob_other_identifier_is_refused() -> None:
    b = Builder()
    with raises(FormatError, code="bad_magic"):
        parse(b.done(b.table(), b"VK00"))


X, Y = xnn_value((2,), argument=0), xnn_value((2,), argument=1, output=True)
ABS = xnn_node("Abs", input=0, output=1)


@pytest.mark.parametrize(
    ("values", "nodes", "constants", "code"),
    [
        ([X, Y], [xnn_node("Abs", input=0, output=2)], [], "index_out_of_range"),
        ([X, Y], [dataclasses.replace(ABS, clamp=(1.0, -1.0))], [], "limits"),
        ([X, Y], [dataclasses.replace(ABS, clamp=(0.0, float("nan")))], [], "limits"),
        ([X, dataclasses.replace(Y, argument=2)], [ABS], [], "index_out_of_range"),
        ([dataclasses.replace(X, is_output=True), Y], [ABS], [], "index_out_of_range"),
        ([X, Y, xnn_value((2,), constant=2)], [ABS], [b"12345678"], "index_out_of_range"),
        ([X, Y, xnn_value((2,), constant=1)], [ABS], [b"1234567"], "data_too_small"),
        ([X, Y, xnn_value((3, 3), constant=1, type=XnnType.QCINT4)], [ABS], [b"12345"], "data_too_small"),
        ([X, xnn_value((1,) * 17)], [], [], "too_many_dims"),
        ([X, Y], [xnn_node("StaticTranspose", perm=range(17), input=0, output=1)], [], "too_many_dims"),
    ],
)
def test_wrong_ids_and_sizes_are_errors(values, nodes, constants, code) -> None:
    with raises(FormatError, code=code):
        parse(xnn_blob(values, nodes, constants))


def test_unknown_node_type_is_an_error() -> None:
    b = Builder()
    nodes = b.tables([b.table(("B", 48), b.table())])
    with raises(FormatError, code="unknown_kind"):
        parse(b.done(b.table(None, nodes), b"XN01"))
