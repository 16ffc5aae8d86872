"""Small files with something of everything in them, and a way to compare what was read from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support.harness.writer import DelegateBlob, Method, Named, ptd_bytes, pte_bytes, span_of, vk_blob
from webpte import container as c
from webpte.container import DType

VK_VALUES: list[c.VkValue] = [
    c.VkTensor(DType.FLOAT32, (5, 7), mem_obj_id=3),
    c.VkTensor(DType.FLOAT16, (7, 2), constant_id=1, mem_obj_id=0, staging_dtype=DType.FLOAT32),
    c.VkTensor(DType.INT8, (), constant_id=0),
    c.VkNull(),
    c.VkInt(-(2**63)),
    c.VkDouble(-math.inf),
    c.VkBool(True),
    c.VkString("gelu é"),
    c.VkIntList((1, -2, 2**63 - 1)),
    c.VkDoubleList((0.5, math.inf)),
    c.VkBoolList((True, False, True)),
    c.VkValueList((0, 11, 3)),
    c.VkSymInt(11),
    c.VkIntList(()),
]
VK_CALLS = [
    c.VkCall(4, "aten.add.Tensor", (0, 1, 4, 11)),
    c.VkCall(9, "sym_size.int", (0, 4, 12)),
]


def sample_blob() -> bytes:
    """Return every kind of value, one constant in the blob and one named."""
    return vk_blob(VK_VALUES, VK_CALLS, [0, 12], [11], [b"\x7f", c.VkConstant(None, "weight", 28)])


def sample_methods() -> list[Method]:
    """Return every kind of value and instruction, two methods, constant and initial data, two delegates."""
    weight = c.TensorValue(DType.FLOAT32, (2, 3), (1, 0), data=span_of(np.arange(6, dtype="<f4")))
    cache = c.TensorValue(DType.INT16, (5,), (0,), data=span_of(np.arange(5, dtype="<i2")), place=(1, 0), name="kv")
    values: list[c.EValue] = [
        c.TensorValue(DType.INT64, (1, 11), (0, 1), dynamic=True, place=(1, 0)),
        weight,
        cache,
        c.TensorValue(DType.BOOL, (), (), data=span_of(b"\x01")),
        c.TensorValue(DType.UINT8, (3,), (0,), external_name="emb.weight", name="emb.weight"),
        c.NullValue(),
        c.IntValue(-7),
        c.BoolValue(True),
        c.DoubleValue(math.inf),
        c.StringValue("none"),
        c.IntListValue((6, 6)),
        c.DoubleListValue((1.5,)),
        c.BoolListValue((False, True)),
        c.TensorListValue((0, 1)),
        c.OptionalTensorListValue((None, 0, 2)),
    ]
    instructions: list[c.Instruction] = [
        c.KernelCall("aten::cumsum.out", (0, 6, 5, 1)),
        c.JumpFalseCall(7, 4),
        c.DelegateCall(1, (0, 2)),
        c.MoveCall(0, 2),
        c.KernelCall("aten::copy_", (2, 0)),
        c.FreeCall(2),
    ]
    other = DelegateBlob(b"opaque", "CoreMLBackend")
    vulkan = DelegateBlob(sample_blob(), compile_specs={"force_fp16": b"\x01", "empty": b""})
    second = c.TensorValue(DType.FLOAT32, (3,), (0,), data=span_of(np.full(3, 2, dtype="<f4")))
    return [
        Method("forward", values, [0], [2, 7], instructions, [other, vulkan]),
        Method("get_max_seq_len", [c.IntValue(128), second], outputs=[0], chains=0),
    ]


def sample_pte(**options: Any) -> bytes:
    """Return the program of :func:`sample_methods`, with named data."""
    return pte_bytes(sample_methods(), named_data={"weight": b"w" * 28, "a": b"", "b": b"12345"}, **options)


def sample_ptd() -> bytes:
    """Two tensors, the second not contiguous, and data without a layout."""
    return ptd_bytes(
        {
            "emb.weight": Named(np.arange(3, dtype="u1"), DType.UINT8, (3,)),
            "conv": Named(np.arange(6, dtype="<f4"), DType.FLOAT32, (1, 2, 3, 1), (0, 2, 3, 1)),
            "blob": b"abc",
        }
    )


def facts(thing: Any) -> Any:
    """Return the content of a file, with bytes in place of spans and without its path, to compare two files."""
    if isinstance(thing, c.Span):
        return bytes(thing.view())
    if dataclasses.is_dataclass(thing):
        names = [field.name for field in dataclasses.fields(thing) if field.name != "path"]
        return type(thing).__name__, {name: facts(getattr(thing, name)) for name in names}
    if isinstance(thing, Mapping):
        return {key: facts(value) for key, value in thing.items()}
    return tuple(map(facts, thing)) if isinstance(thing, tuple | list) else thing


def read_all(data: bytes) -> Any:
    """Parse a program and the graphs in it, and touch every byte they refer to."""
    program = c.parse_program(c.MappedFile.from_bytes("sample.pte", data))
    delegates = [d for m in program.methods for d in m.delegates]
    vulkan = [c.parse_vulkan(d.blob) for d in delegates if d.backend == "VulkanBackend"]
    xnnpack = [c.parse_xnnpack(d.blob) for d in delegates if d.backend == "XnnpackBackend"]
    return facts(program), facts(vulkan), facts(xnnpack)
