"""What webpte wants to reach, as ratios within one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .results import Report
from .rows import ROWS
from .workers import ENVIRONMENTS

UNIT = "bare GEMV 4096²"
UNIT_ROW = "gemv_4096"
WEBPTE, UNFUSED, BARE = "webpte", "webpte (no fusion)", "bare engine"
PEERS = [name for name, environment in ENVIRONMENTS.items() if environment.kind == "peer"]
# What `--units` runs, and who takes part beside the unit itself.
UNIT_ROWS = {
    "llama256_prefill": (WEBPTE,),
    "llama256_decode": (WEBPTE,),
    "smollm2_prefill_32": (WEBPTE,),
    "smollm2_decode_100": (WEBPTE,),
    "smollm2_decode_900": (WEBPTE,),
    "smollm2_matmuls": (BARE,),
    "attention_100": (BARE,),
    "attention_900": (BARE,),
    "upload": (WEBPTE, BARE),
}
IN_UNITS = {"llama256_decode": 0.25, "llama256_prefill": 1.8, "smollm2_decode_100": 4.5, "smollm2_prefill_32": 45.0}


@dataclass(frozen=True)
class Goal:
    title: str
    ratio: float | None  # None: not measured
    limit: float

    @property
    def reached(self) -> bool | None:
        return None if self.ratio is None else self.ratio <= self.limit


def divided(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or b <= 0 else a / b


def goals(report: Report) -> list[Goal]:
    """Return those that rows of the report bear on, in the order of the rows."""
    return [*_host(report), *_kernels(report), *_against_peers(report)]


def _host(report: Report) -> Iterator[Goal]:
    for contender, what, limit in ((UNFUSED, "no fusion", 1.10), (WEBPTE, "fused", 0.15)):
        ratio = divided(report.seconds("chain_200", contender), report.seconds("chain_200", BARE))
        yield Goal(f"{ROWS['chain_200'].title}, {what} / bare engine", ratio, limit)


def _kernels(report: Report) -> Iterator[Goal]:
    for row in ("gemv_4096", "linear_512", "q4_gemv_4096", "q4_gemm_64"):
        yield Goal(
            f"{ROWS[row].title} / bare engine", divided(report.seconds(row, WEBPTE), report.seconds(row, BARE)), 1.15
        )


def _against_peers(report: Report) -> Iterator[Goal]:
    for row in ROWS.values():
        if row.unit:
            continue
        ratio = divided(report.seconds(row.name, WEBPTE), report.best_peer(row.name, PEERS))
        yield Goal(f"{row.title} / best peer", ratio, 0.9)
        if row.name.startswith("llama256"):
            runtime = report.seconds(row.name, "ONNX Runtime")
            yield Goal(f"{row.title} / ONNX Runtime", divided(report.seconds(row.name, WEBPTE), runtime), 0.25)


def plain_units(report: Report) -> float | None:
    """What the plain kernel, 4 rows an invocation, takes in units: the unit itself is the best variant there is."""
    for results in report.rows.values():
        seconds = results[UNIT].about.get("calibration", {}) if UNIT in results else {}
        if seconds:
            return divided(seconds.get("4 rows an invocation"), min(seconds.values()))
    return None


def units(report: Report) -> list[Goal]:
    """Of a `--units` run: in GEMVs that were timed in the same turns, and against parts that were run bare."""

    def in_gemvs(row: str, who: str) -> float | None:
        return divided(report.seconds(row, who), report.seconds(row, UNIT))

    results = [Goal(f"{ROWS[row].title}, in GEMVs", in_gemvs(row, WEBPTE), limit) for row, limit in IN_UNITS.items()]
    decode = {n: in_gemvs(f"smollm2_decode_{n}", WEBPTE) for n in (100, 900)}
    attention = {n: in_gemvs(f"attention_{n}", BARE) for n in (100, 900)}
    matmuls = in_gemvs("smollm2_matmuls", BARE)
    results.append(Goal("SmolLM2 decode at 100 / its matrices run bare", divided(decode[100], matmuls), 1.10))
    slopes = [None if s[100] is None or s[900] is None else s[900] - s[100] for s in (decode, attention)]
    results.append(Goal("SmolLM2 decode, slope over context / bare attention's", divided(*slopes), 1.2))
    upload = divided(report.seconds("upload", WEBPTE), report.seconds("upload", BARE))
    results.append(Goal("upload of SmolLM2's constants / bare writes", upload, 1.3))
    return results
