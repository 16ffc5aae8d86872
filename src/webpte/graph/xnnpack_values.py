"""Values of an XNNPACK delegate in the method's graph, where dims may be in another order.

Convolutions and pools of XNNPACK work on (N, H, W, C), the ops here on (N, C, H, W), and the exporter writes transposes
between. Here a transpose is only a fact: a `LaidOut` value says which dim of the graph's tensor each dim of the
delegate's value is. A copy is made where a node needs another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..container import DType, MappedFile, Span, XnnGraph, XnnType, XnnValue, count_code_bytes
from ..errors import DataError, GraphError
from ..typing import Array
from .graph import Bool, Call, Constant, Double, Int, IntList, Null, Origin, TensorSpec, Value, ValueList, numel
from .names import CLAMP, CONVERSION, COPY, PERMUTE, RELU, RESHAPE, UNSQUEEZE

Named = Callable[[str, str, int], Span]
Order = tuple[int, ...]
NHWC: Order = (0, 2, 3, 1)  # of a value in (N, H, W, C) whose tensor is (N, C, H, W)
FLOATS = {XnnType.FP32: DType.FLOAT32, XnnType.FP16: DType.FLOAT16}
# Numbers of bf16 are f32 on the device, rounded after each node.
DTYPES = FLOATS | {XnnType.BF16: DType.FLOAT32, XnnType.INT32: DType.INT32, XnnType.QINT8: DType.INT8}
STORED = FLOATS | {
    XnnType.BF16: DType.BFLOAT16,
    XnnType.QINT8: DType.INT8,
    XnnType.QCINT8: DType.INT8,
    XnnType.QINT32: DType.INT32,
    XnnType.QCINT32: DType.INT32,
}
CODES = (XnnType.QINT8, XnnType.QCINT8, XnnType.QCINT4, XnnType.QINT32, XnnType.QCINT32)
TYPE_REMEDIES = {
    XnnType.QUINT8: "Quantize the model with XNNPACKQuantizer, whose codes are int8.",
}


class LaidOut(NamedTuple):
    """A tensor of the graph: dim d of the delegate's value is dim `order[d]` of the tensor."""

    tensor: int
    order: Order


