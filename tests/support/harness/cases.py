"""Operator cases: one call, its arguments at their bound, and the live sizes below it.

    CASES = [
        case("aten.add.Tensor", T("n", 29), T("n", 1), 2, n=(11, 7, 1)),
        case("aten.view_copy.default", T("n", 6), [Sym("n"), 2, 3], n=(11, 7)),
    ]

A name among the dims is a dynamic size; the keyword gives its values, the bound first. Each value is one check: a
program with that single call is written (no torch involved), run on the device, and compared with the op's NumPy
reference. `Sym("n")` passes the live size itself, as a SymInt.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tests.cases
import webpte
import webpte.graph.names
from tests.support.harness.canaries import Canaries, larger_buffers
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.device import adapter_caps
from webpte.lowering import registered
from webpte.wgsl import Caps, Kernel

Array = np.ndarray
Sizes = dict[str, int]
_DTYPES = {d.short: d for d in DType}

# Files may not call ops that are ours alone; cases do, to try them by themselves. tests/unit/test_validate.py holds the
# rule in a process without this.
webpte.graph.names.OWN = "\0"


@dataclass(frozen=True)
class T:
    """A tensor argument. `low` and `high` bound its random values; `make` replaces them."""

    dims: tuple[int | str, ...]
    dtype: str = "f32"
    low: float = -2.0
    high: float = 2.0
    make: Callable[[tuple[int, ...]], Array] | None = None
    constant: bool = False

    def __init__(self, *dims: int | str, **options: Any) -> None:
        object.__setattr__(self, "dims", dims)
        for name, value in options.items():
            object.__setattr__(self, name, value)

    def at(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes[d] if isinstance(d, str) else d for d in self.dims)

    def array(self, sizes: Sizes, random: np.random.Generator) -> Array:
        dims, dtype = self.at(sizes), _DTYPES[self.dtype].numpy
        if self.make is not None:
            return np.asarray(self.make(dims), dtype)
        if self.dtype == "bool":
            return random.random(dims) < 0.5
        if np.issubdtype(dtype, np.integer):
            return random.integers(int(self.low), int(self.high), dims, endpoint=True).astype(dtype)
        return random.uniform(self.low, self.high, dims).astype(dtype)


@dataclass(frozen=True)
class Sym:
    """The live value of a dynamic size, passed as a SymInt."""

    name: str


@dataclass(frozen=True)
class Case:
    op: str
    args: tuple[Any, ...]
    sizes: tuple[Sizes, ...]
    atol: float = 1e-5
    rtol: float = 1e-5
    variant: str = ""
    always: bool = False  # in the gate, however many cases its op has

    @property
    def tensors(self) -> list[T]:
        return [a for a in self.args if isinstance(a, T)] + [
            t for a in self.args if isinstance(a, list) for t in a if isinstance(t, T)
        ]

    def __str__(self) -> str:
        by = f" by {self.variant}" if self.variant else ""
        return f"{self.op}({', '.join(_short(a) for a in self.args)}){by}"


def _short(arg: Any) -> str:
    if isinstance(arg, T):
        return f"{arg.dtype}[{','.join(map(str, arg.dims))}]"
    if isinstance(arg, list):
        return f"[{' '.join(_short(a) for a in arg)}]"
    return str(arg.name if isinstance(arg, Sym) else arg)


def case(op: str, *args: Any, **sizes: Any) -> Case:
    """Return a case; keywords give each dynamic size's values, the bound first, and `atol` and `rtol` (1e-5).

    `variant` is the kernel to run where the op has a choice. `always` keeps a case in the gate.
    """
    atol, rtol, variant = sizes.pop("atol", 1e-5), sizes.pop("rtol", 1e-5), sizes.pop("variant", "")
    always = sizes.pop("always", False)
    count = max((len(v) for v in sizes.values()), default=1)
    rows = tuple({name: v[min(i, len(v) - 1)] for name, v in sizes.items()} for i in range(count))
    return Case(op, args, rows, atol, rtol, variant, always)


def cases_by_module(*names: str) -> Iterator[tuple[str, Case]]:
    """Yield every case with the name of its module in tests/cases, or those of named ones: see `all_cases`."""
    for module in pkgutil.walk_packages(tests.cases.__path__, "tests.cases."):
        name = module.name.removeprefix("tests.cases.")
        if not names or name in names or name.partition(".")[0] in names:
            for case in getattr(importlib.import_module(module.name), "CASES", ()):
                yield name, case


def all_cases(*names: str) -> Iterator[Case]:
    """Every case of every module in tests/cases, or of the named ones: "norm" is a family, "matmul.linear" a module."""
    for _, case in cases_by_module(*names):
        yield case


class _Always(dict[str, str]):
    """A choice of kernels: the same variant for every job that has it."""

    def __init__(self, variant: str) -> None:
        super().__init__({"every job": variant})
        self.variant = variant

    def get(self, job: str, default: Any = None) -> Any:
        return self.variant


@contextlib.contextmanager
def choosing(variant: str) -> Iterator[None]:
    """Plan as if `variant` had been found the fastest."""
    chosen = _Always(variant) if variant else {}
    with mock.patch("webpte.runtime.program.read_tuning", lambda caps: chosen):
        yield


@functools.cache
def planned_cases(*names: str) -> list[tuple[Case, tuple[Kernel, ...]]]:
    """Every case, or those of the named modules (see `all_cases`), with the kernels its plan uses. Needs no device."""
    with tempfile.TemporaryDirectory() as folder:
        return [(case, planned_kernels(case, Path(folder))) for case in all_cases(*names)]


EVERYTHING = Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=4)


def planned_kernels(case: Case, folder: Path, caps: Caps = EVERYTHING) -> tuple[Kernel, ...]:
    """The kernels of a case, unless reported otherwise on a device that offers all we use."""
    OneOp(case).write(folder / "case.pte")
    with choosing(case.variant), webpte.load(folder / "case.pte") as program:
        return program.plan("forward", caps).kernels


def reference(case: Case, values: list[Any]) -> tuple[Array, ...]:
    """Return the result of the op's NumPy reference, always as a tuple."""
    compute = registered()[case.op].compute
    assert compute is not None, f"{case.op} has no reference"
    result = compute(*values)
    return tuple(result) if isinstance(result, (tuple, list)) else (np.asarray(result),)


