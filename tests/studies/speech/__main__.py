"""`python -m tests.studies speech [MODEL ...] [--minutes M]`: real models from PyPI on synthesized speech.

espeak-ng reads 20 sentences, which each model and transformers transcribe. Prints the word error rates, and for how
many sentences the tokens are equal. The same for the segments of a file of M minutes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.studies.speech.checkpoints import write_moonshine, write_whisper
from webpte.checkpoints.moonshine import MAX_SECONDS
from webpte.export import export_checkpoint
from webpte.speech import Transcriber
from webpte.speech.audio import load_samples, piece_length

RATE = 16_000
MAX_TIME_ERROR = 1.1e-3  # seconds: times of pieces are rounded to milliseconds
PAUSE_SECONDS = 0.7  # between the sentences of the long file
SENTENCES = (
    "The library opens at nine in the morning and closes at six.",
    "Please leave your wet umbrella beside the front door.",
    "A small boat drifted slowly across the quiet lake.",
    "My grandmother keeps her recipes in an old wooden box.",
    "The teacher asked the children to draw a map of the village.",
    "Heavy rain is expected in the north by the end of the week.",
    "He repaired the bicycle with nothing but wire and patience.",
    "The market sells fresh bread, apples, cheese and flowers.",
    "We could hear the train long before we saw it.",
    "She has played the violin since she was seven years old.",
    "Turn left after the bridge and follow the river to the mill.",
    "The engine stopped twice before we reached the hotel.",
    "Nobody knew who had painted the picture above the fireplace.",
    "The doctor told him to drink more water and to sleep longer.",
    "Two black cats were sleeping on the warm roof of the car.",
    "The committee will publish its decision next Monday.",
    "There was not enough light to read the letter.",
    "The farmer counted his sheep again and again.",
    "Most of the passengers had already left the ship.",
    "In winter the road over the mountain is closed.",
)


@dataclass(frozen=True)
class Spoken:
    """A text, and its samples at 16 kHz."""

    text: str
    samples: np.ndarray


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return re.findall(r"[a-z0-9']+", text.lower())


def word_errors(spoken: Sequence[str], heard: Sequence[str]) -> int:
    """Return the least number of words to insert, remove and replace."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(spoken, 1):
        before, row[0] = row[0], number
        for at, other in enumerate(heard, 1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (word != other))
    return row[-1]


def spoken(text: str, folder: Path) -> Spoken:
    path = folder / "spoken.wav"
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", str(path), text], check=True)
    return Spoken(text, load_samples(path, RATE, RATE))


def long_file(sentences: Sequence[Spoken], seconds: float) -> Spoken:
    """Return the sentences in turn, with pauses, until the time is over."""
    texts: list[str] = []
    parts: list[np.ndarray] = []
    pause = np.zeros(round(PAUSE_SECONDS * RATE), np.float32)
    while True:
        sentence = sentences[len(texts) % len(sentences)]
        length = sum(map(len, parts)) + len(sentence.samples) + len(pause)
        if length > seconds * RATE:
            return Spoken(" ".join(texts), np.concatenate(parts))
        texts.append(sentence.text)
        parts += [sentence.samples, pause]


class WhisperReference:
    """transformers' greedy decoding."""

    def __init__(self, folder: Path) -> None:
        import transformers

        self._model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, dtype="float32").eval()
        self._features = transformers.WhisperFeatureExtractor.from_pretrained(folder)

    def tokens(self, samples: np.ndarray) -> list[int]:
        """Return the tokens of one window."""
        mel = self._features(samples, sampling_rate=RATE, return_tensors="pt").input_features
        result = self._model.generate(mel, force_unique_generate_call=True)[0].tolist()
        return [token for token in result if token < self._model.config.eos_token_id]

    def segments(self, samples: np.ndarray) -> list[tuple[float, float, list[int]]]:
        """Return the segments of any number of windows."""
        options: dict[str, Any] = {"truncation": False, "padding": "longest", "return_tensors": "pt"}
        mel = self._features(samples, sampling_rate=RATE, **options).input_features
        result = self._model.generate(mel, return_timestamps=True, return_segments=True)["segments"][0]
        return [(float(each["start"]), float(each["end"]), each["tokens"].tolist()) for each in result]


