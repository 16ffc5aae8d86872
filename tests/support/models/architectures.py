"""What the larger models (named.py) do here: where every call ran, what crossed to the host, how close the results are.

python -m tests.support.models.architectures            # print the report
python -m tests.support.models.architectures --write    # and write docs/model-programs.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import webpte
from webpte.graph import Call, Graph, TensorSpec
from webpte.lowering import stored_bytes
from webpte.plan import HostCalls, Plan
from webpte.runtime.kernels import CpuKernels

from ..export.exporting import Step, export
from .named import ARCHITECTURES, REAL_KINDS

DOCS = Path(__file__).parents[3] / "docs" / "model-programs.md"


@dataclass(frozen=True)
class Account:
    """One model, loaded once and run with every input it was exported for."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    delegates: int
    kernel_calls: int
    gpu: Counter[str]  # calls on the device that give a tensor, by name
    cpu: Counter[str]  # calls on the host
    runs: tuple[Run, ...]

    @property
    def facts(self) -> tuple[str, ...]:
        """The columns that depend on nothing but the exported file and on which ops there are."""
        cpu = Counter({f"{name} ({CpuKernels().source(name)})": n for name, n in self.cpu.items()})
        return (self.name, self.kind, str(self.delegates), str(self.kernel_calls), listed(cpu))

    @property
    def measured(self) -> tuple[str, ...]:
        return (
            str(self.gpu.total()),
            str(len(self.runs)),
            spread(run.submits for run in self.runs),
            spread(run.dispatches for run in self.runs),
            spread(run.crossed for run in self.runs),
            f"{max(run.error for run in self.runs):.1e}",
        )


@dataclass(frozen=True)
class Run:
    """One call of a model."""

    outputs: tuple[np.ndarray, ...]
    submits: int
    dispatches: int
    crossed: int  # bytes between device and host besides the inputs and outputs
    error: float  # the largest of any output, relative to the output's largest value


@cache
def account(name: str, kind: str) -> Account:
    """Load the program called `name` and run all its steps."""
    exported = export(name)
    with webpte.load(exported.path) as program:
        forward = program.method()
        graph = program.graph("forward")
        gpu, cpu = placed(forward.plan)
        return Account(
            name.removeprefix("hf_"),
            kind,
            tuple(map(str, forward.inputs)),
            len(graph.delegates),
            sum(call.kernel for call in graph.calls),
            gpu,
            cpu,
            tuple(run(forward, graph, step) for step in exported.steps),
        )


def placed(plan: Plan) -> tuple[Counter[str], Counter[str]]:
    """The calls of a plan that give a tensor, by name: those on the device, and those on the CPU."""
    gpu: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    for block in plan.flow.blocks:
        for stage in block.stages:
            for index in stage.steps:
                call = plan.graph.steps[index]
                assert isinstance(call, Call)
                if any(isinstance(plan.graph.values[out], TensorSpec) for out in call.outs):
                    (cpu if isinstance(stage, HostCalls) else gpu)[call.name] += 1
    return gpu, cpu


def run(forward: webpte.Method, graph: Graph, step: Step) -> Run:
    before = forward.counters.snapshot()
    outputs = forward.run(step.inputs)
    done = forward.counters.since(before)
    borders = stored(graph, graph.inputs, step.inputs) + stored(graph, graph.outputs, outputs)
    crossed = done.input_bytes + done.output_bytes - borders
    errors = [relative_error(got, want) for got, want in zip(outputs, step.outputs, strict=True)]
    return Run(outputs, done.submits, done.dispatches, crossed, max(errors))


def stored(graph: Graph, ids: Sequence[int], arrays: Sequence[np.ndarray]) -> int:
    """Bytes that arrays take on the device."""
    return sum(stored_bytes(graph.tensor(v).dtype, a.shape) for v, a in zip(ids, arrays, strict=True))


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}")
    error = np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()
    return float(error) if np.isfinite(error) else np.inf


# ---------------------------------------------------------------- the report

FACTS = ("Model", "Kind", "Delegates", "Kernel calls", "Calls on the CPU")
MEASURED = ("Calls on the GPU", "Runs", "Submits per run", "Dispatches per run", "Bytes between", "Largest error")
TEXT = """# Programs of models

This page lists the programs of models that tests export and compare with eager PyTorch. The first table has models
with their real weights, the second architectures of `transformers` with small configs and random weights. ExecuTorch
exported all of them for the Vulkan delegate, most with dynamic sizes. `tests/contract/test_real_weights.py` and
`tests/contract/test_architectures.py` run them at their bound and below it. Generated by
`python -m tests.support.models.architectures --write`.

*Kernel calls* are calls outside delegates; those with a GPU op run on the GPU. *Bytes between* are transferred between
device and host besides inputs and outputs. *Largest error* is relative to the largest value of an output.
"""


def report(real: Iterable[Account], architectures: Iterable[Account]) -> str:
    accounts = [*real, *(architectures := list(architectures))]
    first = accounts[: len(accounts) - len(architectures)]
    parts = [TEXT, "## Real weights\n", table(first), "## Architectures\n", table(architectures), "## What they call\n"]
    parts += [f"**{a.name}** takes {', '.join(a.inputs)}: {listed(a.gpu)}.\n" for a in accounts]
    return "\n".join(parts)


def table(accounts: Iterable[Account]) -> str:
    rows = [FACTS + MEASURED, ("---",) * len(FACTS + MEASURED), *(a.facts + a.measured for a in accounts)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def listed(calls: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in calls.most_common()) or "none"


def spread(numbers: Iterable[int]) -> str:
    """`3`, or `3 to 7`."""
    low, *_, high = sorted(numbers) * 2
    return str(low) if low == high else f"{low} to {high}"


def rows(text: str) -> dict[str, tuple[str, ...]]:
    """The facts in a report, by the model's name."""
    cells = [tuple(c.strip() for c in line.split("|")[1:-1]) for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[: len(FACTS)] for row in cells if row[0] not in ("Model", "---")}


def main() -> int:
    real = [account(name, kind) for name, kind in REAL_KINDS.items()]
    text = report(real, [account(f"hf_{name}", a.kind) for name, a in ARCHITECTURES.items()])
    print(text)
    if "--write" in sys.argv[1:]:
        DOCS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
