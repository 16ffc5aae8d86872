"""What forks of a language model cost: `python -m tests.studies soak.forks MODEL.pte [--forks 100]`.

Each must take its state and at most 64 KB more on the device. What the process holds beside that, when they were made
and when each has run a step, is printed too. Ends with status 1 if a fork takes more on the device.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence

import numpy as np

import webpte
from tests.studies.soak.decode import resident
from webpte.device import allocated_bytes

MORE = 64 << 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies soak.forks", description=__doc__)
    parser.add_argument("model", help="a .pte language model: tokens and a position to logits")
    parser.add_argument("--forks", type=int, default=100)
    options = parser.parse_args(arguments)
    with webpte.load(options.model) as program:
        method, state = program.method(), program.memory("forward").kinds["state"]
        expected = [_step(method, position) for position in (0, 1)][-1]
        gc.collect()
        taken, memory, before = allocated_bytes(), resident(), method.counters.snapshot()
        forks: list[webpte.Method] = []
        right: list[bool] = []
        stages: dict[str, Callable[[], None]] = {
            "made": lambda: forks.extend(method.fork() for _ in range(options.forks)),
            "called": lambda: right.extend(np.array_equal(_step(fork, 1), expected) for fork in forks),
        }
        more = 0.0
        for name, work in stages.items():
            work()
            gc.collect()
            more = (allocated_bytes() - taken) / options.forks - state
            beside = (resident() - memory) / options.forks - state
            done = method.counters.since(before)
            print(
                f"{name}: {state / 1e6:.3f} MB of state and {more:.0f} bytes on the device for each of {len(forks)}; "
                f"{beside / 1024:.0f} KB of the process beside; "
                f"{done.buffers / options.forks:.1f} buffers, {done.bind_groups / options.forks:.1f} bind groups"
            )
        print(f"right answers: {sum(right)}")
    return int(more > MORE or not all(right))


def _step(method: webpte.Method, position: int) -> np.ndarray:
    return np.asarray(method(np.array([[5]]), np.array([position])))


if __name__ == "__main__":
    sys.exit(main())