class UnsupportedNodeError(Exception):
    """A node has no translation. The message says what is expected, `remedy` how to export the model without it."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


def _listed(types: Iterable[XnnType]) -> str:
    *most, last = (type.name.lower() for type in types)
    return f"{', '.join(most)} or {last}"


def identity(rank: int) -> Order:
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """Return the order that undoes another: the dim of the value at each dim of the tensor."""
    return tuple(order.index(d) for d in range(len(order)))


class XnnValues:
    """Adds the values and calls of one delegate to a graph."""

    def __init__(self, values: list[Value], xnn: XnnGraph, origin: Origin, named: Named) -> None:
        self.values = values
        self.xnn = xnn
        self.origin = origin
        self.named = named
        self.calls: list[Call] = []
        self.layouts: dict[int, LaidOut] = {}
        self.dynamic: dict[int, int] = {}  # a value that is quantized at run time -> the value with its numbers
        self.codes_dtype = DType.INT8  # of values of type qint8; floats while a node on codes is computed on numbers
        self._copies: dict[tuple[object, ...], int] = {}

    # -- values of the graph -------------------------------------------------------------------------------------------

    def new(self, value: Value) -> int:
        """Return the id of a new value."""
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, tensor: int) -> TensorSpec:
        """Return the spec of a tensor."""
        spec = self.values[tensor]
        assert isinstance(spec, TensorSpec)
        return spec

    def call(self, name: str, arguments: Sequence[int | Value], dtype: DType, dims: Sequence[int]) -> int:
        """Add a call with one result; return the tensor. Arguments are ids or literals."""
        out = self.new(TensorSpec(dtype, tuple(dims), dtype))
        self.call_into(name, arguments, (out,))
        return out

    def call_into(self, name: str, arguments: Sequence[int | Value], outs: tuple[int, ...]) -> None:
        """Add a call that writes these tensors."""
        ids = tuple(argument if isinstance(argument, int) else self.new(argument) for argument in arguments)
        self.calls.append(Call(name, ids, outs, self.origin))

    def convert_outside(self, source: int, target: int) -> None:
        """Add a conversion before or after the delegate, which the CPU runs: devices have no bf16."""
        args = (source, self.new(Bool(False)), self.new(Null()))
        self.calls.append(Call(CONVERSION, args, (target,), Origin(self.origin.instruction), kernel=True))

    def permuted(self, tensor: int, dims: Order) -> int:
        """Return a tensor whose dim d is dim `dims[d]` of another; the same tensor if they are in order."""
        if dims == identity(len(dims)):
            return tensor
        return self._copy(PERMUTE, tensor, dims)

    def viewed(self, tensor: int, size: Sequence[int], bound: Sequence[int]) -> int:
        """Return a tensor with the same elements and another shape. -1 in `size` is computed at run time."""
        spec = self.tensor(tensor)
        if numel(spec.dims) != numel(tuple(bound)):
            raise GraphError(f"delegate {self.origin.delegate}: view of {list(spec.dims)} as {list(bound)}")
        return self.call(RESHAPE, (tensor, IntList(tuple(size))), spec.dtype, bound)

    def _copy(self, name: str, tensor: int, dims: Order) -> int:
        key = (name, tensor, dims)
        if key not in self._copies:
            spec = self.tensor(tensor)
            bound = [spec.dims[d] for d in dims]
            self._copies[key] = self.call(name, (tensor, IntList(dims)), spec.dtype, bound)
        return self._copies[key]

    # -- values of the delegate ----------------------------------------------------------------------------------------

    def value(self, value_id: int) -> XnnValue:
        return self.xnn.values[value_id]

    def rank(self, value_id: int) -> int:
        return len(self.value(value_id).dims)

    def dtype(self, value_id: int) -> DType:
        """Return the dtype of the tensor of a value."""
        value = self.value(value_id)
        dtype = self.codes_dtype if value.type is XnnType.QINT8 else DTYPES.get(value.type)
        if dtype is None:
            raise UnsupportedNodeError(
                f"expected values of {_listed(DTYPES)}, got {value.type.name.lower()}",
                TYPE_REMEDIES.get(value.type, ""),
            )
        return dtype

    def is_constant(self, value_id: int) -> bool:
        return self.value(value_id).constant > 0

    def array(self, value_id: int) -> Array:
        """Return the data of a constant in its own order of dims; codes as they are stored."""
        value = self.value(value_id)
        data = self.data(value.constant, count_code_bytes(value.type, value.dims), f"value {value_id}")
        if value.type is XnnType.QCINT4 and value.dims:  # two to a byte, the first in its low bits
            pairs = np.frombuffer(data, np.uint8).reshape(*value.dims[:-1], -1, 1) >> np.array((0, 4), np.uint8) & 15
            return pairs.reshape(*value.dims[:-1], -1)[..., : value.dims[-1]].astype(np.int8) - 8
        stored = STORED.get(value.type)
        if stored is None:
            raise UnsupportedNodeError(f"expected constants of {_listed(STORED)}, got {value.type.name.lower()}")
        return stored.from_bytes(data).reshape(value.dims)

    def numbers(self, value_id: int) -> Array:
        """Return the same with codes times their scales."""
        value, array = self.value(value_id), self.array(value_id)
        if value.type not in CODES:
            return array
        axis = value.quant.channel_dim if value.quant is not None else 0
        if not 0 <= axis < array.ndim:
            raise GraphError(f"value {value_id}: scales along dim {axis} of {array.ndim} dims")
        dims = [size if d == axis else 1 for d, size in enumerate(value.dims)]
        return array * self.scales(value_id, value.dims[axis]).reshape(dims)

    def scales(self, value_id: int, count: int) -> Array:
        """Return the scales of a constant, one for each of `count` channels. Its zero point must be 0."""
        value = self.value(value_id)
        quant = value.quant
        if quant is None or quant.kind not in ("tensor", "channel") or quant.zero_point:
            raise UnsupportedNodeError(
                f"expected {value.type.name.lower()} weights with scales of channels and the zero point 0, got {quant}"
            )
        if quant.scale_data:
            scales = np.frombuffer(self.data(quant.scale_data, 4 * count, f"scales of value {value_id}"), np.float32)
        else:
            scales = np.array(quant.scales, np.float32)
        if quant.kind == "tensor":
            scales = np.repeat(scales[:1], count)
        if len(scales) != count:
            raise GraphError(f"value {value_id}: expected {count} scales, got {len(scales)}")
        return scales

    def data(self, constant: int, needed: int, what: str) -> bytes:
        """Return the first `needed` bytes of a constant."""
        return bytes(self.span(constant, needed, what).view())

    def span(self, constant: int, needed: int, what: str) -> Span:
        """Return the range of the first `needed` bytes of a constant."""
        entry = self.xnn.constants[constant]
        where = f"delegate {self.origin.delegate}, {what}"
        span = entry.span if entry.key is None else self.named(entry.key, where, needed)
        if span is None or min(span.size, entry.length) < needed:
            held = 0 if span is None else min(span.size, entry.length)
            raise DataError(f"{where}: constant {constant} has {held} bytes; the shape needs {needed}")
        return span.sub(0, needed)

    def literal(self, array: Array, dtype: DType, name: str) -> int:
        """Return a constant tensor of this data."""
        data = dtype.rounded(array).tobytes()
        span = Span(MappedFile.from_bytes(f"{name}, laid out", data or b"\0", derived=True), 0, len(data))
        return self.new(TensorSpec(dtype, array.shape, dtype, constant=Constant(span, dtype, name)))

    def constant(self, value_id: int, arrange: str, change: Callable[[Array], Array], dtype: DType) -> int:
        """Return a constant as a tensor in another arrangement, once per arrangement. "" is the order of the file."""
        value = self.value(value_id)
        key = ("constant", value_id, arrange, dtype)
        if key not in self._copies:
            entry = self.xnn.constants[value.constant]
            name = entry.key or f"delegate {self.origin.delegate}, value {value_id}"
            if not arrange and STORED.get(value.type) is dtype:
                needed = count_code_bytes(value.type, value.dims)
                span = self.span(value.constant, needed, f"value {value_id}")
                spec = TensorSpec(dtype, value.dims, dtype, constant=Constant(span, dtype, name))
                self._copies[key] = self.new(spec)
            else:
                array = self.numbers(value_id) if dtype in FLOATS.values() else self.array(value_id)
                self._copies[key] = self.literal(change(array), dtype, f"{name} {arrange}".strip())
        return self._copies[key]

    def place(self, value_id: int) -> LaidOut:
        """Return where a value is that an argument or a node has defined, or a constant."""
        if value_id in self.layouts:
            return self.layouts[value_id]
        if not self.is_constant(value_id):
            raise GraphError(f"delegate {self.origin.delegate}: value {value_id} is read before it is defined")
        return LaidOut(
            self.constant(value_id, "", lambda array: array, self.dtype(value_id)), identity(self.rank(value_id))
        )

    def ranked(self, value_id: int) -> LaidOut:
        """Return the same with as many dims as the value has: a scalar of the program has one in the delegate."""
        tensor, order = self.place(value_id)
        rank = self.rank(value_id)
        return LaidOut(tensor, order) if len(order) == rank else LaidOut(self.plain(value_id), identity(rank))

    def put(self, value_id: int, tensor: int, order: Order) -> None:
        """Define a value."""
        if value_id in self.layouts or self.is_constant(value_id) or self.value(value_id).is_input:
            raise GraphError(f"delegate {self.origin.delegate}: value {value_id} is defined twice")
        self.layouts[value_id] = LaidOut(tensor, order)

    def bound(self, value_id: int, order: Order) -> list[int]:
        """Return the largest dims of the tensor that holds a value in this order."""
        dims = self.value(value_id).dims
        if len(dims) != len(order):
            raise GraphError(
                f"delegate {self.origin.delegate}: value {value_id} has {len(dims)} dims, not {len(order)}"
            )
        return [dims[d] for d in inverse(order)]

    def plain(self, value_id: int) -> int:
        """Return the tensor of a value in its own order of dims."""
        return self.laid(value_id, identity(self.rank(value_id)))

    def laid(self, value_id: int, order: Order) -> int:
        """Return the tensor of a value in an order of dims. Dims of size 1 are put before a value of smaller rank."""
        rank, own = len(order), self.rank(value_id)
        if value_id not in self.layouts and self.is_constant(value_id):
            dims = (1,) * (rank - own) + self.value(value_id).dims
            arrange = "" if order == identity(own) else f"as {order}"
            return self.constant(
                value_id, arrange, lambda a: a.reshape(dims).transpose(inverse(order)), self.dtype(value_id)
            )
        tensor, current = self.place(value_id)
        if len(current) != own:  # a scalar of the program, which has one dim in the delegate
            tensor, current = self.viewed(tensor, (1,) * own, (1,) * own), identity(own)
        if own < rank:
            tensor, current = self.permuted(tensor, current), identity(own)
            for _ in range(rank - own):
                spec = self.tensor(tensor)
                tensor = self.call(UNSQUEEZE, (tensor, Int(0)), spec.dtype, (1, *spec.dims))
            current = identity(rank)
        if own > rank:
            raise GraphError(f"delegate {self.origin.delegate}: value {value_id} has {own} dims, expected {rank}")
        back = inverse(order)
        return self.permuted(tensor, tuple(current[d] for d in back))

    def broadcast(self, value_id: int, order: Order) -> int:
        """Return a tensor that broadcasts against one in this order as the value does against the value of that one."""
        if value_id in self.layouts and all(dim == 1 for dim in self.value(value_id).dims):
            return self.layouts[value_id].tensor
        own = self.rank(value_id)
        if order == identity(len(order)):
            return self.plain(value_id)
        if own < len(order) and order[-own:] == tuple(range(len(order) - own, len(order))):
            return self.plain(value_id)
        return self.laid(value_id, order)

    def common_order(self, value_ids: Sequence[int]) -> Order:
        """Return the order in which to compute with several values: that of the first with the highest rank."""
        rank = max(self.rank(value_id) for value_id in value_ids)
        whole = [v for v in value_ids if v in self.layouts and self.rank(v) == len(self.layouts[v].order) == rank]
        return self.layouts[whole[0]].order if whole else identity(rank)

    def clamped(self, tensor: int, clamp: tuple[float, float] | None) -> int:
        """Return a tensor limited to a range."""
        if clamp is None or clamp == (-np.inf, np.inf):
            return tensor
        spec = self.tensor(tensor)
        if clamp == (0.0, np.inf):
            return self.call(RELU, (tensor,), spec.dtype, spec.dims)
        low, high = (Null() if np.isinf(bound) else Double(bound) for bound in clamp)
        return self.call(CLAMP, (tensor, low, high), spec.dtype, spec.dims)

    def converted(self, tensor: int, dtype: DType) -> int:
        """Return a tensor in another dtype."""
        spec = self.tensor(tensor)
        return tensor if spec.dtype is dtype else self.call(COPY, (tensor,), dtype, spec.dims)

    def listed(self, tensors: Sequence[int]) -> ValueList:
        return ValueList(tuple(tensors))
