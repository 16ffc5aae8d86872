"""`python -m tests.studies random_modules --count 1000`: random torch modules through ExecuTorch's exporter, against
eager.

Each seed is a program. It is exported once, and kept in the cache with the answers of eager torch: a second run, after
a change of webpte, only runs webpte. Ctrl-C stops; the same command resumes. Whatever is wrong, crashes or
is refused with an error that is not webpte's is made small and written to a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.support.harness.children import ROOT

from .exporting import cache_root, maker_key, program_of
from .minimize import minimize
from .program import Program
from .running import FINDINGS, NOT_EXPORTED, Outcome
from .workers import Worker


class Run:
    """Seeds from `first` on, until `count` of them were exported."""

    def __init__(self, first: int, count: int, findings: Path | None) -> None:
        self.count = count
        self.findings = findings
        self.next_seed = first
        self.outcomes: dict[int, Outcome] = {}
        self.minimized: set[tuple[str, str]] = set()
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.log = cache_root() / f"programs-{maker_key()}" / f"outcomes-{runtime()}.jsonl"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.known = _read(self.log)

    @property
    def exported(self) -> int:
        return sum(o.kind != NOT_EXPORTED for o in self.outcomes.values())

    def take(self) -> int | None:
        with self.lock:
            if self.stopped.is_set() or self.exported >= self.count:
                return None
            self.next_seed += 1
            return self.next_seed - 1

    def work(self) -> None:
        worker = Worker()
        try:
            while (seed := self.take()) is not None:
                known = self.known.get(seed)
                outcome = known or worker.seed(seed)
                if self.stopped.is_set():
                    return
                self._note(seed, outcome, known is None)
                if outcome.kind in FINDINGS and self.findings is not None:
                    self._minimize(worker, seed, outcome)
        finally:
            worker.close()

    def _note(self, seed: int, outcome: Outcome, new: bool) -> None:
        with self.lock:
            self.outcomes[seed] = outcome
            if new:
                with self.log.open("a") as log:
                    log.write(json.dumps({"seed": seed, **asdict(outcome)}) + "\n")
            if outcome.kind in FINDINGS or len(self.outcomes) % 20 == 0:
                kinds = Counter(o.kind for o in self.outcomes.values())
                print(f"seed {seed}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()), flush=True)

    def _minimize(self, worker: Worker, seed: int, outcome: Outcome) -> None:
        """Once for findings that look equal."""
        assert self.findings is not None
        with self.lock:
            known = (outcome.kind, outcome.reason) in self.minimized
            self.minimized.add((outcome.kind, outcome.reason))
        target = self.findings / f"{seed:06d}"
        if known or target.with_suffix(".json").exists():
            return
        program = program_of(seed)

        def fails(candidate: Program) -> bool:
            result = worker.program(candidate)
            return not self.stopped.is_set() and (result.kind, result.reason) == (outcome.kind, outcome.reason)

        small = minimize(program, fails)
        if self.stopped.is_set():
            return
        self.findings.mkdir(parents=True, exist_ok=True)
        target.with_suffix(".json").write_text(small.to_json())
        target.with_suffix(".py").write_text(
            f"# {outcome.kind}: {outcome.detail}".replace("\n", "\n# ") + "\n" + small.to_python()
        )
        print(f"seed {seed}: {outcome.kind}, made small in {target.with_suffix('.py')}", flush=True)


def runtime() -> str:
    """Names the webpte that runs."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src" / "webpte").rglob("*")):
        if file.suffix in (".py", ".wgsl"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _read(log: Path) -> dict[int, Outcome]:
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    return {line.pop("seed"): Outcome(**line) for line in lines}


def summary(outcomes: dict[int, Outcome]) -> str:
    lines = []
    for kind, number in Counter(o.kind for o in outcomes.values()).most_common():
        lines.append(f"{number:6} {kind}")
        if kind == "right":
            calls = sum(o.calls for o in outcomes.values())
            share = sum(o.skipped for o in outcomes.values()) / max(1, number)
            lines.append(
                f"         {calls} calls; {share:.2%} of the numbers were not compared: noise turns them into others"
            )
            continue
        reasons = Counter(o.reason for o in outcomes.values() if o.kind == kind)
        for reason, n in reasons.most_common(40):
            seeds = [s for s, o in outcomes.items() if (o.kind, o.reason) == (kind, reason)]
            lines.append(f"  {n:6} {reason}  (seeds {', '.join(map(str, seeds[:4]))})")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies random_modules", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="modules to export and run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--findings", type=Path, help="where to put what was found; in the cache unless given")
    parser.add_argument("--as-found", action="store_true", help="do not make findings small")
    args = parser.parse_args()
    findings = args.findings or cache_root() / f"programs-{maker_key()}" / "findings"
    run = Run(args.seed, args.count, None if args.as_found else findings)
    threads = [threading.Thread(target=run.work, daemon=True) for _ in range(args.jobs)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        run.stopped.set()
        print("stopped; the same command goes on from here")
    print(summary(run.outcomes))
    return int(any(o.kind in FINDINGS for o in run.outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
