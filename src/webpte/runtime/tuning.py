"""Autotuning: timing the kernels that can serve a job, and the cache of the results.

Each job is measured alone, on this device and at the model's shapes: a method of one call, planned once for each
variant. So variants may need other scratch, dispatches and grids, and the model's plan and state are not touched.

Rounds are interleaved, so that a slow phase of the machine affects all variants. A round takes the shortest of three
runs of each, so that one interruption has no effect. A variant replaces the default kernel only if it is faster in all
rounds except one and by CLEAR_GAIN in the median, or by OBVIOUS_GAIN in the median; anything less may be noise.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from ..device import Gpu, Session, Submission, WeightBuffers, Workspace
from ..errors import DeviceError, DeviceLost, Error, GuardError, ShapeError
from ..folders import cache_folder
from ..graph import LIVE_SCALARS, Call, Double, Graph, Int, SymInt, TensorSpec
from ..lowering import TuningKey
from ..partial_files import atomic_file
from ..plan import CallValues, Example, Planner, Schedule, make_planner
from ..progress import OnProgress, Progress, ignore
from ..version import __version__
from ..wgsl import Caps

logger = logging.getLogger(__name__)
MAX_CACHE_BYTES = 16 << 20  # a choice takes some 60 bytes


def tuning_cache_path() -> Path:
    """Return the path of the cache, which holds the results of all devices. Deleting it is safe."""
    return cache_folder() / "tuning.json"


def _device_key(caps: Caps) -> str:
    """Return the key of a device's results: its adapter and driver, and the version of the kernels."""
    return f"{caps.adapter}; webpte {__version__}"


def read_tuning(caps: Caps) -> dict[str, str]:
    """Return the fastest variant of each job on this device; empty if none was measured or the file is damaged."""
    return _read_all().get(_device_key(caps), {})


def write_tuning(caps: Caps, choices: Mapping[str, str]) -> None:
    """Add the fastest variants of jobs to this device's results. Another process reads the old file or the new one."""
    everything = _read_all()
    everything.setdefault(_device_key(caps), {}).update(choices)
    path = tuning_cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(everything, file, indent=1, sort_keys=True)


def _read_all() -> dict[str, dict[str, str]]:
    """Return the contents of the file. If it is too large, not regular or another user's, log a warning."""
    path = tuning_cache_path()
    try:
        data = json.loads(_read_small(path))
        if not isinstance(data, dict) or not all(isinstance(choices, dict) for choices in data.values()):
            raise ValueError("it is not an object with an object for each device")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("%s is ignored: %s. Deleting it is safe.", path, str(error) or type(error).__name__)
        return {}
    return {
        device: {job: name for job, name in choices.items() if isinstance(name, str)}
        for device, choices in data.items()
    }


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe must not wait for a writer


def _read_small(path: Path) -> str:
    with open(path, "rb", opener=_open) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > MAX_CACHE_BYTES:
            raise ValueError(f"it has {status.st_size} bytes, more than {MAX_CACHE_BYTES}")
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise ValueError("it belongs to another user")
        return file.read(MAX_CACHE_BYTES).decode()


ROUNDS = 7
CLEAR_GAIN = 1.05
OBVIOUS_GAIN = 2.0
RUNS_PER_ROUND = 3  # of each variant in a round
MIN_RUN_SECONDS = 0.002  # seconds that one run takes at least
CACHE_POSITIONS = (256, 64, 8, 0)  # tokens before this call: a KV cache that is in use, if it is long enough


@dataclass(frozen=True)
class TunedKernel:
    """The measurement of a job: the seconds of each variant in each round."""

    job: TuningKey
    uses: int
    rounds: dict[str, tuple[float, ...]]
    confirmed: bool = True  # whether a second measurement chose the same variant

    @property
    def seconds(self) -> dict[str, float]:
        """Return the median of each variant, shortest first."""
        medians = {name: median(times) for name, times in self.rounds.items()}
        return dict(sorted(medians.items(), key=lambda item: item[1]))

    @property
    def usual(self) -> str:
        """Return the default: the first variant that this device can run."""
        return next(name for name in self.job.names if name in self.rounds)

    @property
    def best(self) -> str:
        """Return the shortest of those that beat the default clearly, or the default."""
        return self.fastest if self.confirmed else self.usual

    @property
    def fastest(self) -> str:
        """Return the shortest of those that beat the default in this measurement, or the default."""
        return next((name for name in self.seconds if self._beats(name)), self.usual)

    @property
    def gain(self) -> float:
        """Return the speedup of the best variant over the default: the median over rounds."""
        return median(self._ratios(self.best))

    def _beats(self, name: str) -> bool:
        ratios = self._ratios(name)
        won, gain = sum(ratio > 1 for ratio in ratios), median(ratios)
        return gain >= OBVIOUS_GAIN or (gain >= CLEAR_GAIN and won >= ROUNDS - 1)

    def _ratios(self, name: str) -> list[float]:
        return [usual / ours for usual, ours in zip(self.rounds[self.usual], self.rounds[name], strict=True)]


