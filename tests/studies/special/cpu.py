"""Special values through the kernels that run on the CPU, against eager PyTorch.

A kernel is called by its name outside delegates, with the arguments of its op's cases. Floats become special values,
integers the extremes of their dtype, with many ties; dims that may vary are also 1 and 0. Each is tried with every
dtype that eager PyTorch accepts. A kernel written for the CPU alone has its cases in OWN.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.studies.special.documented import documented
from tests.studies.special.values import Array, differences
from tests.support.harness.cases import Case, OneOp, T, all_cases, case
from webpte.container import DType
from webpte.errors import Error
from webpte.graph import (
    Bool,
    Call,
    Double,
    DoubleList,
    Graph,
    Int,
    IntList,
    Null,
    Origin,
    String,
    TensorSpec,
    Value,
    ValueList,
)
from webpte.lowering import registry
from webpte.runtime.kernels import KERNELS, CpuKernels

SMALL = 200  # elements: a case of more is about precision or layout
MAX_CASES = 4  # of a kernel
NAN, INF = float("nan"), float("inf")
FLOATS = (NAN, -NAN, 0.0, -0.0, INF, -INF, 1.0, 1.0, -2.5, 3.0, 0.5, -0.5)
DEVICE = {DType.INT64: DType.INT32, DType.FLOAT64: DType.FLOAT32}
DTYPES: dict[np.dtype, DType] = {
    np.dtype(d.held): d
    for d in (DType.FLOAT32, DType.FLOAT64, DType.INT64, DType.INT32, DType.UINT8, DType.INT8, DType.BOOL)
}
ROWS = T("n", 7)
INDICES: dict[str, Any] = {"dtype": "i32", "make": lambda dims: np.arange(np.prod(dims)).reshape(dims) * 5 % 7}
OFFSETS: dict[str, Any] = {"dtype": "i32", "make": lambda dims: np.array([0, 2, 2])}
SHIFTS: dict[str, Any] = {"dtype": "i32", "make": lambda dims: np.arange(np.prod(dims)).reshape(dims) * 9 % 71 - 2}
N = {"n": (11,)}

OWN = (
    *(case("aten::topk.values", ROWS, k, 1, largest, True, **N) for k in (1, 4, 7) for largest in (True, False)),
    *(case("aten::topk.values", ROWS, 1, 0, largest, False, **N) for largest in (True, False)),
    *(case("aten::topk.values", T(), 1, 0, largest, True) for largest in (True, False)),
    *(
        case(f"aten::{name}", T("n", 7, dtype="i32"), 3, **N)
        for name in ("__lshift__.Scalar_out", "__rshift__.Scalar_out")
    ),
    *(
        case(f"aten::bitwise_{side}_shift.Tensor_Scalar_out", T("n", 7, dtype="i32"), by, **N)
        for side in ("left", "right")
        for by in (0, 5, 63, 64, -1)
    ),
    *(
        case(f"aten::{name}", T("n", 7, dtype="i32"), T("n", 7, **SHIFTS), **N)
        for name in (
            "__lshift__.Tensor_out",
            "__rshift__.Tensor_out",
            "bitwise_left_shift.Tensor_out",
            "bitwise_right_shift.Tensor_out",
        )
    ),
    *(
        case("aten::_native_batch_norm_legit.no_stats_out", T(2, 3, 5), *affine, True, 0.1, 1e-5)
        for affine in ((None, None), (T(3), T(3)))
    ),
    *(
        case(
            "aten::_embedding_bag.out",
            T(7, 3),
            T(6, **INDICES),
            T(3, **OFFSETS),
            False,
            mode,
            False,
            weights,
            last,
            pad,
        )
        for mode, weights in ((0, None), (0, T(6)), (1, None), (2, None))
        for last, pad in ((False, -1), (True, 5))
    ),
    case("aten::_trilinear.out", T(5, 4), T(3, 4, 6), T(5, 6), [1, 3], [0], [1, 2], [2, 3], 1),
)

# Ops that are not swept, with the reason. Everything else with a kernel outside delegates is.
UNSWEPT = {
    "aten::copy_": "aten.copy.default in place",
    "aten::index_put_": "aten.index_put.default in place",
    "aten.max_pool2d.default": "aten.max_pool2d_with_indices.default without the indices",
    "aten._weight_int8pack_mm.default": "eager has no variant with an out argument",
    "aten.empty.memory_format": "eager returns what was in memory",
    "custom_sdpa.default": "not an op of PyTorch's; on the device tests/studies/special/sweep.py covers it",
    "dim_order_ops._clone_dim_order.default": "copies",
    "executorch_prim::et_copy_index.tensor": "copies rows",
    "sdpa_with_kv_cache.default": "not an op of PyTorch's; on the device tests/studies/special/sweep.py covers it",
    "update_cache.default": "copies rows",
}
QUANTIZED = ("quantized_decomposed.", "custom_quantized_sdpa")  # NaN and infinities have no code: docs/numbers.md

# (op, kind of difference) -> why the CPU may differ from eager; docs/files/special-values.csv has the list of devices.
DIFFERENT = {
    ("aten.amin.default", "sign of zero"): "of equal zeros eager's vectors take another one",
    ("aten.amax.default", "sign of zero"): "of equal zeros eager's vectors take another one",
    ("aten.clamp.default", "value"): "eager wraps a bound that the dtype cannot hold: -1 becomes 255",
    ("aten.convolution.default", "NaN made"): "padding is multiplied with infinite weights",
    ("aten.grid_sampler_2d.default", "NaN made"): "eager converts a position that is NaN to an integer",
    ("aten.mean.default", "error"): "the mean of no elements is refused; eager returns NaN",
    ("aten.mean.dim", "error"): "the mean of no elements is refused; eager returns NaN",
    ("aten.native_group_norm.default", "error"): "rows of no elements have no mean",
    ("aten.pixel_unshuffle.default", "error"): "eager returns no elements in the shape of the input",
    ("aten.upsample_bilinear2d.vec", "value"): "eager rounds bytes along each dim",
    ("aten.var.correction", "error"): "the variance of too few elements is refused; eager returns NaN",
    ("aten.var.dim", "error"): "the variance of too few elements is refused; eager returns NaN",
    ("aten::topk.values", "sign of zero"): "which of equal elements comes first is not defined in eager",
}
UNORDERED = {"aten::topk.values": 1}  # kernel -> the result with positions of equal elements, which eager leaves open
COMPARED = {"aten::_embedding_bag.out": 1}  # kernel -> its first results that eager fills in every mode


def op_of(name: str) -> str:
    """Return the name of a kernel in UNSWEPT and DIFFERENT: the first edge name of its op, if it has one."""
    return name if name in KERNELS else (*registry._KERNELS[name].names, name)[0]


@functools.cache
def names_by_op() -> Mapping[str, list[str]]:
    """Return the names outside delegates of each kernel that NumPy runs on the CPU."""
    registry._discover()
    names = {*KERNELS, *(name for name, op in registry._KERNELS.items() if op.compute is not None)}
    grouped = defaultdict(list)
    for name in sorted(names):
        grouped[op_of(name)].append(name)
    return grouped


def unswept(op: str) -> bool:
    return op in UNSWEPT or op.startswith(QUANTIZED)


@functools.cache
def _small_cases() -> Mapping[str, list[Case]]:
    grouped: dict[str, list[Case]] = defaultdict(list)
    for one in (*all_cases(), *OWN):
        if max((int(np.prod(t.at(one.sizes[0]))) for t in one.tensors), default=0) <= SMALL:
            grouped[one.op].append(one)
    return grouped


def cases_of(name: str) -> list[Case]:
    """Return some cases of a kernel: different ones first, as far as ranks, strings and absent arguments show."""
    edges = (name,) if name in KERNELS else registry._KERNELS[name].names
    if name in KERNELS:
        return _small_cases()[name]
    kinds: dict[Any, list[Case]] = defaultdict(list)
    for one in (one for edge in edges for one in _small_cases()[edge]):
        kinds[
            tuple(len(a.dims) if isinstance(a, T) else a if isinstance(a, str) else type(a) for a in one.args)
        ].append(one)
    rounds = itertools.zip_longest(*kinds.values())
    return [one for some in rounds for one in some if one is not None][:MAX_CASES]


@dataclass(frozen=True)
class Difference:
    op: str
    kind: str
    example: str


def sweep(name: str) -> Iterator[Difference | None]:
    """Return None for each call that eager PyTorch accepts, and the differences of the kernel's results."""
    kernel = functional(name)
    for one in cases_of(name) if kernel is not None else ():
        bound = one.sizes[0]
        for sizes in (bound, *({key: size for key in bound} for size in (1, 0) if bound)):
            for dtype in DTYPES if sizes is bound else (np.dtype(np.float32), np.dtype(np.int64)):
                if (args := _arguments(name, one, sizes, dtype)) is not None:
                    yield from _compare(name, kernel, one, args, f"{one} in {dtype} at {sizes}")


