"""Writes XNNPACK delegate blobs, and programs of one such delegate, from the dataclasses of ``webpte.container``::

x = xnn_value((2, 3), argument=0)
y = xnn_value((2, 3), argument=1, output=True)
xnn_pte("abs.pte", [x, y], [xnn_node("Abs", input=0, output=1)])
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.harness.flat_builder import Builder, Field, Offset, align
from tests.support.harness.writer import DelegateBlob, Method, pte_bytes
from webpte import container as c
from webpte.container import DType, XnnNode, XnnQuant, XnnType, XnnValue
from webpte.container.xnnpack import NODE_FIELDS

NONE = 2**32 - 1
_BORDER = {
    XnnType.FP32: DType.FLOAT32,
    XnnType.FP16: DType.FLOAT16,
    XnnType.BF16: DType.BFLOAT16,
    XnnType.QINT8: DType.INT8,
    XnnType.INT32: DType.INT64,
}


def xnn_value(
    dims: Sequence[int], argument: int | None = None, output: bool = False, type: XnnType = XnnType.FP32, **more: Any
) -> XnnValue:
    """Return a value: private, constant with ``constant=``, or argument number ``argument``."""
    is_input = argument is not None and not output
    return XnnValue(type, tuple(dims), argument=argument, is_input=is_input, is_output=output, **more)


def xnn_node(type: str, clamp: tuple[float, float] | None = None, factor: float = 0.0, **fields: Any) -> XnnNode:
    """Return a node; fields that are not named are 0, and value ids that are not named are absent."""
    schema = next(items for name, items in NODE_FIELDS.values() if name == type)
    ids = {item[1:]: fields[item[1:]] for item in schema if item.startswith("%") and item[1:] in fields}
    lists = {item[:-2]: tuple(fields.get(item[:-2], ())) for item in schema if item.endswith("[]")}
    numbers = {item: fields.get(item, 0) for item in schema if item[0] not in "%~" and not item.endswith("[]")}
    return XnnNode(type, ids, numbers, lists, factor, clamp)


def xnn_blob(
    values: Sequence[XnnValue], nodes: Sequence[XnnNode], constants: Sequence[Any] = (), framing: str = "offsets"
) -> bytes:
    """A blob. ``constants`` are arrays or bytes, numbered from 1.

    ``framing`` is "inline" (XN00, as ExecuTorch 0.1 writes), "offsets" (0.2 to 0.5) or "named" (later: the blob has the
    names of :func:`xnn_keys` instead of the data).
    """
    b = Builder()
    raw, table = b"", [b.table(("Q", 2**64 - 1), ("Q", 0))]
    data = [item if isinstance(item, bytes) else np.ascontiguousarray(item).tobytes() for item in constants]
    inline = [b.table(b.blob(b""))]
    for key, item in zip(xnn_keys(data), data, strict=True):
        if framing == "named":
            table.append(b.table(("Q", 2**64 - 1), ("Q", len(item)), b.string(key)))
            continue
        raw = raw.ljust(align(len(raw), 16), b"\0")
        table.append(b.table(("Q", len(raw)), ("Q", len(item))))
        inline.append(b.table(b.blob(item)))
        raw += item
    graph = b.table(
        b.string("0"),
        b.tables([_node(b, node) for node in nodes]),
        b.tables([_value(b, number, value) for number, value in enumerate(values)]),
        ("I", sum(value.argument is not None for value in values)),
        b.scalars("I", [i for i, value in enumerate(values) if value.is_input]),
        b.scalars("I", [i for i, value in enumerate(values) if value.is_output]),
        b.tables(inline) if framing == "inline" else None,
        None,
        None if framing == "inline" else b.tables(table),
    )
    flat = b.done(graph, b"XN00" if framing == "inline" else b"XN01")
    if framing == "inline":
        return flat
    start = align(32 + len(flat), 16)
    header = struct.pack("<4x4sHIIIQ2x", b"XH00", 30, 32, len(flat), start, len(raw))
    return (header + flat).ljust(start, b"\0") + raw


def xnn_keys(constants: Sequence[Any]) -> list[str]:
    """Return the names of constants that are not in the blob."""
    return [f"constant {number}" for number in range(1, len(constants) + 1)]


def _value(b: Builder, number: int, value: XnnValue) -> Offset:
    tensor = b.table(
        ("h", value.type.code),
        ("I", len(value.dims)),
        b.scalars("I", value.dims),
        ("I", value.constant),
        ("I", NONE if value.argument is None else value.argument),
        ("I", value.is_input + 2 * value.is_output),
        ("I", number),
        ("h", 3 if value.quantized_on_entry else 0),
    )
    if value.quant is None:
        return b.table(("B", 1), tensor)
    q = value.quant
    scales = b.scalars("f", q.scales) if q.kind in ("channel", "group") else None
    kinds: dict[str, tuple[int, Offset]] = {
        "channel": (1, b.table(scales, ("i", q.channel_dim), ("I", q.scale_data), ("I", len(q.scales)))),
        "tensor": (2, b.table(("f", (*q.scales, 0.0)[0]), ("i", q.zero_point))),
        "token": (3, b.table(("i", q.inner_dims))),
        "group": (4, b.table(scales, ("i", q.channel_dim), ("i", q.group_size), None, ("I", q.scale_data))),
    }
    kind, params = kinds[q.kind]
    return b.table(("B", 2), b.table(tensor, ("B", kind), params))


def _node(b: Builder, node: XnnNode) -> Offset:
    number, schema = next((number, items) for number, (name, items) in NODE_FIELDS.items() if name == node.type)
    fields: list[Field] = []
    for item in schema:
        if item.startswith("%"):
            fields.append(("I", node.ids.get(item[1:], NONE)))
        elif item.startswith("~"):
            fields.append(("f", node.factor))
        elif item.endswith("[]"):
            fields.append(b.scalars("I", node.lists[item[:-2]]))
        else:
            fields.append(("I", node.numbers[item]))
    bounds = None if node.clamp is None else b.table(("f", node.clamp[0]), ("f", node.clamp[1]))
    return b.table(("B", number), b.table(*fields), ("I", 0), bounds)


def xnn_method(values: Sequence[XnnValue], blob: bytes, dynamic: bool = False) -> Method:
    """Return a method that is one XNNPACK delegate, with tensors of its arguments' shapes around it."""
    order = sorted((v for v in values if v.argument is not None), key=lambda v: v.argument or 0)
    borders, end = [], 0
    for value in order:
        axes = tuple(range(len(value.dims)))
        borders.append(c.TensorValue(_BORDER[value.type], value.dims, axes, dynamic=dynamic, place=(1, end)))
        end = align(end + 8 * math.prod(value.dims) + 1, 16)
    ids = tuple(range(len(order)))
    inputs = tuple(i for i in ids if order[i].is_input)
    outputs = tuple(i for i in ids if order[i].is_output)
    return Method("forward", borders, inputs, outputs, [c.DelegateCall(0, ids)], [DelegateBlob(blob, "XnnpackBackend")])


