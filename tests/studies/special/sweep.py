"""The sweep: cases from the registry, special values planted, what the device says beside what eager PyTorch says."""

from __future__ import annotations

import dataclasses
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.studies.special import eager
from tests.studies.special.values import FLOATS, Array, differences, doubled, flushed, narrowed, planted
from tests.support.harness.cases import Case, OneOp, Sizes, T, all_cases, choosing, reference
from webpte.device import acquire
from webpte.graph import DType
from webpte.lowering import registered

LARGE = 30_000  # elements: a case of more is about precision or layout


@dataclass(frozen=True)
class Difference:
    """A difference of the device from eager, for one value that was planted in one way."""

    op: str
    dtype: str
    value: str
    kind: str
    example: str


def planted_tensors(case: Case) -> list[int]:
    """Positions among case.tensors of what special values are planted into: floats that are neither constants nor
    scales, which the one that quantized a tensor chose to divide by."""
    names = [name for name, _ in registered()[case.op].parameters]
    scales = [arg for name, arg in zip(names, case.args, strict=False) if "scale" in name]
    results = [t for t in case.tensors if not any(t is scale for scale in scales)]
    return [i for i, t in enumerate(case.tensors) if t in results and t.dtype in FLOATS and not t.constant]


def dtype_of(case: Case) -> str:
    return "f16" if any(t.dtype == "f16" for t in case.tensors) else "f32"


def every_case() -> list[Case]:
    """Every case that takes floats; where an op takes halves and has no case of them, its cases of floats in halves."""
    results = [case for case in all_cases() if planted_tensors(case) and _elements(case) <= LARGE]
    in_halves = {case.op for case in results if dtype_of(case) == "f16"}
    return results + [_halved(case) for case in results if case.op not in in_halves and _takes_halves(case)]


def _takes_halves(case: Case) -> bool:
    return DType.FLOAT16 in registered()[case.op].dtypes


def some_cases() -> list[Case]:
    """For each op and dtype, and each word among its arguments, one case: the first of those with most operands."""
    chosen: dict[tuple[Any, ...], Case] = {}
    for case in every_case():
        words = tuple(arg for arg in case.args if isinstance(arg, str))
        key = (case.op, dtype_of(case), words)
        if key not in chosen or _weight(case) > _weight(chosen[key]):
            chosen[key] = case
    return list(chosen.values())


def _elements(case: Case) -> int:
    return max(int(np.prod(t.at(case.sizes[0]))) for t in case.tensors)


def _weight(case: Case) -> tuple[bool, int]:
    return min(_elements(case), 30) == 30, len(planted_tensors(case))


def _halved(case: Case) -> Case:
    def halved(arg: Any) -> Any:
        if isinstance(arg, T) and arg.dtype == "f32":
            options = {f.name: getattr(arg, f.name) for f in dataclasses.fields(arg) if f.name != "dims"}
            return T(*arg.dims, **options | {"dtype": "f16"})
        return [halved(a) for a in arg] if isinstance(arg, list) else arg

    args = tuple(map(halved, case.args))
    return dataclasses.replace(case, args=args, atol=max(case.atol, 1e-3), rtol=max(case.rtol, 4e-3))


def sweep(cases: Sequence[Case], plantings: Sequence[tuple[str, str]]) -> Iterator[Difference]:
    """Yield every difference of some cases, on one device, which stays open for all of them."""
    gpu = acquire({})
    try:
        for case in cases:
            yield from _run(case, plantings)
    finally:
        gpu.release()


def _run(case: Case, plantings: Sequence[tuple[str, str]]) -> Iterator[Difference]:
    """Yield every difference of a case, at its bound."""
    sizes, program = case.sizes[0], OneOp(case)
    with tempfile.TemporaryDirectory() as folder:
        with np.errstate(over="ignore"):  # data made for floats, in halves
            program.write(Path(folder) / "case.pte")
        with choosing(case.variant), webpte.load(Path(folder) / "case.pte") as loaded:
            method = loaded.method()
            random = np.random.default_rng(zlib.crc32(str(case).encode()))
            with np.errstate(over="ignore"):
                arrays = [t.array(sizes, random) for t in case.tensors]
            arrays = [program.fixed.get(i, a) for i, a in enumerate(arrays)]
            for value, place in plantings:
                random = np.random.default_rng(zlib.crc32(f"{case} {value} {place}".encode()))
                operands = list(arrays)
                for i in planted_tensors(case):
                    operands[i] = planted(arrays[i], value, place, random)
                inputs = [a.copy() for t, a in zip(case.tensors, operands, strict=True) if not t.constant]
                outputs = [np.array(output) for output in method.run(inputs)]
                for kind, example in _compare(program, operands, sizes, outputs):
                    yield Difference(case.op, dtype_of(case), value, kind, example)


def expected(program: OneOp, arrays: list[Array], sizes: Sizes) -> tuple[Array, ...]:
    """Return eager PyTorch's result, or that of the op's NumPy reference if eager has no such op."""
    actual = eager.compute(program.case.op, program.substitute(arrays, sizes))
    if actual is not None:
        return actual
    with np.errstate(all="ignore"):
        return reference(program.case, program.substitute([a.copy() for a in arrays], sizes))


def _compare(program: OneOp, arrays: list[Array], sizes: Sizes, outputs: list[Array]) -> Iterator[tuple[str, str]]:
    """Compare elements with eager, with double precision, and with the result without denormals; one must agree."""
    case = program.case
    expected_result = expected(program, arrays, sizes)
    others: list[tuple[Array, ...]] = []
    for position, (got, exact) in enumerate(zip(outputs, expected_result, strict=True)):
        assert got.shape == exact.shape, f"{case}: {got.shape}, eager has {exact.shape}"
        want = narrowed(exact, got.dtype)
        actual = differences(got, want, case.atol, case.rtol)
        wrong = np.logical_or.reduce(list(actual.values()))
        if wrong.any():
            others = others or [expected(program, [change(a) for a in arrays], sizes) for change in (flushed, doubled)]
            for way in (want, *(narrowed(other[position], got.dtype) for other in others)):
                for allowed in (way, flushed(way)):
                    wrong &= np.logical_or.reduce(list(differences(got, allowed, case.atol, case.rtol).values()))
        for kind, where in actual.items():
            if (where & wrong).any():
                at = tuple(int(i) for i in np.argwhere(where & wrong)[0])
                yield kind, f"{got[at]!s} where eager has {want[at]!s}: {case}"