class OneOp:
    """A program with a single call."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.values: list[c.VkValue] = []
        self.inputs: list[int] = []
        self.constants: list[Array] = []
        self.calls: list[tuple[str, list[int]]] = []
        self.fixed: dict[int, Array] = {}  # position of a constant among case.tensors -> its data

    def write(self, path: Path) -> None:
        case, bound = self.case, self.case.sizes[0]
        random = self._random(bound)
        arrays = [t.array(bound, random) for t in case.tensors]
        self.fixed = {i: a for i, (t, a) in enumerate(zip(case.tensors, arrays, strict=True)) if t.constant}
        outputs = reference(case, self.substitute(arrays, bound))
        self.tensor_ids = [self._tensor(t, a) for t, a in zip(case.tensors, arrays, strict=True)]
        ids = iter(self.tensor_ids)
        args = [self._value(arg, ids) for arg in case.args]
        outs = [self._add(c.VkTensor(_stored(o.dtype), o.shape)) for o in outputs]
        out = outs[0] if len(outs) == 1 else self._add(c.VkValueList(tuple(outs)))
        self.calls.append((case.op, [*args, out]))
        dynamic = len(case.sizes) > 1
        simple_pte(path, self.values, self.calls, self.inputs, outs, self.constants, dynamic=dynamic)

    def check(self, method: Any, sizes: Sizes, canaries: Canaries | None = None) -> None:
        """Run at one set of live sizes and compare. What no one may write is watched."""
        case = self.case
        random = self._random(sizes)
        arrays = [t.array(sizes, random) for t in case.tensors]
        arrays = [self.fixed.get(i, a) for i, a in enumerate(arrays)]
        expected = reference(case, self.substitute([a.copy() for a in arrays], sizes))
        inputs = [a for t, a in zip(case.tensors, arrays, strict=True) if not t.constant]
        if canaries is not None:
            canaries.set_out()
        outputs = method.run(inputs)
        for got, want in zip(outputs, expected, strict=True):
            assert_close(got, want, case.atol, case.rtol, f"{case} at {sizes}")
        if canaries is not None:
            canaries.check(outputs, f"{case} at {sizes}")

    def _random(self, sizes: Sizes) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{self.case}{sizes}".encode()))

    def substitute(self, arrays: list[Array], sizes: Sizes) -> list[Any]:
        """The arguments as the reference takes them."""
        tensors = iter(arrays[: sum(isinstance(a, T) for a in self.case.args)])
        listed = iter(arrays[sum(isinstance(a, T) for a in self.case.args) :])

        def value(arg: Any, source: Iterator[Array]) -> Any:
            if isinstance(arg, T):
                return next(source)
            if isinstance(arg, Sym):
                return sizes[arg.name]
            return [value(a, listed) for a in arg] if isinstance(arg, list) else arg

        return [value(arg, tensors) for arg in self.case.args]

    def _add(self, value: c.VkValue) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _tensor(self, spec: T, array: Array) -> int:
        number = -1
        if spec.constant:
            number = len(self.constants)
            self.constants.append(array)
        value_id = self._add(c.VkTensor(_stored(array.dtype), array.shape, constant_id=number))
        if not spec.constant:
            self.inputs.append(value_id)
        return value_id

    def _value(self, arg: Any, ids: Iterator[int]) -> int:
        if isinstance(arg, T):
            return next(ids)
        if isinstance(arg, Sym):
            return self._live_size(arg.name)
        if arg is None:
            return self._add(c.VkNull())
        if isinstance(arg, bool):
            return self._add(c.VkBool(arg))
        if isinstance(arg, int):
            return self._add(c.VkInt(arg))
        if isinstance(arg, float):
            return self._add(c.VkDouble(arg))
        if isinstance(arg, str):
            return self._add(c.VkString(arg))
        if all(isinstance(a, int) and not isinstance(a, bool) for a in arg):
            return self._add(c.VkIntList(tuple(arg)))
        if all(isinstance(a, float) for a in arg):
            return self._add(c.VkDoubleList(tuple(arg)))
        return self._add(c.VkValueList(tuple(self._value(a, self._listed()) for a in arg)))

    def _listed(self) -> Iterator[int]:
        if not hasattr(self, "_listed_ids"):
            direct = sum(isinstance(a, T) for a in self.case.args)
            self._listed_ids = iter(self.tensor_ids[direct:])
        return self._listed_ids

    def _live_size(self, name: str) -> int:
        """A SymInt read from the first input that has the size."""
        inputs = [t for t in self.case.tensors if not t.constant]
        tensor = next(t for t in inputs if name in t.dims)
        out = self._add(c.VkSymInt(0))
        dim = self._add(c.VkInt(tensor.dims.index(name)))
        self.calls.append(("sym_size.int", [self.inputs[inputs.index(tensor)], dim, out]))
        return out


def _stored(dtype: np.dtype) -> DType:
    """The dtype a delegate's tensor has: the exporter narrows 64 bits."""
    narrowed = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}.get(dtype, dtype)
    return next(d for d in DType if d.numpy == narrowed)