def _arguments(name: str, one: Case, sizes: dict[str, int], dtype: np.dtype) -> list[Any] | None:
    random = np.random.default_rng(zlib.crc32(f"{one} {sizes} {dtype}".encode()))
    try:
        arrays = [_array(t, sizes, dtype, random) for t in one.tensors]
    except (ValueError, IndexError):  # data that was made for other sizes
        return None
    args = OneOp(one).substitute(arrays, sizes)
    if name in KERNELS:
        return args
    parameters = registry._KERNELS[name].parameters
    return [a for (_, kind), a in zip(parameters, args, strict=False) if kind is not registry.TensorOption]


def _array(t: T, sizes: dict[str, int], dtype: np.dtype, random: np.random.Generator) -> Array:
    """Return special values in `dtype` for data; indices, masks and the like stay as the case has them, in 64 bits."""
    dims = t.at(sizes)
    if t.dtype in ("f32", "f16"):
        return special(dtype, dims, random)
    if t.dtype == "i32" and t.make is None and (t.low, t.high) == (T.low, T.high):
        return special(dtype if dtype.kind in "iu" else np.dtype(np.int64), dims, random)
    array = t.array(sizes, random)
    return array.astype(np.int64) if t.dtype == "i32" else array


def special(dtype: np.dtype, dims: tuple[int, ...], random: np.random.Generator) -> Array:
    if dtype == np.bool_:
        return np.asarray(random.random(dims) < 0.5)
    if dtype.kind == "f":
        values = np.array(FLOATS, dtype)
    else:
        info = np.iinfo(dtype)
        values = np.array([info.min, info.min + 1, info.max, info.max - 1, 1, 1, 2, 7, 100], dtype)
    return np.asarray(values[random.integers(0, len(values), dims)])


