"""A worker whose device is lost by a signal, SIGUSR1: `python -m tests.serving.hurt_worker`."""

from __future__ import annotations

import signal
import sys

from webpte.progress import OnProgress
from webpte.serve.messages import ModelFile, WorkerOptions
from webpte.serve.worker import EmbeddingModelWorker, LanguageModelWorker, ModelWorker, Send, load_model, main

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
        gpu = (desk.llm._method if isinstance(desk, LanguageModelWorker) else desk.embedder._forward)._gpu
        assert gpu is not None
        gpu.device.destroy()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lose)
    sys.exit(main(open_fragile))
