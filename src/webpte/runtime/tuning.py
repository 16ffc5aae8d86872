"""Timing the kernels that could do a job, on the device at hand and with the model's own shapes.

Each job is measured alone: a method of one call, planned once for each variant. So a variant may want other scratch,
other dispatches and another grid, and nothing of the model's own plan or state is touched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from ..device import Gpu, Session, Weights
from ..errors import Error, GuardError
from ..graph import LIVE_SCALARS, Call, Graph, TensorSpec
from ..ops import Job
from ..plan import Example, Live, Plan, Schedule, make_plan
from ..progress import OnProgress, Progress, ignore
from ..wgsl import Caps

ROUNDS = 7
SHORTEST = 0.004  # seconds that one measurement takes at least
POSITIONS = (256, 64, 8, 0)  # what live integers are tried at: a KV cache that is in use, if it is long enough


@dataclass(frozen=True)
class Choice:
    """What was measured for a job: seconds of each variant, the best first."""

    job: Job
    uses: int
    seconds: dict[str, float]

    @property
    def best(self) -> str:
        return next(iter(self.seconds))


def tune_plan(
    plan: Plan, caps: Caps, gpu: Gpu, weights: Weights, budget: float | None = None, progress: OnProgress = ignore
) -> list[Choice]:
    """Measure the jobs of a plan, those with most uses first, until the budget of seconds is spent."""
    examples = plan.lowering.examples
    jobs = sorted((job for job in examples if len(job.names) > 1), key=lambda job: -examples[job].uses)
    started = time.perf_counter()
    choices = []
    for number, job in enumerate(jobs):
        progress(Progress("tune", number, len(jobs), "jobs"))
        if budget is not None and time.perf_counter() - started > budget:
            break
        seconds = _measure(job, examples[job], plan.graph, caps, gpu, weights)
        if seconds:
            choices.append(Choice(job, examples[job].uses, dict(sorted(seconds.items(), key=lambda item: item[1]))))
    progress(Progress("tune", len(jobs), len(jobs), "jobs"))
    return choices


def _measure(job: Job, example: Example, graph: Graph, caps: Caps, gpu: Gpu, weights: Weights) -> dict[str, float]:
    """Seconds of each variant that this device can run, medians of interleaved rounds."""
    trials: dict[str, _Trial] = {}
    try:
        for name in job.names:
            try:
                plan = make_plan(_alone(graph, example), caps, (), tuning={job.key: name})
                if gpu.satisfies(plan.limits):
                    trials[name] = _Trial(plan, gpu, weights)
            except Error:
                continue  # this device cannot run it: then it is no choice
        times: dict[str, list[float]] = {name: [] for name in trials}
        for _ in range(ROUNDS):
            for name, trial in trials.items():
                times[name].append(trial.seconds())
        return {name: median(values) for name, values in times.items()}
    finally:
        for trial in trials.values():
            trial.close()


def _alone(graph: Graph, example: Example) -> Graph:
    """A method that consists of one call, its tensors at the dims they had."""
    call = graph.steps[example.step]
    assert isinstance(call, Call)
    values = list(graph.values)
    inputs = []
    for value_id in dict.fromkeys(graph.flatten(call.args)):
        value = values[value_id]
        if isinstance(value, TensorSpec) and not value.stored:
            values[value_id] = replace(value, dims=example.dims[value_id], dynamic=False)
            inputs.append(value_id)
        elif isinstance(value, LIVE_SCALARS):
            inputs.append(value_id)
    outputs = tuple(out for out in call.outs if isinstance(values[out], TensorSpec))
    return Graph(graph.name, tuple(values), (call,), tuple(inputs), outputs)


class _Trial:
    """One variant, ready to be timed."""

    def __init__(self, plan: Plan, gpu: Gpu, weights: Weights) -> None:
        self._gpu = gpu
        self._session = Session(plan, gpu, weights)
        try:
            self._schedule = _schedule(plan)
            self._scalars = plan.lowering.slot_values()
            self._repeats = 1
            self._run()  # the first run touches fresh memory
            self._repeats = max(1, min(64, int(SHORTEST / max(self._run(), 1e-6))))
        except BaseException:
            self._session.close()
            raise

    def seconds(self) -> float:
        return self._run() / self._repeats

    def close(self) -> None:
        self._session.close()

    def _run(self) -> float:
        started = time.perf_counter()
        self._session.run(self._schedule, [self._scalars] * self._repeats, (), ())
        self._gpu.wait()
        return time.perf_counter() - started


def _schedule(plan: Plan) -> Schedule:
    (segment,) = plan.layout.segments
    graph = plan.graph
    tensors = [i for i in graph.inputs if isinstance(graph.values[i], TensorSpec)]
    arrays = {i: np.zeros(graph.tensor(i).dims, graph.tensor(i).host_dtype.numpy) for i in tensors}
    dims = {i: graph.tensor(i).dims for i in tensors}
    refused: GuardError | None = None
    for position in POSITIONS:
        scalars = {i: float(position) for i in graph.inputs if i not in arrays}
        try:
            return plan.lowering.prepare(segment, Live(dims, scalars, arrays))
        except GuardError as error:
            refused = error
    assert refused is not None
    raise refused


def chosen(choices: Sequence[Choice]) -> dict[str, str]:
    """Job to variant, as `make_plan` takes it."""
    return {choice.job.key: choice.best for choice in choices}
