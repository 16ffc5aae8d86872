"""Decoding for long: `python -m tests.studies soak.decode [--steps 20000] [--model FILE | --family lfm2]`.

Rounds of prompts, resets, forks, and one to eight tokens per submit. What timing decides, such as the number of drafts,
lets some kernels run for the first time after thousands of steps; on a software device each takes 2 to 3 MB. So the
second half is compared with the middle: memory must stay within 2 %, a round of the last quarter must take no more than
1.05 times the CPU time of one of the quarter before the middle (medians), and the number of live GPU objects and the
bytes of buffers must not change. Ends with status 1 otherwise. CPU time is divided by that of a fixed computation after
each round, because other work on the machine slows both. The default model is the tiny Llama; `--family` selects the
tiny checkpoint of a family, with 4-bit weights.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import wgpu

from tests.studies.families.states import built
from tests.support.models.families import first, tinies
from tests.support.models.tiny_llm import tokens_of, write_tiny_llm
from webpte.device.memory import allocated_bytes
from webpte.llm import LLM

BLOCK = 1000  # steps between two looks at memory
PER_SUBMIT = (1, 2, 4, 8)
PROMPT = "once upon a time"
NEW = 20  # tokens of an answer
MEMORY, TIME = 1.02, 1.05


@dataclass(frozen=True)
class Look:
    """Time and memory of a block of steps."""

    steps: int
    cost: float  # CPU time of a round in that of `fixed_work`, the median
    rss: int
    buffer_bytes: int
    objects: dict[str, int]


def one_round(model: LLM) -> int:
    """Answers with each number of tokens per submit, in a sequence and in a fork of it; the steps it took."""
    steps = 0
    for count in PER_SUBMIT:
        talk = model.sequence()
        steps += len(tokens_of(talk.complete(PROMPT, max_new_tokens=NEW, tokens_per_submit=count)))
        fork = talk.fork()
        steps += len(tokens_of(fork.complete(f"{PROMPT}, {count}", max_new_tokens=NEW, tokens_per_submit=count)))
        if count > 2:
            fork.close()  # others are left to the collector
    model.reset_prefix_cache()
    return steps


def look_after(model: LLM, steps: int) -> Look:
    """Decode at least that many steps, and look."""
    done, costs = 0, []
    while done < steps:
        started = time.process_time()
        done += one_round(model)
        costs.append((time.process_time() - started) / fixed_work())
    gc.collect()
    return Look(done, median(costs), resident(), allocated_bytes(), live_objects())


def fixed_work() -> float:
    """Return the CPU time of a computation in Python and NumPy."""
    started, table, array = time.process_time(), {}, np.ones(1 << 18, np.float32)
    for number in range(100_000):
        table[number % 997] = str(number)
    for _ in range(50):
        array = np.sqrt(array * 1.5)
    return time.process_time() - started


def resident() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("this system does not tell what memory is in use")


def live_objects() -> dict[str, int]:
    """GPU objects by kind, as the binding and the engine below count them."""
    binding = wgpu.diagnostics.object_counts.get_dict()
    engine = wgpu.diagnostics.wgpu_native_counts.get_dict()
    counts = {f"python {kind}": int(row["count"]) for kind, row in binding.items() if "count" in row}
    return counts | {f"native {kind}": int(row["count"]) for kind, row in engine.items() if "count" in row}


def report(looks: Sequence[Look]) -> bool:
    """Print what happened; whether all of the second half was as it should be."""
    half, quarter = len(looks) // 2, len(looks) // 4
    middle, settled = looks[half - 1], looks[half:]
    memory = max(look.rss for look in settled) / middle.rss
    before, after = (median(look.cost for look in part) for part in (looks[half - quarter : half], looks[-quarter:]))
    changed = {
        kind: [look.objects.get(kind, 0) for look in looks]
        for kind in {kind for look in looks for kind in look.objects}
        if len({look.objects.get(kind, 0) for look in looks[half - 1 :]}) > 1
    }
    steps = sum(look.steps for look in looks[:half])
    print(f"memory: at most {memory:.4f} of {middle.rss / 1e6:.1f} MB after {steps} steps (limit {MEMORY})")
    print(f"time: the last quarter took {after / before:.3f} of {before:.2f} units of CPU time a round (limit {TIME})")
    print(f"live GPU objects that changed: {changed or 'none'}; {sum(looks[-1].objects.values())} in all")
    kernels = [look.objects.get("native ComputePipeline", 0) for look in looks]
    print(f"kernels: {kernels[0]} after the first block, {kernels[half - 1]} in the middle, {kernels[-1]} at the end")
    buffers = sorted({look.buffer_bytes for look in settled})
    print(f"bytes of buffers: {' or '.join(f'{nbytes:,}' for nbytes in buffers)}, {looks[0].buffer_bytes:,} at first")
    return memory <= MEMORY and after / before <= TIME and not changed and len(buffers) == 1


def model_path(options: argparse.Namespace, folder: Path) -> str:
    if options.model:
        return str(options.model)
    if options.family is None:
        return str(write_tiny_llm(folder) / "tiny.pte")
    # In a process of its own: torch, which writes the checkpoint, would stay in memory that is measured here.
    child = multiprocessing.get_context("spawn").Process(target=build_tiny, args=(options.family, folder))
    child.start()
    child.join()
    return str(folder / "model.pte")


def build_tiny(family: str, folder: Path) -> None:
    built(first(family), folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies soak.decode", description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--model", help="a language model with its tokenizer beside it")
    chosen.add_argument("--family", choices=list(tinies()), metavar="FAMILY", help="a file in families/")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, LLM.load(model_path(options, Path(folder))) as model:
        model.stop_tokens = frozenset()
        looks: list[Look] = []
        while sum(look.steps for look in looks) < options.steps or len(looks) < 4:
            looks.append(look_after(model, BLOCK))
            done = sum(look.steps for look in looks)
            print(f"{done:6} steps: {looks[-1].rss / 1e6:.1f} MB, {looks[-1].cost:.2f} units of CPU time", flush=True)
        return 0 if report(looks) else 1


if __name__ == "__main__":
    sys.exit(main())