class MoonshineReference:
    """transformers' greedy decoding, and the pieces that `Transcriber` cuts longer audio into."""

    def __init__(self, folder: Path) -> None:
        import transformers

        model = transformers.MoonshineForConditionalGeneration.from_pretrained(folder, dtype="float32")
        self._model = model.eval()

    def tokens(self, samples: np.ndarray) -> list[int]:
        """Return the tokens of one piece."""
        import torch

        _, *result = self._model.generate(torch.tensor(samples[None]))[0].tolist()
        return [token for token in result if token != self._model.generation_config.eos_token_id]

    def segments(self, samples: np.ndarray) -> list[tuple[float, float, list[int]]]:
        """Return the segments of any number of pieces."""
        pieces, at = [], 0
        while at < len(samples):
            end = at + piece_length(samples[at:], MAX_SECONDS * RATE, RATE)
            pieces.append((round(at / RATE, 3), round(end / RATE, 3), self.tokens(samples[at:end])))
            at = end
        return pieces


MODELS: dict[str, tuple[Any, Any]] = {
    "whisper": (write_whisper, WhisperReference),
    "moonshine": (write_moonshine, MoonshineReference),
}


def measure(name: str, sentences: Sequence[Spoken], seconds: float, folder: Path, quantize: str | None) -> bool:
    """Print the figures of a model; return whether it is right."""
    write, reference_class = MODELS[name]
    write(folder / name)
    options: dict[str, Any] = {} if quantize is None else {"quantize": quantize}
    program = export_checkpoint(folder / name, folder / f"{name}.pte", **options)
    reference = reference_class(folder / name)
    with Transcriber.load(program.path) as transcriber:
        text_of = transcriber._tokenizer.decode
        total = sum(len(words(each.text)) for each in sentences)
        ours = theirs = equal = 0
        for each in sentences:
            transcript, expected = transcriber(each.samples), reference.tokens(each.samples)
            errors = word_errors(words(each.text), words(transcript.text))
            print(
                f"{name}: {errors} errors, tokens {_agree([*transcript.tokens] == expected)}:{transcript}", flush=True
            )
            equal += [*transcript.tokens] == expected
            ours += errors
            theirs += word_errors(words(each.text), words(text_of(expected)))
        print(f"{name}: {len(sentences)} sentences, {total} words, {equal} with equal tokens")
        print(f"{name}: word error rate {ours / total:.1%}, in transformers {theirs / total:.1%}", flush=True)
        right = quantize is not None or equal == len(sentences)
        if seconds:
            right &= _measure_long(name, transcriber, reference, long_file(sentences, seconds)) or quantize is not None
    return right


def _agree(equal: bool) -> str:
    return "equal" if equal else "differ"


def _measure_long(name: str, transcriber: Transcriber, reference: Any, whole: Spoken) -> bool:
    began = time.process_time()
    transcript = transcriber(whole.samples, timestamps=True)
    cost = time.process_time() - began
    expected = reference.segments(whole.samples)
    actual = [(each.start, each.end, [*each.tokens]) for each in transcript.segments]
    tokens_equal = [each[2] for each in actual] == [each[2] for each in expected]
    times = [np.array([each[:2] for each in segments]) for segments in (actual, expected)]
    times_equal = len(actual) == len(expected) and bool(np.abs(times[0] - times[1]).max() < MAX_TIME_ERROR)
    errors = word_errors(words(whole.text), words(transcript.text)) / len(words(whole.text))
    rising = bool((np.diff(times[0].reshape(-1)) >= -MAX_TIME_ERROR).all())
    print(
        f"{name}: {len(whole.samples) / RATE:.0f} s in {len(actual)} segments, word error rate {errors:.1%}, "
        f"{cost:.0f} s of CPU time; tokens {_agree(tokens_equal)}, times {_agree(times_equal)}, times rise: {rising}"
    )
    return tokens_equal and times_equal and rising


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies speech", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all unless given")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the long file; 0: none")
    parser.add_argument("--sentences", type=int, default=len(SENTENCES), help="how many of the 20")
    parser.add_argument("--quantize", choices=("8w", "4w"), help="formats of the layers; tokens may then differ")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = [spoken(text, folder) for text in SENTENCES[: args.sentences]]
        results = [
            measure(model, sentences, 60 * args.minutes, folder, args.quantize) for model in args.models or MODELS
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
