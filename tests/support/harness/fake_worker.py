"""A worker over a fake runner, which does what a test asks for: `python -m tests.support.harness.fake_worker`.

A model whose file is called `slow` is slow, and has room for long answers. A signal loses the device (SIGUSR1) or makes
the next pass hang (SIGUSR2): the worker then takes it for long ago that its work came forward, so that no one waits.
A prompt that begins with POISON ends the process, and one with HUNGRY finds no memory on the device.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.support.harness.fake_runner import VOCABULARY, FakeLLM, FakeRunner
from webpte.errors import OutOfMemory
from webpte.llm.engine.runner import BatchToken, SampleRow
from webpte.llm.sampling import SampledToken
from webpte.progress import OnProgress
from webpte.serve import worker
from webpte.serve.messages import ModelFile, ModelInfo, WorkerOptions
from webpte.serve.task_workers import Send
from webpte.serve.worker import LanguageModelWorker, ModelWorker, main

COMMAND = (sys.executable, "-m", "tests.support.harness.fake_worker")
POISON = VOCABULARY - 1
HUNGRY = VOCABULARY - 2
PASS = 0.002  # seconds
HUNG = 3600.0  # seconds that a pass which hangs seems to take


class SlowRunner(FakeRunner):
    """Takes its time, and can be hurt from outside."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds = seconds
        self._hangs = False
        signal.signal(signal.SIGUSR1, lambda *_: self.lose())
        signal.signal(signal.SIGUSR2, lambda *_: self.__dict__.update(_hangs=True))

    def run(self, rows: Sequence[BatchToken], picks: Sequence[SampleRow]) -> list[SampledToken]:
        if any(row.token == POISON and row.position == 0 for row in rows):
            print("poison", file=sys.stderr, flush=True)
            os._exit(7)
        if any(row.token == HUNGRY and row.position == 0 for row in rows):
            raise OutOfMemory("the device is out of memory in 'step'")
        if self._hangs:
            setattr(worker, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + HUNG))  # noqa: B010
            while True:
                time.sleep(0.05)
        time.sleep(self._seconds)
        return super().run(rows, picks)


class FakeModelWorker(LanguageModelWorker):
    """A worker that describes its models without files."""

    @property
    def info(self) -> ModelInfo:
        llm = self.llm
        name, path = self._file.name, self._file.path
        return ModelInfo(name, path, "language", llm.capacity, llm.vocabulary, 0, llm.max_sequences, "f" * 64, 0)


def open_fake(
    file: ModelFile, options: WorkerOptions, most_waiting: int, progress: OnProgress, send: Send
) -> ModelWorker:
    seconds, capacity = (0.05, 100_000) if "slow" in file.path else (PASS, 256)
    runner = SlowRunner(seconds, max_slots=options.max_sequences, capacity=capacity)
    print("this is no frame", flush=True)  # a library may print
    llm = FakeLLM(
        runner, recover=True, background=True, max_num_seqs=options.max_sequences, max_queue_size=most_waiting
    )
    if options.warmup:
        llm.warmup(progress)
    return FakeModelWorker(file, llm, send)


if __name__ == "__main__":
    sys.exit(main(open_fake))
