"""Losing the device at random moments: `python -m tests.studies soak.loss [--moments 50] [--seed 0] [--model FILE]`.

Each loss has a process of its own, which loads a language model and generates, while a thread destroys the device at a
random moment of loading, of the prompt or of decoding. It must get a DeviceLost, recover, and then generate the tokens
of an undisturbed run. Ends with status 1 if one of them does anything else. The default model is the tiny Llama.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import webpte
from tests.support.models.tiny_llm import tokens_of, write_tiny_llm
from webpte.device import gpu
from webpte.llm import LLM

PHASES = ("load", "prompt", "decode")
TOKENS = 24
PROMPT = "In the beginning there was a device"
TIMEOUT = 300.0


class Clock:
    """When each phase begins: the first when the device is opened. Then how long each took."""

    def __init__(self) -> None:
        self.begun = {phase: threading.Event() for phase in (*PHASES, "end")}
        self.times: dict[str, float] = {}
        original = gpu.Gpu.__init__

        def opening(opened: gpu.Gpu, *args: Any) -> None:
            original(opened, *args)
            self.begin("load")

        gpu.Gpu.__init__ = opening  # type: ignore[assignment,method-assign]

    def begin(self, phase: str) -> None:
        self.times.setdefault(phase, time.perf_counter())
        self.begun[phase].set()

    def seconds(self) -> dict[str, float]:
        return {a: self.times[b] - self.times[a] for a, b in itertools.pairwise([*PHASES, "end"])}

    @property
    def phase(self) -> str:
        return next(phase for phase in reversed(self.begun) if self.begun[phase].is_set())


def generate(path: str, clock: Clock, box: list[LLM]) -> list[int]:
    """Load, if `box` is empty, and generate; the tokens. Whatever happens, a model that was loaded is in the box."""
    if not box:
        box.append(LLM.load(path))
    model = box[0]
    model.stop_tokens = frozenset()
    model.reset_prefix_cache()
    clock.begin("prompt")
    stream = model.complete(PROMPT, max_new_tokens=TOKENS)
    next(stream)
    clock.begin("decode")
    tokens = tokens_of(stream)
    clock.begin("end")
    return tokens


def child(path: str, phase: str, delay: float) -> dict[str, Any]:
    """Run once and destroy the device that many seconds after the start of a phase; never, without a phase."""
    clock = Clock()
    box: list[LLM] = []
    if not phase:
        return {"tokens": generate(path, clock, box), "seconds": clock.seconds()}
    killer = threading.Thread(target=_destroy, args=(clock.begun[phase], delay))
    killer.start()
    try:
        generate(path, clock, box)
        killer.join()  # it came late: the next call finds the device gone
        generate(path, clock, box)
    except webpte.DeviceLost:
        lost = clock.phase
        recovered = box[0]._program.recover() if box else True  # nothing was loaded: loading again is the recovery
        return {"lost": lost, "recovered": recovered, "tokens": generate(path, clock, box)}
    return {"failed": "no error"}


def _destroy(begun: threading.Event, delay: float) -> None:
    begun.wait()
    time.sleep(delay)
    for opened in list(gpu._OPEN):
        opened.device.destroy()


def in_a_process(path: str, phase: str = "", delay: float = 0.0) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.studies.soak.loss", "--child", path, phase, repr(delay)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"failed": "hung"}
    if ended.returncode != 0:
        return {"failed": f"status {ended.returncode}: {(ended.stderr.splitlines() or [''])[-1]}"}
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def verdict(result: dict[str, Any], expected: list[int]) -> str:
    if "failed" in result:
        return f"FAILED: {result['failed']}"
    if not result["recovered"]:
        return "FAILED: not recovered"
    return f"lost in {result['lost']}" if result["tokens"] == expected else "FAILED: other tokens"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies soak.loss", description=__doc__)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="a language model with its tokenizer beside it")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(child(options.child[0], options.child[1], float(options.child[2]))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or str(write_tiny_llm(Path(folder)) / "tiny.pte")
        calm = [in_a_process(path) for _ in range(4)][1:]  # the first fills the driver's cache
        seconds = {phase: min(run["seconds"][phase] for run in calm) for phase in PHASES}
        print(f"undisturbed, in seconds: {seconds}", flush=True)
        chosen = random.Random(options.seed)
        tally: Counter[str] = Counter()
        for number in range(options.moments):
            phase = PHASES[number % len(PHASES)]
            delay = chosen.uniform(0.0, seconds[phase])
            result = verdict(in_a_process(path, phase, delay), calm[0]["tokens"])
            tally[result] += 1
            print(f"{number + 1:3} destroyed {delay * 1000:7.1f} ms into {phase}: {result}", flush=True)
    print(dict(tally))
    return int(any(result.startswith("FAILED") for result in tally))


if __name__ == "__main__":
    sys.exit(main())
