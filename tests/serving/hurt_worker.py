"""A worker whose device is lost by a signal: `python -m tests.serving.hurt_worker`. After SIGUSR1 another one can be
opened, after SIGUSR2 none."""

from __future__ import annotations

import os
import signal
import sys

from tests.support.harness.devices import destroy_device
from webpte.device.adapter import ADAPTER_VARIABLE, chosen_adapter
from webpte.embed import LanguageReranker
from webpte.progress import OnProgress
from webpte.serve.messages import ModelFile, WorkerOptions
from webpte.serve.task_workers import EmbeddingModelWorker, Send
from webpte.serve.worker import LanguageModelWorker, ModelWorker, load_model, main

COMMAND = (sys.executable, "-m", "tests.serving.hurt_worker")


opened: list[ModelWorker] = []


def open_fragile(
    file: ModelFile, options: WorkerOptions, most_waiting: int, progress: OnProgress, send: Send
) -> ModelWorker:
    opened.append(load_model(file, options, most_waiting, progress, send))
    return opened[-1]


def lose(*_: object) -> None:
    """The devices of all models."""
    for desk in opened:
        assert isinstance(desk, LanguageModelWorker | EmbeddingModelWorker)
        if isinstance(desk, LanguageModelWorker):
            destroy_device(desk.llm.engine.runner.method)
        else:
            assert not isinstance(desk.embedder, LanguageReranker)
            destroy_device(desk.embedder._forward)


def lose_all(*_: object) -> None:
    """Lose the devices and the adapter. The next worker finds it again."""
    os.environ[ADAPTER_VARIABLE] = "99"
    chosen_adapter.cache_clear()
    lose()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lose)
    signal.signal(signal.SIGUSR2, lose_all)
    sys.exit(main(open_fragile))
