"""Measure an adapter for a report that its owner can send: checks, probes, random decoders; as JSON and Markdown.

Nothing is sent. The report contains no user names and no paths. The page of `webpte bundle --bench` writes the same.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypedDict, cast

import numpy as np

from ..debug.bug_report import without_personal_data
from ..debug.doctor import LIMITS, run_self_test
from ..debug.run import timed
from ..debug.selftest import SelfTestCheck
from ..device import acquire, adapter_caps, adapters, wgpu_versions
from ..device.adapter import RESTRICTIONS_VARIABLE
from ..device.timing import measure_dispatch_cost, measure_peak
from ..environment import variable
from ..errors import DeviceError, Error
from ..fusion import PASSES
from ..fusion.llm_rewrites import TOKEN
from ..progress import OnProgress, Progress, ignore
from ..runtime import Method
from ..runtime.program import open_graph
from ..text import duration, plural, size
from ..typing import PathLike
from ..version import __version__
from .bench import ProgramBench, bench_program
from .bench_model import (
    DECODERS,
    MAX_PREFILL_TOKENS,
    RandomDecoder,
    decoder_graph,
    greedy_tokens,
    prompt,
    step_inputs,
    stored_answers,
)
from .tune import machine_load

REPORT: Literal["webpte bench"] = "webpte bench"
VERSION: Literal[1] = 1  # of the format; docs/results/schema.json describes it
MAX_SECONDS = 120  # after which no further decoder is started
POINT_SECONDS = 1.0  # of a measurement
MIN_CALLS, MAX_CALLS = 3, 200  # of a measurement
SLOW_CALL_SECONDS = 2.0  # a first call that takes longer is counted, although it may compile
SINGLE_CALL_SECONDS = 10.0  # a call that takes longer is measured once
STEPS_PER_SUBMIT = 8  # of the paced decode, as `generate` submits several tokens together


Count = Annotated[int, {"minimum": 0}]
AtLeastOne = Annotated[int, {"minimum": 1}]
Amount = Annotated[float, {"minimum": 0}]


class TimeStatistics(TypedDict):
    """Durations in seconds."""

    median: Amount
    min: Amount
    max: Amount
    n: AtLeastOne


class TokenRate(TimeStatistics):
    """Durations of calls, and their rates."""

    tokens: Annotated[AtLeastOne, "tokens of one call"]
    tokens_per_second: Amount
    weight_bytes_per_second: Amount


class AdapterSummary(TypedDict):
    """The adapter that was measured."""

    name: str
    driver: str
    backend: str
    kind: str


class ProbeReport(TypedDict):
    """Rates of the device."""

    copy_bytes_per_second: Annotated[Amount, "read and written"]
    flops_per_second: Annotated[Amount, "f32"]
    dispatch_seconds: Annotated[Amount, "of a further small dispatch in a submit"]
    submit: Annotated[TimeStatistics, "of one small dispatch, with the wait for it"]
    submit_of_1000: Annotated[TimeStatistics, "of 1,000 small dispatches, with the wait for them"]


class TokenAgreement(TypedDict):
    """Generated tokens against stored ones."""

    n: Count
    equal: Annotated[Count, "before the first that differs"]
    ok: bool


class DecoderReport(TypedDict):
    """Tokens and rates of a random decoder."""

    width: Count
    layers: Count
    weight_bytes: Annotated[Count, "that every step reads"]
    problem: Annotated[str | None, "an error; measurements after it are null"]
    tokens: TokenAgreement | None
    prefill: TokenRate | None
    decode: TokenRate | None
    decode_paced: Annotated[TokenRate | None, "several tokens per submit, each as its share; null in a browser"]


class MeasuredMachine(TypedDict):
    """What was measured, and with what."""

    report: Literal["webpte bench"]
    version: Literal[1]
    date: Annotated[str, "of the measurement, in UTC", {"format": "date"}]
    runtime: Literal["python", "browser"]
    software: Annotated[bool, "whether the adapter computes on the CPU: such rates say nothing about GPUs"]
    versions: Annotated[dict[str, str], {"required": ["webpte"]}]
    os: str
    adapter: AdapterSummary
    restricted: Annotated[str | None, "the value of WEBPTE_DEVICE"]
    features: list[str]
    limits: dict[str, Count]
    subgroup: Annotated[Count, "invocations of every subgroup: measured in Python, reported by a browser; 0 without"]
    load: Annotated[str | None, "other work of the machine, which makes times longer"]


class DeviceReport(MeasuredMachine):
    """What a GPU computes correctly, and how fast."""

    checks: list[SelfTestCheck]
    probes: ProbeReport
    models: list[DecoderReport]
    left_out: Annotated[list[Count], "widths that were not measured, for lack of time"]
    programs: Annotated[list[ProgramBench], "as webpte bench --json reports them, without paths"]
    seconds: Amount


class ReportProgress:
    """Passes on how much of the expected time is over. Weights are seconds on a GPU."""

    CHECKS, PROBES, DECODER, PROGRAM = 4, 2, 10, 10

    def __init__(self, progress: OnProgress, programs: int) -> None:
        self._progress = progress
        self._done = 0
        self._total = self.CHECKS + self.PROBES + self.DECODER * len(DECODERS) + self.PROGRAM * programs

    @contextmanager
    def step(self, weight: int, note: str) -> Iterator[None]:
        """Announce a step, and count its weight when it is over."""
        self._progress(Progress("report", self._done, self._total, "steps", note))
        yield
        self._done += weight
        if self._done == self._total:  # an event between two steps would keep the bar from showing the next
            self._progress(Progress("report", self._done, self._total, "steps"))


def device_report(
    programs: Sequence[PathLike] = (), *, seconds: float = POINT_SECONDS, progress: OnProgress = ignore
) -> DeviceReport:
    """Return the report. `seconds` is the time for each measurement of a decoder or program."""
    started = time.perf_counter()
    steps = ReportProgress(progress, len(programs))
    measured = _machine()
    with steps.step(steps.CHECKS, "op checks"):
        test = run_self_test()
    with steps.step(steps.PROBES, "probes"):
        probes = _probes()
    report: DeviceReport = {
        **measured,
        "checks": [*test["checks"], *_problem_check(test["problem"])],
        "probes": probes,
        "models": [],
        "left_out": [],
        "programs": [],
        "seconds": 0.0,
    }
    for decoder in DECODERS:
        with steps.step(steps.DECODER, f"width {decoder.width}"):
            if time.perf_counter() - started > MAX_SECONDS:
                report["left_out"].append(decoder.width)
            else:
                report["models"].append(_decoder(decoder, seconds))
    for path in programs:
        with steps.step(steps.PROGRAM, os.path.basename(path)):
            report["programs"].append(_program(path, seconds))
    report["seconds"] = time.perf_counter() - started
    return cast(DeviceReport, without_personal_data(report, programs))


def _machine() -> MeasuredMachine:
    caps = adapter_caps()
    adapter = next((each for each in adapters() if each.chosen), None)
    if adapter is None:
        raise DeviceError("no WebGPU adapter", code="no_adapter", hint="Run: webpte doctor")
    return {
        "report": REPORT,
        "version": VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "runtime": "python",
        "software": adapter.kind == "CPU",
        "versions": {"webpte": __version__, **wgpu_versions(), "python": platform.python_version()},
        "os": f"{platform.system()} {platform.machine()}",
        "adapter": {
            "name": adapter.device,
            "driver": adapter.driver,
            "backend": adapter.backend,
            "kind": adapter.kind,
        },
        "restricted": variable(RESTRICTIONS_VARIABLE) or None,
        "features": sorted(caps.features),
        "limits": {name: caps.limit(name) for name in LIMITS},
        "subgroup": caps.subgroup,
        "load": machine_load(),  # before this process adds to it
    }


def _problem_check(problem: str | None) -> list[SelfTestCheck]:
    return [] if problem is None else [{"name": "the self-test ends", "ok": False, "detail": problem}]


def _probes() -> ProbeReport:
    gpu = acquire({})
    try:
        peak = measure_peak(gpu)
        cost = measure_dispatch_cost(gpu)
    finally:
        gpu.release()
    return {
        "copy_bytes_per_second": peak.bytes_per_second,
        "flops_per_second": peak.flops_per_second,
        "dispatch_seconds": max(cost.per_dispatch, 0.0),
        "submit": statistics(cost.single),
        "submit_of_1000": statistics(cost.many),
    }


def statistics(seconds: Sequence[float]) -> TimeStatistics:
    """Return median, minimum, maximum and number of durations."""
    return {"median": float(np.median(seconds)), "min": min(seconds), "max": max(seconds), "n": len(seconds)}


def sample(call: Callable[[], Any], budget: float) -> list[float]:
    """Return the seconds of calls within a budget, at least MIN_CALLS. The first may compile and is not counted."""
    first, _ = timed(call)
    times = [first] if first > SLOW_CALL_SECONDS else []
    min_calls = 1 if first > SINGLE_CALL_SECONDS else MIN_CALLS
    while len(times) < min_calls or (sum(times) < budget and len(times) < MAX_CALLS):
        times.append(timed(call)[0])
    return times


def _decoder(decoder: RandomDecoder, budget: float) -> DecoderReport:
    """Return the tokens and the rates of a decoder. An error of the device is part of the report."""
    result: DecoderReport = {
        "width": decoder.width,
        "layers": decoder.layers,
        "weight_bytes": decoder.weight_bytes,
        "problem": None,
        "tokens": None,
        "prefill": None,
        "decode": None,
        "decode_paced": None,
    }
    try:
        with open_graph(decoder_graph(decoder), tuple(PASSES)) as method:
            result["tokens"] = _agreement(method, decoder)
            tokens = prompt(decoder, MAX_PREFILL_TOKENS)
            result["prefill"] = _rates(decoder, sample(partial(greedy_tokens, method, tokens, 1), budget), len(tokens))
            step = step_inputs([1], MAX_PREFILL_TOKENS)
            result["decode"] = _rates(decoder, sample(partial(method.run, step, outputs=(TOKEN,)), budget))
            steps = [step_inputs([1], MAX_PREFILL_TOKENS + number) for number in range(STEPS_PER_SUBMIT)]
            paced = sample(partial(method.run_steps, steps, {TOKEN: 0}, (TOKEN,)), budget)
            result["decode_paced"] = _rates(decoder, [each / STEPS_PER_SUBMIT for each in paced])
    except Error as error:
        result["problem"] = f"{type(error).__name__}: {error}"
    return result


def _agreement(method: Method, decoder: RandomDecoder) -> TokenAgreement:
    """Compare greedy tokens with the stored ones. Tokens after the first difference do not count as equal."""
    answer = stored_answers()[decoder.width]
    expected = answer["tokens"]
    got = greedy_tokens(method, answer["prompt"], len(expected))
    equal = next((n for n, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1]), len(expected))
    return {"n": len(expected), "equal": equal, "ok": got == expected}


def _rates(decoder: RandomDecoder, seconds: Sequence[float], tokens: int = 1) -> TokenRate:
    middle = float(np.median(seconds))
    return {
        **statistics(seconds),
        "tokens": tokens,
        "tokens_per_second": tokens / middle,
        "weight_bytes_per_second": decoder.weight_bytes / middle,
    }


def _program(path: PathLike, budget: float) -> ProgramBench:
    """Return what `webpte bench` measures of a program, without its path."""
    return {**bench_program(path, seconds=budget), "file": os.path.basename(path)}


# -- Markdown ----------------------------------------------------------------------------------------------------------


def markdown(report: DeviceReport) -> str:
    """Return the report as a block to paste into an issue."""
    mark = " (software)" if report["software"] else ""
    parts = [f"### {_cell(report['adapter']['name'])}{mark}", _table(("", ""), _summary(report))]
    if report["models"]:
        head = ("width", "weights", "decode, 1 token", "tok/s", "GB/s", "paced tok/s", "prefill, 255 tokens", "tok/s")
        parts.append(_table(head, [_model_row(model) for model in report["models"]]))
    if report["programs"]:
        parts.append(_table(("program", "bytes", "result"), [_program_row(each) for each in report["programs"]]))
    return "\n\n".join(parts) + "\n"


def _summary(report: DeviceReport) -> list[tuple[str, ...]]:
    adapter, probes = report["adapter"], report["probes"]
    checks, models = report["checks"], report["models"]
    tokens = [model["tokens"] for model in models if model["tokens"]]
    width = f"subgroups of {report['subgroup']}" if report["subgroup"] else "no subgroups"
    rows: list[tuple[str, ...]] = [
        ("adapter", ", ".join(filter(None, (adapter["name"], adapter["kind"], adapter["backend"], adapter["driver"])))),
        ("versions", ", ".join(f"{name} {number}" for name, number in report["versions"].items())),
        ("system", ", ".join([report["os"], f"webpte in {report['runtime']}", report["date"]])),
        ("features", ", ".join([*report["features"], width])),
        ("op checks", f"{sum(check['ok'] for check in checks)} of {len(checks)} passed"),
        ("tokens", f"{sum(each['equal'] for each in tokens)} of {sum(each['n'] for each in tokens)} as expected"),
        ("copy, FMA", f"{_giga(probes['copy_bytes_per_second'])} GB/s, {_giga(probes['flops_per_second'])} GFLOP/s"),
        ("dispatch", f"{duration(probes['dispatch_seconds'])} each, of 1,000 in a submit"),
        ("submit and wait", _spread(probes["submit"])),
    ]
    rows += [("restricted to", report["restricted"])] if report["restricted"] else []
    rows += [("other load", report["load"])] if report["load"] else []
    rows += [("not measured", f"width {width}, for lack of time") for width in report["left_out"]]
    rows += [(f"failed: {check['name']}", check["detail"]) for check in checks if not check["ok"]]
    rows += [(f"failed: width {model['width']}", model["problem"]) for model in models if model["problem"]]
    return rows


def _model_row(model: DecoderReport) -> tuple[str, ...]:
    decode, paced, prefill = model["decode"], model["decode_paced"], model["prefill"]
    return (
        f"{model['width']} x {plural(model['layers'], 'layer')}",
        size(model["weight_bytes"]),
        _spread(decode) if decode else "",
        _number(decode["tokens_per_second"]) if decode else "",
        _giga(decode["weight_bytes_per_second"]) if decode else "",
        _number(paced["tokens_per_second"]) if paced else "",
        _spread(prefill) if prefill else "",
        _number(prefill["tokens_per_second"]) if prefill else "",
    )


def _program_row(measured: ProgramBench) -> tuple[str, ...]:
    if measured["kind"] == "program":
        point = measured["sizes"][-1] if measured["sizes"] else None
        result = f"{duration(point['median'])} at the largest shapes" if point else "no shapes that it accepts"
    else:
        decoded = (measured["decode"] or [])[0]
        result = f"decode {_number(decoded['tokens_per_second'])} tok/s after {decoded['context']} tokens"
    return measured["file"], size(measured["bytes"]), result


def _number(value: float) -> str:
    """Return a rate with three digits, or all digits before the point."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _giga(rate: float) -> str:
    return _number(rate / 1e9)


def _spread(times: TimeStatistics) -> str:
    return f"{duration(times['median'])} ({duration(times['min'])}–{duration(times['max'])}, n = {times['n']})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text as one cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())
