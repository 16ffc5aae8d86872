"""`Transcriber`: a speech model as a callable from audio to text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..llm.tokenizer import Tokenizer
from ..progress import CancelToken, OnProgress, Progress, cancellable, ignore
from ..runtime import Program
from ..runtime.checks import (
    check_bool,
    check_choice,
    check_int,
    check_optional_callable,
    described,
    did_you_mean,
    wrong_argument,
)
from ..runtime.loading import TaskProgram
from ..task_file import TaskFile, other_export
from ..typing import Array
from .audio import LogMel, load_samples, piece_length
from .decoding import FRAMES_PER_TIMESTAMP, SpeechMethods, TokenRules, TokenSpan, log_probability, split_spans

TASKS = ("transcribe", "translate")
INCOMPLETE = "\ufffd"  # at the end of a text: a character whose last bytes are in the next window
MIN_MEAN_LOG_PROBABILITY = -1.0  # of the tokens of a window; below it, the no-speech probability counts


@dataclass(frozen=True)
class Segment:
    """A part of a transcript between two timestamps."""

    start: float  #: in seconds
    end: float  #: in seconds
    text: str
    tokens: tuple[int, ...]  #: with those of the timestamps


@dataclass(frozen=True)
class Transcript:
    """The result of a `Transcriber`."""

    text: str
    segments: tuple[Segment, ...]  #: with times; empty without `timestamps`
    tokens: tuple[int, ...]
    language: str | None  #: as passed or detected; None for an English-only model

    def __str__(self) -> str:
        return self.text


class DecodedWindow(NamedTuple):
    """The tokens of a window."""

    tokens: list[int]
    silent: bool


class Transcriber(TaskProgram):
    """A speech model that turns audio into text: Whisper or Moonshine.

    Audio is the path of a WAV, MP3, FLAC or Ogg file, or an array of samples with its rate::

        with webpte.speech.Transcriber.load("whisper.pte") as transcriber:
            print(transcriber("speech.wav").text)
    """

    _task = "speech"
    _main_method = "decode"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self._methods = SpeechMethods(program, _convolutions(file))
        self.rate = file.integer("rate", 1000)  #: samples per second of the model
        self._mel: LogMel | None = None  # None: the encoder takes samples, of any number
        if file.has("bands"):
            self._mel = LogMel(self.rate, file.integer("bands", 1), file.integer("fft", 2), file.integer("hop", 1))
        self._hop = self._mel.hop if self._mel is not None else 1  # samples of a frame
        self._window = file.integer("window", 1)  # samples of a window
        self._positions = file.integer("positions", 2)  # of the decoder
        self._max_window_tokens = file.integer("max_length", 1)  # without those of the prompt
        self._rules = TokenRules.read(file, self._methods.vocabulary)
        self._languages = file.integer_map("languages")
        self._names = file.string_map("language_names")
        self._tasks = file.integer_map("tasks")
        self._language = file.choice("language", [*self._languages]) if file.has("language") else None
        file.check_all_read()
        self._check_program()
        self._tokenizer = Tokenizer.load(path.with_name(f"{path.stem}.tokenizer.json"), extra="speech")

    def _check_program(self) -> None:
        actual = (self._methods.bands, self._methods.frames)
        expected = (self._mel.bands if self._mel is not None else 1, self._window // self._hop)
        if actual != expected:
            raise other_export(
                self.path, *(f"{bands} bands of {frames} frames" for bands, frames in (expected, actual))
            )

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the codes of the languages of the model; none for a model of one language."""
        return tuple(self._languages)

    def __call__(
        self,
        audio: Any,
        *,
        rate: int = 16000,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = False,
        no_speech_threshold: float | None = None,
        on_text: Callable[[str], None] | None = None,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
    ) -> Transcript:
        """Return the transcript of a file or of samples: floats or int16, (N,) or (N, channels) at `rate`.

        `language` is a code such as "en" or a name; the default is to detect it. `task="translate"` translates to
        English. With `timestamps`, the transcript has segments with times; those of Moonshine are the pieces between
        silences that longer audio is cut into. If the model's no-speech probability of a window is above
        `no_speech_threshold`, and its tokens have low probabilities, the window is skipped. `on_text` is called with
        the text so far after each window.
        """
        check_choice(task, "task", TASKS)
        code = self._language_code(language, task)
        check_bool(timestamps, "timestamps")
        check_optional_callable(on_text, "on_text", "the text so far")
        threshold = _probability(no_speech_threshold)
        report = cancellable(progress, cancel)
        samples = load_samples(audio, check_int(rate, "rate", 1), self.rate)
        long = len(samples) > self._window
        if self._mel is None:
            run = _Transcription(self, code, task, False, threshold, report, on_text)
            return self._transcript(run(samples[None]), code, timestamps)
        if (timestamps or long) and self._rules.no_timestamps is None:
            raise InputError(
                f"{self.path} has no timestamps, which audio of several windows requires",
                code="no_timestamps",
                hint=f"Pass at most {self._window / self.rate:g} seconds, and timestamps=False.",
            )
        run = _Transcription(self, code, task, timestamps or long, threshold, report, on_text)
        mel = self._mel(samples if long else np.pad(samples, (0, self._window - len(samples))))  # (bands, frames)
        return self._transcript(run(mel), run.language, timestamps)

    def _language_code(self, language: str | None, task: str) -> str | None:
        """Return the code of a language, or None to detect it."""
        if not self._languages:
            if task == "translate" or language not in (None, "en"):
                raise InputError(
                    f"{self.path} is a model of one language", code="one_language", hint="Omit language and task."
                )
            return None
        if language is None:
            return self._language
        if not isinstance(language, str):
            raise wrong_argument("language", "a code such as 'en', or None", language)
        code = {name: code for code, name in self._names.items()}.get(language.lower(), language.lower())
        if code not in self._languages:
            names = [*self._languages, *self._names.values()]
            raise InputError(
                argument="language",
                expected=f"one of the model's {len(self._languages)} languages, such as {names[0]!r}",
                got=f"{described(language)}{did_you_mean(language, names)}",
                code="unknown_language",
            )
        return code

    def _window_frames(self, signal: Array) -> int:
        """Return how many frames of the rest of a signal are its first window."""
        if self._mel is None:
            return piece_length(signal[0], self._methods.frames, self.rate)
        return min(self._methods.frames, len(signal[0]))

    def _transcript(self, spans: list[tuple[float, TokenSpan]], language: str | None, timestamps: bool) -> Transcript:
        step = FRAMES_PER_TIMESTAMP * self._hop / self.rate  # seconds
        segments = []
        for offset, span in spans:
            start, end = (round(offset + stamp * step, 3) for stamp in (span.start, span.end))
            segments.append(Segment(start, end, self._text(span.tokens), span.tokens))
        tokens = tuple(token for segment in segments for token in segment.tokens)
        return Transcript(self._text(tokens), tuple(segments) if timestamps else (), tokens, language)

    def _text(self, tokens: tuple[int, ...]) -> str:
        return self._tokenizer.decode([token for token in tokens if token < self._rules.first_timestamp])

    def __repr__(self) -> str:
        languages = f"{len(self._languages)} languages" if self._languages else "one language"
        return f"Transcriber({str(self.path)!r}, windows of {self._window / self.rate:g} s, {languages})"