class TuningResult(list[TunedKernel]):
    """The measured kernels. `unmeasured` are the jobs that did not fit into the budget of seconds."""

    unmeasured: Sequence[TuningKey] = ()


def tune_plan(
    planner: Planner, gpu: Gpu, weights: WeightBuffers, budget: float | None = None, progress: OnProgress = ignore
) -> TuningResult:
    """Measure the jobs of a plan, most used first, until the budget of seconds is spent."""
    examples = planner.examples
    jobs = sorted((job for job in examples if len(job.names) > 1), key=lambda job: -examples[job].uses)
    started = time.perf_counter()
    choices = TuningResult()
    for number, job in enumerate(jobs):
        progress(Progress("tune", number, len(jobs), "jobs"))
        if budget is not None and time.perf_counter() - started > budget:
            choices.unmeasured = jobs[number:]
            break
        rounds = _measure(job, examples[job], planner, gpu, weights)
        if rounds:
            choice = TunedKernel(job, examples[job].uses, rounds)
            if choice.fastest != choice.usual:  # a busy machine can favor one variant for the time of one measurement
                second = replace(choice, rounds=_measure(job, examples[job], planner, gpu, weights))
                choice = replace(choice, confirmed=second.fastest == choice.fastest)
            choices.append(choice)
    progress(Progress("tune", len(jobs), len(jobs), "jobs"))
    return choices


def _measure(
    job: TuningKey, example: Example, planner: Planner, gpu: Gpu, weights: WeightBuffers
) -> dict[str, tuple[float, ...]]:
    """Return the seconds of each variant that this device can run, measured in interleaved rounds."""
    trials: dict[str, _Trial] = {}
    try:
        for name in job.names:
            trial = _trial(job, name, example, planner, gpu, weights)
            if trial is not None:
                trials[name] = trial
        times: dict[str, list[float]] = {name: [] for name in trials}
        for _ in range(ROUNDS):
            for name, trial in trials.items():
                times[name].append(trial.seconds())
        return {name: tuple(seconds) for name, seconds in times.items()}
    finally:
        for trial in trials.values():
            trial.close()


def _trial(
    job: TuningKey, name: str, example: Example, planner: Planner, gpu: Gpu, weights: WeightBuffers
) -> _Trial | None:
    """Return a variant ready to be timed; None if this device cannot run it or, with a warning, if all trials fail."""
    refused: Error | None = None
    for position in CACHE_POSITIONS:
        try:
            alone = _alone(planner.plan.graph, example, position)
            trial = make_planner(alone, planner.caps, (), tuning={job.key: name})
            return _Trial(trial, gpu, weights) if gpu.satisfies(trial.plan.limits) else None
        except DeviceLost:
            raise
        except DeviceError:
            return None
        except (GuardError, ShapeError) as error:
            refused = error
    logger.warning("%s of %s could not be measured: %s", name, job.key, refused)
    return None


def _alone(graph: Graph, example: Example, position: int) -> Graph:
    """Return a method of one call with the dims of its example. Scalars from input data are moved by `position`."""
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
            number, derived = example.scalars[value_id]
            number += position * derived
            values[value_id] = Int(int(number)) if isinstance(value, SymInt) else Double(number)
    outputs = tuple(out for out in call.outs if isinstance(values[out], TensorSpec))
    return Graph(graph.name, tuple(values), (call,), tuple(inputs), outputs)


class _Trial:
    """A variant that is ready to be timed."""

    def __init__(self, planner: Planner, gpu: Gpu, weights: WeightBuffers) -> None:
        self._gpu = gpu
        self._workspace = Workspace(planner.plan, gpu, weights)
        self._session = Session(self._workspace, first=True)
        try:
            self._schedule, self._scalars = _prepared(planner)
            self._repeats = 1
            self._run()  # the first run touches fresh memory
            self._repeats = max(1, min(64, int(MIN_RUN_SECONDS / max(self._run(), 1e-6))))
        except BaseException:
            self.close()
            raise

    def seconds(self) -> float:
        return min(self._run() for _ in range(RUNS_PER_ROUND)) / self._repeats

    def close(self) -> None:
        self._session.close()
        self._workspace.close()

    def _run(self) -> float:
        started = time.perf_counter()
        self._session.run(Submission(self._schedule, [self._scalars] * self._repeats))
        self._gpu.wait()
        return time.perf_counter() - started


def _prepared(planner: Planner) -> tuple[Schedule, dict[int, int]]:
    plan = planner.plan
    (segment,) = plan.flow.segments
    dims = {i: plan.graph.tensor(i).dims for i in plan.graph.inputs}
    arrays = {i: np.zeros(dims[i], plan.graph.tensor(i).host_dtype.held) for i in dims}
    return planner.prepare(segment, CallValues(dims, {}, arrays))


def best_variants(choices: Sequence[TunedKernel]) -> dict[str, str]:
    """Return the fastest variant of each job, as `make_planner` accepts it."""
    return {choice.job.key: choice.best for choice in choices}