def assert_close(got: Array, want: Array, atol: float, rtol: float, where: str) -> None:
    """Every element within atol or rtol. Shapes must agree; NaN agrees with nothing, not even itself."""
    want = np.asarray(want)
    assert got.shape == want.shape, f"{where}: shape {got.shape}, expected {want.shape}"
    if got.size == 0:
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b)
        close = (error <= atol) | (error <= rtol * np.abs(b)) | ((a == b) & np.isinf(b))
    if not close.all():
        at = np.unravel_index(np.argmax(np.where(close, -1, np.nan_to_num(error, nan=np.inf))), got.shape)
        raise AssertionError(
            f"{where}: {int((~close).sum())} of {got.size} elements differ; worst at {tuple(map(int, at))}: "
            f"{got[at]!r}, expected {want[at]!r}"
        )


def run_case(case: Case, folder: Path) -> int:
    """All checks of a case; returns how many."""
    program = OneOp(case)
    program.write(folder / "case.pte")
    with larger_buffers(), choosing(case.variant), webpte.load(folder / "case.pte") as loaded:
        method = loaded.method()
        canaries = Canaries(method)
        jobs = method.planner.examples
        if case.variant and not any(case.variant in job.names for job in jobs):
            caps = adapter_caps()
            lacking = {
                "the kernel shares values within subgroups": case.variant.startswith("broadcast") and not caps.subgroup,
                "the kernel computes in f16": case.variant.endswith("f16")
                and (caps.exact or "shader-f16" not in caps.features),
            }
            reason = next((reason for reason, lacks in lacking.items() if lacks), None)
            assert reason is not None, f"{case}: no such variant"
            pytest.skip(f"{reason}, which this device does not have")
        for sizes in case.sizes:
            program.check(method, sizes, canaries)
        program.check(method, case.sizes[0], canaries)  # and back at the bound
    return len(case.sizes) + 1