def functional(name: str) -> Any:
    """Return the overload of eager PyTorch that computes the same without an out argument; None if there is none."""
    namespace, _, rest = name.partition("::")
    base, _, which = rest.partition(".")
    packet = getattr(torch.ops.aten, base, None) if namespace == "aten" else None
    if packet is None or which not in packet.overloads():
        return None
    mine = _schema(getattr(packet, which))
    others = [getattr(packet, other) for other in packet.overloads()]
    return next((o for o in others if not any(a.is_out for a in o._schema.arguments) and _schema(o) == mine), None)


def _schema(overload: Any) -> list[tuple[str, str]]:
    options = {"dtype", "layout", "device", "pin_memory"}
    return [(a.name, str(a.type)) for a in overload._schema.arguments if not a.is_out and a.name not in options]


def _eager(kernel: Any, args: list[Any]) -> list[Array]:
    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        return [convert(v) for v in value] if isinstance(value, list) else value

    arguments = [a for a in kernel._schema.arguments if a.name not in ("layout", "device", "pin_memory")]
    pairs = list(zip(arguments, map(convert, args), strict=False))
    named = {a.name: v for a, v in pairs if a.kwarg_only and v is not None}
    result = kernel(*(v for a, v in pairs if not a.kwarg_only), **named)
    return [t.numpy() for t in (result if isinstance(result, (tuple, list)) else [result])]