def _convolutions(file: TaskFile) -> list[tuple[int, int]]:
    """Return the kernels and strides of an encoder of any length; none for an encoder of whole windows."""
    if not file.has("convolutions"):
        return []
    numbers = file.integers("convolutions", None)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class _Transcription:
    """Transcribes one audio, window by window."""

    def __init__(
        self, owner: Transcriber, language: str | None, task: str, timestamps: bool, threshold: float | None,
        report: OnProgress, on_text: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._rules = owner._rules
        self._methods = owner._methods
        self.language = language
        self._task = task
        self._timestamps = timestamps
        self._threshold = threshold
        self._report = report
        self._on_text = on_text

    def __call__(self, signal: Array) -> list[tuple[float, TokenSpan]]:
        """Return the spans of a spectrogram or samples, (bands, F), each with the start of its window in seconds."""
        least, total = self._methods.min_frames, signal.shape[1]
        result: list[tuple[float, TokenSpan]] = []
        at = 0
        while at < total:
            self._report(Progress("transcribe", at, total, "frames"))
            frames = self._owner._window_frames(signal[:, at:])
            window = np.pad(signal[:, at : at + frames], ((0, 0), (0, max(0, least - frames))))
            with self._methods.exclusive():
                self._methods.encode(window)
                decoded = self._decode()
            spans, step = [TokenSpan(0, frames // FRAMES_PER_TIMESTAMP, tuple(decoded.tokens))], frames
            if decoded.silent:
                spans = []
            elif self._timestamps:
                spans, step = split_spans(decoded.tokens, self._rules.first_timestamp, frames)
            offset = at * self._owner._hop / self._owner.rate
            result += [(offset, span) for span in spans]
            at += step
            if self._on_text is not None:
                text = self._owner._text(tuple(token for _, span in result for token in span.tokens))
                self._on_text(text.rstrip(INCOMPLETE))
        self._report(Progress("transcribe", total, total, "frames"))
        return result

    def _decode(self) -> DecodedWindow:
        """Return the tokens of the encoded window."""
        cached, no_speech = self._detect()
        prompt = self._prompt()
        logits = self._methods.decode(prompt[cached:], cached)
        limit = min(self._owner._max_window_tokens, self._owner._positions - len(prompt))
        tokens: list[int] = []
        total = 0.0
        while len(tokens) < limit:
            self._report(Progress("decode", len(tokens), limit, "tokens"))
            scores = self._rules.mask(logits, tokens, self._timestamps)
            token = int(scores.argmax())
            if self._threshold is not None:
                total += log_probability(scores, token)
            if token == self._rules.end:
                break
            tokens.append(token)
            if len(tokens) < limit:
                logits = self._methods.decode([token], len(prompt) + len(tokens) - 1)
        unsure = total / (len(tokens) + 1) < MIN_MEAN_LOG_PROBABILITY
        return DecodedWindow(tokens, self._threshold is not None and no_speech > self._threshold and unsure)

    def _detect(self) -> tuple[int, float]:
        """Detect the language and speech by the logits after the start token, where either is unknown.

        Return the number of tokens in the decoder's cache, and the no-speech probability."""
        languages, no_speech = self._owner._languages, self._rules.no_speech
        undetected = self.language is None and bool(languages)
        if not undetected and self._threshold is None:
            return 0, 0.0
        logits = self._methods.decode([self._rules.start], 0)
        if undetected:
            self.language = max(languages, key=lambda code: float(logits[languages[code]]))
        cached = 1 if len(self._prompt()) > 1 else 0  # the last token of the prompt must be decoded again
        return cached, math.exp(log_probability(logits, no_speech)) if no_speech is not None else 0.0

    def _prompt(self) -> list[int]:
        """Return the prompt: the start token, language, task, and whether without timestamps."""
        owner, rules = self._owner, self._rules
        tokens = [rules.start]
        if self.language is not None:
            tokens.append(owner._languages[self.language])
            tokens.append(owner._tasks[self._task])
        if not self._timestamps and rules.no_timestamps is not None:
            tokens.append(rules.no_timestamps)
        return tokens


def _probability(value: float | None) -> float | None:
    valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    if value is not None and not valid:
        raise wrong_argument("no_speech_threshold", "a probability from 0 to 1, or None", value, "out_of_range")
    return value
