"""A worker whose device is lost by a signal, SIGUSR1: `python -m tests.serving.hurt_worker`."""

from __future__ import annotations

import signal
import sys

from webpte.progress import OnProgress
from webpte.serve.desks import Desk, EncoderDesk, LanguageDesk, Send, open_desk
from webpte.serve.messages import ModelFile, Options
from webpte.serve.worker import main

COMMAND = (sys.executable, "-m", "tests.serving.hurt_worker")


opened: list[Desk] = []


def open_fragile(file: ModelFile, options: Options, most_waiting: int, progress: OnProgress, send: Send) -> Desk:
    opened.append(open_desk(file, options, most_waiting, progress, send))
    return opened[-1]


def lose(*_: object) -> None:
    """The devices of all models."""
    for desk in opened:
        assert isinstance(desk, LanguageDesk | EncoderDesk)
        gpu = (desk.llm.method if isinstance(desk, LanguageDesk) else desk.embedder.forward)._gpu
        assert gpu is not None
        gpu.device.destroy()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lose)
    sys.exit(main(open_fragile))