def _ours(name: str, args: list[Any], outs: list[Array]) -> list[Array]:
    values: list[Value] = []
    tensors: dict[int, Array] = {}

    def add(value: Value) -> int:
        values.append(value)
        return len(values) - 1

    def spec(array: Array) -> TensorSpec:
        dtype = DTYPES[array.dtype]
        return TensorSpec(DEVICE.get(dtype, dtype), array.shape, dtype)

    def convert(value: Any) -> int:
        match value:
            case np.ndarray():
                tensors[len(values)] = value.copy()
                return add(spec(value))
            case None:
                return add(Null())
            case bool():
                return add(Bool(value))
            case int():
                return add(Int(value))
            case float():
                return add(Double(value))
            case str():
                return add(String(value))
        if all(isinstance(v, int) for v in value):
            return add(IntList(tuple(value)))
        if all(isinstance(v, float) for v in value):
            return add(DoubleList(tuple(value)))
        return add(ValueList(tuple(map(convert, value))))

    ids = tuple(map(convert, args))
    call = Call(name, ids, tuple(add(spec(out)) for out in outs), Origin(0), True)
    return list(CpuKernels().run(call, Graph("forward", tuple(values), (), (), ()), tensors, {}).values())


def _compare(name: str, kernel: Any, one: Case, args: list[Any], where: str) -> Iterator[Difference | None]:
    try:
        expected = _eager(kernel, args)
    except (RuntimeError, NotImplementedError, IndexError, TypeError):
        return
    yield None
    op = op_of(name)
    try:
        with np.errstate(all="ignore"):
            got = _ours(name, args, expected)
    except Error as error:
        if (op, "error") not in DIFFERENT:
            yield Difference(op, "error", f"{where}: {error}")
        return
    for position, (mine, theirs) in enumerate(zip(got[: COMPARED.get(name)], expected, strict=False)):
        if mine.shape != theirs.shape:
            yield Difference(op, "shape", f"{where}: {mine.shape}, eager has {theirs.shape}")
        elif UNORDERED.get(name) == position:
            yield from _positions(name, args, got, where)
        else:
            for kind, wrong in differences(mine, theirs, one.atol, one.rtol).items():
                allowed = (op, kind) in DIFFERENT or documented(op, "mixed", kind) or documented(one.op, "mixed", kind)
                if wrong.any() and not allowed:
                    at = tuple(int(i) for i in np.argwhere(wrong)[0])
                    yield Difference(op, kind, f"{where}: {mine[at]!s} at {at}, eager has {theirs[at]!s}")


def _positions(name: str, args: list[Any], got: list[Array], where: str) -> Iterator[Difference]:
    """Compare positions of equal elements, which eager leaves open: those elements, each once, the first ones first."""
    x, _, dim = (np.atleast_1d(args[0]), *args[1:3])
    values, order = (np.atleast_1d(a) for a in got)
    if not np.array_equal(np.take_along_axis(x, order, axis=dim), values, equal_nan=x.dtype.kind == "f"):
        yield Difference(name, "positions", f"{where}: {order.tolist()} are not the positions of {values.tolist()}")
    axis = np.moveaxis(values, dim, 0)
    equal = np.diff(np.moveaxis(order, dim, 0), axis=0)[axis[1:] == axis[:-1]]
    if (equal <= 0).any():
        yield Difference(name, "positions", f"{where}: of equal elements a later one comes first")
