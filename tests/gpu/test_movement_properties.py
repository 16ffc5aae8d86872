"""Chains of movements against NumPy: what one op aliases or copies, the next one reads, at the bound and below it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import webpte
from tests.support.harness.cases import OneOp, T, assert_close, case, run_case
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.lowering import registered

DTYPES = {DType.FLOAT32: np.float32, DType.FLOAT16: np.float16, DType.INT32: np.int32, DType.BOOL: np.bool_}
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
counter = itertools.count()


class Chain:
    """Calls one after the other, each on the result of the one before, with what NumPy says at two sizes."""

    def __init__(self, dtype: DType, bound: tuple[int, ...], live: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.values: list[c.VkValue] = [c.VkTensor(dtype, bound)]
        self.calls: list[tuple[str, list[int]]] = []
        self.tensors = [0]
        self.arrays = [tuple(self._filled(dims) for dims in (bound, live))]  # one pair per tensor

    def _filled(self, dims: tuple[int, ...]) -> np.ndarray:
        numbers = np.arange(np.prod(dims, dtype=int)).reshape(dims)
        return (numbers % 3 == 0 if self.dtype is DType.BOOL else numbers - 5).astype(DTYPES[self.dtype])

    @property
    def bound(self) -> tuple[int, ...]:
        return self.arrays[-1][0].shape

    @property
    def live(self) -> tuple[int, ...]:
        return self.arrays[-1][1].shape

    def add(self, value: c.VkValue) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def literal(self, value: Any) -> int:
        if isinstance(value, list):
            return self.add(c.VkIntList(tuple(value)))
        if value is None:
            return self.add(c.VkNull())
        return self.add(c.VkBool(value) if isinstance(value, bool) else c.VkInt(value))

    def call(self, op: str, *args: Any, listed: int = 0) -> None:
        """`listed` passes the tensor that many times, as a list."""
        compute = registered()[op].compute
        assert compute is not None
        results = tuple(np.asarray(compute([a] * listed if listed else a, *args)) for a in self.arrays[-1])
        assume(all(0 < small <= big for big, small in zip(results[0].shape, results[1].shape, strict=True)))
        assume(results[0].size < 4000 and results[0].ndim <= 6)
        given = self.add(c.VkValueList((self.tensors[-1],) * listed)) if listed else self.tensors[-1]
        ids = [given, *map(self.literal, args)]
        self.tensors.append(self.add(c.VkTensor(self.dtype, results[0].shape)))
        self.calls.append((op, [*ids, self.tensors[-1]]))
        self.arrays.append(results)

    def check(self, path: Any, kept: int) -> None:
        """Run at the bound, below it and at the bound again; compare the last tensor and the one numbered `kept`."""
        outputs = [kept, len(self.tensors) - 1]
        ids = [self.tensors[o] for o in outputs]
        simple_pte(path, self.values, self.calls, [0], ids, dynamic=True)
        with webpte.load(path) as program:
            for size in (0, 1, 0):
                results = program.method().run([self.arrays[0][size]])
                for output, got in zip(outputs, results, strict=True):
                    assert_close(np.asarray(got), self.arrays[output][size], 0, 0, f"{self.calls} at {size}")


def _dim(draw: Any, chain: Chain, extra: int = 0) -> int:
    rank = len(chain.bound) + extra
    return draw(st.integers(-rank, rank - 1))


def _slice(draw: Any, chain: Chain) -> None:
    ends = draw(
        st.sampled_from([(None, None), (0, 2**62), (1, None), (0, 3), (2, 4), (-3, None), (None, -1), (-4, -1)])
    )
    chain.call("aten.slice_copy.Tensor", _dim(draw, chain), *ends, draw(st.integers(1, 3)))


def _select(draw: Any, chain: Chain) -> None:
    dim = _dim(draw, chain)
    chain.call("aten.select_copy.int", dim, draw(st.integers(-chain.live[dim], chain.live[dim] - 1)))


def _permute(draw: Any, chain: Chain) -> None:
    chain.call("aten.permute_copy.default", list(draw(st.permutations(range(len(chain.bound))))))


def _unsqueeze(draw: Any, chain: Chain) -> None:
    chain.call("aten.unsqueeze_copy.default", _dim(draw, chain, extra=1))


def _squeeze(draw: Any, chain: Chain) -> None:
    fixed = [d for d, (b, n) in enumerate(zip(chain.bound, chain.live, strict=True)) if (b == 1) == (n == 1)]
    chain.call("aten.squeeze_copy.dims", draw(st.lists(st.sampled_from(fixed), unique=True)) if fixed else [])


def _view(draw: Any, chain: Chain) -> None:
    """Merge two neighbors."""
    assume(len(chain.bound) > 1)
    at = draw(st.integers(0, len(chain.bound) - 2))
    sizes = [b if b == n else -1 for b, n in zip(chain.bound, chain.live, strict=True)]
    merged = -1 if -1 in sizes[at : at + 2] else sizes[at] * sizes[at + 1]
    size = [*sizes[:at], merged, *sizes[at + 2 :]]
    assume(size.count(-1) <= 1)
    chain.call("aten.view_copy.default", size)


def _expand(draw: Any, chain: Chain) -> None:
    pairs = zip(chain.bound, chain.live, strict=True)
    kept = [draw(st.integers(1, 3)) if b == n == 1 else -1 for b, n in pairs]
    chain.call("aten.expand_copy.default", [*draw(st.lists(st.integers(1, 3), max_size=2)), *kept], False)


def _cat(draw: Any, chain: Chain) -> None:
    chain.call("aten.cat.default", _dim(draw, chain), listed=draw(st.integers(1, 3)))


def _flip(draw: Any, chain: Chain) -> None:
    chain.call("aten.flip.default", draw(st.lists(st.sampled_from(range(len(chain.bound))), unique=True)))


def _repeat(draw: Any, chain: Chain) -> None:
    counts = st.lists(st.integers(1, 2), min_size=len(chain.bound), max_size=len(chain.bound) + 1)
    chain.call("aten.repeat.default", draw(counts))


def _pad(draw: Any, chain: Chain) -> None:
    pads = st.lists(st.integers(-1, 2), min_size=2, max_size=2)
    chain.call("aten.constant_pad_nd.default", draw(pads), draw(st.integers(0, 1)))


LINKS: list[Callable[[Any, Chain], None]] = [
    *(_slice, _select, _permute, _unsqueeze, _squeeze, _view, _expand, _cat, _flip, _repeat, _pad)
]


@st.composite
def chains(draw: Any) -> tuple[Chain, int]:
    rest = draw(st.lists(st.integers(1, 4), max_size=3))
    bound = draw(st.integers(2, 7))
    live = draw(st.integers(1, bound))
    chain = Chain(draw(st.sampled_from(list(DTYPES))), (bound, *rest), (live, *rest))
    for link in draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=4)):
        if chain.bound:
            link(draw, chain)
    return chain, draw(st.integers(1, max(1, len(chain.tensors) - 1)))


@quick
@given(drawn=chains())
def test_chains_of_movements(drawn, tmp_path, device):
    chain, kept = drawn
    assume(chain.calls)
    chain.check(tmp_path / f"{next(counter)}.pte", kept)


@st.composite
def indexings(draw: Any) -> tuple[T, list[T | None]]:
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shape = draw(st.lists(st.integers(1, 3), max_size=2))  # what the indices broadcast to

    def index(size: int) -> T:
        own = [draw(st.sampled_from([1, n])) for n in shape[draw(st.integers(0, len(shape))) :]]
        return T(*own, dtype="i32", low=-size, high=size - 1)

    indices = [draw(st.booleans()) for _ in range(draw(st.integers(1, len(dims))))]
    assume(any(indices))
    x = T("n", *dims[1:], dtype=draw(st.sampled_from(["f32", "f16", "i32", "bool"])))
    return x, [index(size) if given else None for size, given in zip((1, *dims[1:]), indices, strict=False)]


@quick
@given(drawn=indexings(), n=st.integers(2, 7))
def test_indexing(drawn, n, tmp_path, device):
    x, indices = drawn
    run_case(case("aten.index.Tensor", x, indices, n=(n, 1)), tmp_path)


F32 = DType.FLOAT32


def test_slice_to_live_end_is_not_an_alias(tmp_path, device):
    values: list[c.VkValue] = [
        *(c.VkTensor(F32, (11, 3)), c.VkTensor(F32, (11,))),  # 0: x, 1: gives the end
        *(c.VkSymInt(0), c.VkInt(0), c.VkInt(1)),  # 2: end, 3, 4
        *(c.VkTensor(F32, (11, 3)), c.VkTensor(F32, (11, 3))),  # 5: x[:end], 6: flipped
    ]
    calls = [
        ("sym_size.int", [1, 3, 2]),
        ("aten.slice_copy.Tensor", [0, 3, 3, 2, 4, 5]),
        ("aten.flip.default", [5, 3, 6]),
    ]
    simple_pte(tmp_path / "slice.pte", values, calls, [0, 1], [5, 6], dynamic=True)
    x = np.arange(33, dtype=np.float32).reshape(11, 3)
    with webpte.load(tmp_path / "slice.pte") as program:
        for end in (11, 7, 11, 2):
            part, flipped = program.method().run([x, np.zeros(end, np.float32)])
            np.testing.assert_array_equal(part, x[:end])
            np.testing.assert_array_equal(flipped, x[:end][::-1])


@pytest.mark.parametrize(
    "whole",
    [
        case("aten.slice_copy.Tensor", T("n", 3), 0, 0, 2**63 - 1, 1, n=(7, 2)),
        case("aten.select_copy.int", T("n", 1), 1, -1, n=(7, 2)),
        case("aten.permute_copy.default", T("n", 1, 3), [0, 2, 1], n=(7, 2)),
        case("aten.view_copy.default", T("n", 6), [-1, 3], n=(7, 2)),
        case("aten.expand_copy.default", T("n", 3), [-1, 3], False, n=(7, 2)),
    ],
    ids=str,
)
def test_reshapes_cost_nothing(whole, tmp_path, device):
    one = _written(whole, tmp_path)
    with webpte.load(one) as program:
        assert not program.method().plan.kernels


def _written(given: Any, folder: Any) -> Any:
    OneOp(given).write(folder / "case.pte")
    return folder / "case.pte"


def test_squeeze_removes_dims_by_bound(tmp_path, device):
    squeeze = case("aten.squeeze_copy.dims", T("n", 1, 3), [0, 1], n=(7, 1))
    with webpte.load(_written(squeeze, tmp_path)) as program:
        for n in (7, 1):
            (got,) = program.method().run([np.full((n, 1, 3), n, np.float32)])
            np.testing.assert_array_equal(got, np.full((n, 3), n, np.float32))


MASK = T(5, dtype="bool", make=lambda dims: np.arange(5) % 2)
MASKED = [[MASK], [T(5, 3, dtype="bool", make=np.eye(5, 3).reshape)], [MASK, T(2, dtype="i32", make=np.zeros)]]


@pytest.mark.parametrize("indices", MASKED, ids=["rows", "elements", "beside an index"])
def test_masks_are_refused_with_a_remedy(indices, tmp_path, device):
    path = _written(case("aten.index.Tensor", T(5, 3), indices), tmp_path)
    with webpte.load(path) as program, raises(webpte.UnsupportedError, "aten.index.Tensor", "bool[", "torch.where"):
        program.method()
