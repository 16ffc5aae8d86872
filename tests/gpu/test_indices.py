"""Positions outside of a tensor: an error for every op that declares what its positions index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import Case, OneOp, T, all_cases
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, Method, pte_file
from webpte import container as c
from webpte.container import KernelCall
from webpte.lowering import Indexing, registered

Lookup = tuple[int, int, int]  # position of the index among the case's tensors, size of its dim, lowest position


def indexing_ops() -> dict[str, Indexing]:
    return {name: op.traits.indexing for name, op in registered().items() if op.traits.indexing is not None}


def case_of(name: str) -> Case:
    return next(case for case in all_cases() if case.op == name and _lookup(case)[1] > 1)


def _lookup(case: Case) -> Lookup:
    """Return where a case's first positions are, and what they may be."""
    op, indexing = registered()[case.op], indexing_ops()[case.op]
    arguments = dict(zip((name for name, _ in op.parameters), case.args, strict=False))
    table, index = arguments[indexing.tensor], arguments[indexing.index]
    dims = table.at(case.sizes[0])
    if isinstance(index, list):
        dim = next(i for i, each in enumerate(index) if each is not None)
        index = index[dim]
    else:
        dim = indexing.dim if isinstance(indexing.dim, int) else arguments[indexing.dim]
    size = dims[dim] if dims else 1
    return next(i for i, each in enumerate(case.tensors) if each is index), size, -size if indexing.from_end else 0


class _Computed(OneOp):
    """A case whose positions are the product of two inputs, which only the device knows."""

    def __init__(self, case: Case, position: int) -> None:
        super().__init__(case)
        self.position = position

    def _tensor(self, spec: T, array: np.ndarray) -> int:
        first = super()._tensor(spec, array)
        if spec is not self.case.tensors[self.position]:
            return first
        factor, product = super()._tensor(spec, array), self._add(c.VkTensor(c.DType.INT32, array.shape))
        self.calls.append(("aten.mul.Tensor", [first, factor, product]))
        return product


def arguments_of(case: Case, position: int, last: int, computed: bool) -> Iterator[np.ndarray]:
    """Yield the inputs at the bound, with one position replaced."""
    random = np.random.default_rng(0)
    for i, tensor in enumerate(case.tensors):
        array = tensor.array(case.sizes[0], random)
        if i == position:
            array = np.zeros_like(array)
            array.reshape(-1)[-1] = last
        if not tensor.constant:
            yield array
        if i == position and computed:
            yield np.ones_like(array)


@pytest.mark.parametrize("name", indexing_ops())
def test_position_outside_raises_before_the_call_runs(name, tmp_path):
    case = case_of(name)
    position, size, low = _lookup(case)
    OneOp(case).write(tmp_path / "p.pte")
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        assert not method.plan.checks  # the device computes nothing more
        for last in (low, size - 1):
            method.run(list(arguments_of(case, position, last, computed=False)))
        for last in (low - 1, size, size + 1, 2**31 - 1):
            with raises(webpte.GuardError, name, str(last), f"{low} to {size - 1}"):
                method.run(list(arguments_of(case, position, last, computed=False)))


@pytest.mark.parametrize("name", indexing_ops())
def test_computed_position_outside_raises_after_the_call(name, tmp_path):
    case = case_of(name)
    position, size, low = _lookup(case)
    _Computed(case, position).write(tmp_path / "p.pte")
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method()
        for last in (low, size - 1):
            method.run(list(arguments_of(case, position, last, computed=True)))
        for last in (low - 1, size, 2**31 - 1):
            with raises(webpte.RangeError, name, str(last), f"{low} to {size - 1}"):
                method.run(list(arguments_of(case, position, last, computed=True)))


def test_ops_with_index_arguments_declare_indexing():
    """An op with an argument named like positions either declares it, or is listed with the reason."""
    named = {
        name: [a for a, annotation in op.parameters if a in ("index", "indices") and "Tensor" in str(annotation)]
        for name, op in registered().items()
    }
    missing = {name for name, arguments in named.items() if arguments and name not in indexing_ops()}
    assert missing == {"webpte.index_check"}  # it only compares


# -- a cache of four rows, written at a place --------------------------------------------------------------------------

CACHE, ROW, PLACE, RESULT, INDICES, NO, CLAMPED, LEAST, MOST = range(9)


def tensor(dtype: c.DType, *dims: int) -> c.TensorValue:
    return c.TensorValue(dtype, dims, tuple(range(len(dims))), place=ALONE)


def cache_program(path: Path, *, computed: bool) -> Path:
    """Write a row (1, 2) into a cache (4, 2), at an input or, `computed`, at most at 6, and return the cache."""
    long, index = c.DType.INT64, CLAMPED if computed else PLACE
    values = [
        *(tensor(c.DType.FLOAT32, rows, 2) for rows in (4, 1)), tensor(long, 1), tensor(c.DType.FLOAT32, 4, 2),
        c.OptionalTensorListValue((index,)), c.BoolValue(False), tensor(long, 1), c.IntValue(-5), c.IntValue(6),
    ]  # fmt: skip
    calls = [
        *([KernelCall("aten::clamp.out", (PLACE, LEAST, MOST, CLAMPED, CLAMPED))] if computed else []),
        KernelCall("aten::index_put.out", (CACHE, INDICES, ROW, NO, RESULT, RESULT)),
        KernelCall("aten::copy_", (CACHE, RESULT, NO, CACHE)),
    ]
    pte_file(path, [Method(values=values, inputs=[ROW, PLACE], outputs=[RESULT], instructions=calls)])
    return path


def written(method: webpte.Method, row: float, place: int) -> list[float]:
    return np.asarray(method(np.full((1, 2), row, np.float32), np.array([place])))[:, 0].tolist()


@pytest.mark.parametrize("saved", [False, True])
def test_refused_position_leaves_state_unchanged(saved, tmp_path):
    file = cache_program(tmp_path / "p.pte", computed=False)
    with webpte.load(file) as program:
        method = program.method()
        if saved:
            method.save(tmp_path / "plan")
    opened = webpte.open_plan(tmp_path / "plan") if saved else webpte.load(file)
    with opened as program:
        method = program.method()
        assert written(method, 1, 0) == [1, 0, 0, 0]
        for place in (4, 9, -5):
            with raises(webpte.GuardError, "aten::index_put.out", "-4 to 3", str(place)):
                written(method, 7, place)
        assert written(method, 2, -1) == [1, 0, 0, 2]  # from the end, as index_put of PyTorch
        steps = [(np.full((1, 2), 3, np.float32), np.array([place])) for place in (1, 4)]
        with pytest.raises(webpte.GuardError):
            method.run_steps(steps, {}, [0])
        assert written(method, 4, 2) == [1, 0, 4, 2]


@pytest.mark.parametrize("saved", [False, True])
def test_computed_position_is_not_written(saved, tmp_path):
    file = cache_program(tmp_path / "p.pte", computed=True)
    with webpte.load(file) as program:
        method = program.method()
        if saved:
            method.save(tmp_path / "plan")
    opened = webpte.open_plan(tmp_path / "plan") if saved else webpte.load(file)
    with opened as program:
        method = program.method()
        assert written(method, 1, 1) == [0, 1, 0, 0]
        with raises(webpte.RangeError, "aten::index_put.out", "-4 to 3", "got 4,"):
            written(method, 7, 4)
        assert written(method, 2, 0) == [2, 1, 0, 0]
