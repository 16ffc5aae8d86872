"""Random graphs, feeds, inputs and packings: `run_steps` against single runs, to the last bit.

`python -m tests.support.harness.random_steps 2000` tries that many and says how many of them shared a submit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

import webpte
from tests.support.harness.graphs import GraphBuilder
from webpte.device import Gpu, WeightBuffers, acquire
from webpte.fusion import PASSES
from webpte.graph import DType, Graph, IntList, TensorSpec, numel
from webpte.plan import make_planner, memory
from webpte.plan.memory import Allocation
from webpte.runtime.kernels import CpuKernels
from webpte.runtime.method import Method

ROWS, COLUMNS = 6, 5
UNARY = ("aten.neg.default", "aten.relu.default", "aten.abs.default")
BINARY = ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor")
FUSED = 0.05  # of the graphs: every fused kernel is a new one, which a driver takes long to compile
Results = list[tuple[Any, ...]]


@dataclass
class Trial:
    """A graph and one call of `run_steps`."""

    graph: Graph
    passes: tuple[str, ...]
    steps: list[tuple[Any, ...]]
    feed: dict[int, int]
    outputs: list[int]


@dataclass
class _Writer:
    """Adds random calls to a graph. Floats and integers have one shape each, so that any can meet any."""

    random: np.random.Generator
    dynamic: bool
    b: GraphBuilder = field(default_factory=GraphBuilder)
    inputs: list[int] = field(default_factory=list)
    floats: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)  # integers
    produced: list[int] = field(default_factory=list)  # of any kind, as candidates for outputs
    index: int = -1  # a live integer
    bytes_: tuple[int, int] = (-1, -1)  # int8 inputs: a matrix and a row, which end inside a word

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, ids: list[int]) -> int:
        return ids[int(self.random.integers(len(ids)))]

    def input(self, *dims: int, dtype: DType = DType.FLOAT32, host: DType | None = None) -> int:
        self.inputs.append(self.b.add(TensorSpec(dtype, dims, host or dtype, dynamic=self.dynamic and len(dims) > 1)))
        return self.inputs[-1]

    def write(self) -> None:
        self.floats += [self.input(ROWS, COLUMNS) for _ in range(self.random.integers(1, 4))]
        if self.chance(0.4):
            host = DType.INT64 if self.chance(0.5) else DType.INT32
            self.whole += [self.input(ROWS, COLUMNS, dtype=DType.INT32, host=host) for _ in range(2)]
        if self.chance(0.3):
            self.bytes_ = self.input(ROWS, COLUMNS, dtype=DType.INT8), self.input(COLUMNS, dtype=DType.INT8)
        if self.chance(0.5):
            self._live_integer()
        if not self.dynamic and self.chance(0.5):
            self.floats.append(self.b.tensor(ROWS, COLUMNS, mutable=True))
        for _ in range(self.random.integers(1, 9)):
            self._call()

    def _live_integer(self) -> None:
        if self.chance(0.5):  # from an input's data, which the host therefore has to see
            position = self.input(1, dtype=DType.INT32, host=DType.INT64)
            self.index = self.b.symint()
            zero = self.b.number(0)
            self.b.call("et_vk.select_as_symint.default", (position, zero, zero), self.index)
        else:
            self.index = self.b.symint()
            self.inputs.append(self.index)
        if self.chance(0.3):
            doubled = self.b.symint()
            self.b.call("executorch_prim::add.Scalar", (self.index, self.index), doubled, kernel=True)
            self.produced.append(doubled)

    def _call(self) -> None:
        b, kind = self.b, self.random.random()
        if self.whole and kind < 0.2:
            out = b.add(TensorSpec(DType.INT32, (ROWS, COLUMNS), DType.INT64))
            b.call("aten.add.Tensor", (self.pick(self.whole), self.pick(self.whole), b.number(1)), out)
            self.whole.append(out)
        elif self.index >= 0 and kind < 0.4:
            out = self._row()
        elif kind < 0.5:
            out = b.tensor(ROWS, COLUMNS)
            b.call("aten.clone.default", (self.pick(self.floats), b.null()), out)
            self.floats.append(out)
        elif kind < 0.6:
            out = b.tensor(ROWS * COLUMNS)
            b.call("aten.view_copy.default", (self.pick(self.floats), b.add(IntList((-1,)))), out)
        elif kind < 0.7:
            stored = [v for v in self.floats if b.values[v].mutable or v in self.inputs]  # type: ignore[union-attr]
            out = self.pick(stored)
            source = self.pick([v for v in self.floats if v != out] or [self._arithmetic()])
            b.call("aten::copy_", (out, source, b.null()), out, kernel=True)
        else:
            out = self._arithmetic()
        self.produced.append(out)

    def _row(self) -> int:
        b = self.b
        if self.bytes_[0] >= 0 and self.chance(0.5):
            out = b.tensor(COLUMNS, dtype=DType.INT8)
            b.call("aten.select_copy.int", (self.bytes_[0], b.number(0), self.index), out)
            return out
        row, out = b.tensor(COLUMNS), b.tensor(ROWS, COLUMNS)
        b.call("aten.select_copy.int", (self.pick(self.floats), b.number(0), self.index), row)
        b.call("aten.add.Tensor", (self.pick(self.floats), row, b.number(1)), out)
        self.floats.append(out)
        return out

    def _arithmetic(self) -> int:
        b, out = self.b, self.b.tensor(ROWS, COLUMNS)
        if self.chance(0.5):
            b.call(UNARY[self.random.integers(3)], (self.pick(self.floats),), out)
        else:
            name = BINARY[self.random.integers(3)]
            args = self.pick(self.floats), self.pick(self.floats)
            b.call(name, args if "mul" in name else (*args, b.number(1)), out)
        self.floats.append(out)
        return out


def make_trial(seed: int) -> Trial:
    """Return all of a trial follows from its seed."""
    random = np.random.default_rng(seed)
    writer = _Writer(random, dynamic=bool(random.random() < 0.4))
    writer.write()
    outputs = [writer.pick(writer.produced) for _ in range(random.integers(1, 5))]
    outputs += [v for v in writer.inputs if random.random() < 0.15]
    if not any(isinstance(writer.b.values[v], TensorSpec) for v in outputs):
        outputs.append(writer.floats[0])
    random.shuffle(outputs)
    graph = writer.b.graph(writer.inputs, outputs)
    feed = _random_feed(graph, random)
    steps = _random_steps(graph, random, writer.dynamic, bool(feed))
    expected = [p for p in range(len(outputs)) if random.random() < 0.7]
    return Trial(graph, tuple(PASSES) if random.random() < FUSED else (), steps, feed, expected)


def _random_feed(graph: Graph, random: np.random.Generator) -> dict[int, int]:
    def fits(output: int, position: int) -> bool:
        produced, taken = graph.values[graph.outputs[output]], graph.values[graph.inputs[position]]
        if not isinstance(produced, TensorSpec) or not isinstance(taken, TensorSpec):
            return False
        return produced.dtype is taken.dtype and numel(produced.dims) == numel(taken.dims)

    feed: dict[int, int] = {}
    for output in random.permutation(len(graph.outputs)).tolist():
        fitting = [p for p in range(len(graph.inputs)) if p not in feed.values() and fits(output, p)]
        if fitting and random.random() < 0.6:
            feed[output] = fitting[int(random.integers(len(fitting)))]
    return feed


def _random_steps(graph: Graph, random: np.random.Generator, dynamic: bool, fed: bool) -> list[tuple[Any, ...]]:
    count = int(random.integers(1, 6))
    rows = [int(random.integers(1, ROWS + 1)) if dynamic else ROWS] * count
    if dynamic and not fed and random.random() < 0.3:
        rows = random.integers(1, ROWS + 1, count).tolist()
    constant = [random.random() < 0.5 for _ in graph.inputs]
    seeds = random.integers(0, 2**32, len(graph.inputs)).tolist()
    return [
        tuple(
            _argument(graph.values[v], rows[k], min(rows), np.random.default_rng([seed, 0 if same else k]))
            for v, same, seed in zip(graph.inputs, constant, seeds, strict=True)
        )
        for k in range(count)
    ]


def _argument(spec: object, rows: int, least: int, random: np.random.Generator) -> Any:
    if not isinstance(spec, TensorSpec):
        return int(random.integers(least))
    if spec.dims == (1,):
        return random.integers(0, least, 1)
    dims = (rows, COLUMNS) if len(spec.dims) > 1 else spec.dims
    return random.integers(-3, 4, dims).astype(spec.host_dtype.numpy)


@contextmanager
def random_packing(seed: int) -> Iterator[None]:
    """Assign buffers at random, as far as lifetimes allow."""
    random = np.random.default_rng(seed)

    def share(roots: Iterable[Allocation]) -> list[tuple[int, list[Allocation]]]:
        buffers: list[list[Allocation]] = []
        values = list(roots)
        for at in random.permutation(len(values)):
            root = values[at]
            free = [b for b in buffers if all(root.last < o.first or o.last < root.first for o in b)]
            if free and random.random() < 0.85:
                free[int(random.integers(len(free)))].append(root)
            else:
                buffers.append([root])
        return [(max(r.nbytes for r in tenants), tenants) for tenants in buffers]

    with patch.object(memory, "share_buffers", share):
        yield


def single_runs(method: Method, trial: Trial) -> Results:
    """Return what `run_steps` promises, by `run` alone."""
    graph = trial.graph
    results: Results = []
    fed: dict[int, Any] = {}
    for args in trial.steps:
        values = [fed.get(position, arg) for position, arg in enumerate(args)]
        result = method.run(values)
        results.append(tuple(result[p] for p in trial.outputs))
        for output, position in trial.feed.items():
            dtype = graph.tensor(graph.inputs[position]).host_dtype.numpy
            fed[position] = result[output].reshape(np.shape(args[position])).astype(dtype)
    return results


def _in_two_submits(method: Method, trial: Trial) -> Results:
    """Return the results of the steps of which the last follow the first before those are read, if they can."""
    method.reset()
    first = method.start_steps(trial.steps[:1], trial.feed, trial.outputs)
    others = method.follow_steps(first, trial.steps[1:]) if trial.steps[1:] else None
    if others is None:
        first.discard()
        method.reset()
        return method.run_steps(trial.steps, trial.feed, trial.outputs)
    return [*first.results(), *others.results()]


def differences(got: Results, want: Results) -> list[str]:
    actual = []
    for step, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        for output, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            a, b = np.asarray(a), np.asarray(b)
            if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
                actual.append(f"step {step}, output {output}: {a.ravel()[:4]}, one by one {b.ravel()[:4]}")
    return actual


def try_seed(seed: int, gpu: Gpu) -> bool:
    """Run one trial; return whether its steps shared a submit. Raise AssertionError if results differ."""
    trial = make_trial(seed)
    with random_packing(seed):
        planner = make_planner(trial.graph, gpu.caps, CpuKernels(), passes=trial.passes)
    weights = WeightBuffers(gpu)
    method = Method(planner, gpu, weights, CpuKernels())
    try:
        want = [*single_runs(method, trial), method.run(trial.steps[0])]  # the last one shows what state was left
        method.reset()
        before = method.counters.snapshot()
        got: Results = method.run_steps(trial.steps, trial.feed, trial.outputs)
        submits = method.counters.since(before).submits
        wrong = differences([*got, method.run(trial.steps[0])], want)
        wrong += differences(_in_two_submits(method, trial), want[:-1])
    finally:
        method.close()
        weights.close()
    assert not wrong, f"feed {trial.feed}:\n" + "\n".join([*wrong, str(planner.plan)])
    return submits == 1 and len(trial.steps) > 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    gpu, together, wrong = acquire({}), 0, 0
    for seed in range(options.first, options.first + options.count):
        try:
            together += try_seed(seed, gpu)
        except (AssertionError, webpte.Error) as error:
            wrong += 1
            print(f"seed {seed}: {error}")
    print(f"{options.count} graphs, {together} of them with several steps in one submit: {wrong} wrong")
    gpu.release()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