def xnn_pte(
    values: Sequence[XnnValue],
    nodes: Sequence[XnnNode],
    constants: Sequence[Any] = (),
    dynamic: bool = False,
    framing: str = "offsets",
) -> bytes:
    """The bytes of a program that is one delegate. Constants are numbered from 1, as ``XnnValue.constant`` does."""
    blob = xnn_blob(values, nodes, constants, framing)
    named = dict(zip(xnn_keys(constants), constants, strict=True)) if framing == "named" else {}
    return pte_bytes([xnn_method(values, blob, dynamic)], named_data=named)


def xnn_sample() -> tuple[list[XnnValue], list[XnnNode], list[np.ndarray]]:
    """Return a float layer, a transpose and a layer of 4-bit codes, with every kind of scale."""
    values = [
        xnn_value((2, 32), argument=0),
        xnn_value((32, 32), constant=1),
        xnn_value((2, 32)),
        xnn_value((2, 32), type=XnnType.QDINT8, quant=XnnQuant("token", inner_dims=1)),
        xnn_value((3, 32), type=XnnType.QBINT4, constant=2, quant=XnnQuant("group", (0.5,) * 3, group_size=32)),
        xnn_value((2, 3)),
        xnn_value((2, 3), type=XnnType.QINT8, quant=XnnQuant("tensor", (0.25,), -3)),
        xnn_value((3, 3), type=XnnType.QCINT8, constant=3, quant=XnnQuant("channel", scale_data=4)),
        xnn_value((2, 3), type=XnnType.QINT8, quant=XnnQuant("tensor", (0.125,), 7)),
        xnn_value((2, 3)),
        xnn_value((3, 2), argument=1, output=True),
    ]
    nodes = [
        xnn_node("FullyConnected", input=0, filter=1, output=2, clamp=(0.0, float("inf"))),
        xnn_node("Convert", input=2, output=3),
        xnn_node("FullyConnected", input=3, filter=4, output=5),
        xnn_node("Convert", input=5, output=6),
        xnn_node("FullyConnected", input=6, filter=7, output=8),
        xnn_node("Convert", input=8, output=9),
        xnn_node("StaticTranspose", num_dims=2, perm=(1, 0), input=9, output=10),
    ]
    rng = np.random.default_rng(35)
    constants = [
        rng.standard_normal((32, 32)).astype("f4"),
        rng.integers(0, 256, (3, 16)).astype("u1"),
        rng.integers(-128, 128, (3, 3)).astype("i1"),
        np.array([0.1, 0.2, 0.3], "f4"),
    ]
    return values, nodes, constants


def xnn_sample_blob(framing: str) -> bytes:
    """Return the blob of :func:`xnn_sample`."""
    return xnn_blob(*xnn_sample(), framing)
