"""Speech models in the worker: a request whose file is gone fails alone, and the next one is answered."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import numpy as np

from webpte.serve.messages import Failed, ModelFile, Transcribe, Transcribed
from webpte.serve.task_workers import SpeechModelWorker

WAIT = 30


def transcriber(samples: np.ndarray, **options: Any) -> Any:
    """Stand in for a model: its text is the number of samples."""
    return SimpleNamespace(text=str(len(samples)), language="en", segments=())


def test_transcription_whose_file_is_gone_fails_alone(tmp_path):
    sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
    transcriber.rate = 4  # type: ignore[attr-defined]
    worker = SpeechModelWorker(ModelFile("speech", "speech.pte"), transcriber, sent.put)  # type: ignore[arg-type]
    path = tmp_path / "samples"
    np.zeros(6, "<f4").tofile(path)
    for number, file in ((1, tmp_path / "removed"), (2, path)):
        worker.submit(Transcribe(number, str(file), None, "transcribe", False))
    failed, answered = sent.get(timeout=WAIT), sent.get(timeout=WAIT)
    assert isinstance(failed, Failed) and (failed.id, failed.error, failed.reason) == (1, "InputError", "unreadable")
    assert answered == Transcribed(2, "6", "en", 1.5, ())
