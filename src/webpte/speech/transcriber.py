"""`Transcriber`: a spectrogram by NumPy, the encoder and the decoder by the program, tokens by Whisper's rules."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormatError, InputError
from ..llm.tokenizer import Tokenizer
from ..progress import CancelToken, OnProgress, Progress, ignore, stoppable
from ..runtime import Program
from ..runtime.checks import described, flag, near, one_of, whole
from ..runtime.task_program import TaskProgram
from ..task_file import TaskFile
from .audio import samples_of
from .listening import Listener
from .mel import LogMel
from .rules import Rules, log_probability
from .transcript import Segment, Transcript
from .windows import FRAMES, Said, split

Array = np.ndarray[Any, Any]
TASKS = ("transcribe", "translate")
LEAST_LOG_PROBABILITY = -1.0  # of a token, on average, below which silence is believed


class Window(NamedTuple):
    """What the decoder said of a window."""

    tokens: list[int]
    silent: bool


class Transcriber(TaskProgram):
    """Whisper, by a program with an encoder and a decoder.

    Audio is the path of a WAV file, or samples with their rate::

        with webpte.speech.Transcriber.load("whisper.pte") as transcriber:
            print(transcriber("speech.wav").text)
    """

    task = "speech"

    def __init__(self, program: Program, path: Path, file: TaskFile) -> None:
        super().__init__(program, path, file)
        self._listener = Listener(program)
        self.rate = file.integer("rate", 1000)  #: samples a second that the model wants
        self._mel = LogMel(self.rate, file.integer("bands", 1), file.integer("fft", 2), file.integer("hop", 1))
        self._window = file.integer("window", 1)  # samples that are heard at once
        self._positions = file.integer("positions", 2)  # that the decoder has
        self._most_tokens = file.integer("max_length", 1)  # of a window, those of the prompt not counted
        self._rules = Rules.read(file, self._listener.vocabulary)
        self._languages = file.integer_map("languages")
        self._names = file.string_map("language_names")
        self._tasks = file.integer_map("tasks")
        self._language = file.choice("language", [*self._languages]) if file.has("language") else None
        file.check_all_read()
        self._check_program(file.path)
        self._tokenizer = Tokenizer.load(path.with_name(f"{path.stem}.tokenizer.json"), extra="tasks")

    def _check_program(self, where: str) -> None:
        bands, frames = self._listener.bands, self._listener.frames
        if (bands, frames) != (self._mel.bands, self._window // self._mel.hop):
            raise FormatError(
                f"{self.path} hears {bands} bands of {frames} frames; by {where} it is {self._mel.bands} of "
                f"{self._window // self._mel.hop}. The two are not of one export.",
                code="other_export",
            )

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it knows; none for a model of one."""
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
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
    ) -> Transcript:
        """What is said in a WAV file or in samples: f32 (N,) or (N, channels) at `rate`, which a file says itself.

        `language` is a code such as "en" or a name; without it, it is detected. `task="translate"` translates to
        English. With `timestamps`, there are segments with times. A window is left out where the model thinks with a
        probability above `no_speech_threshold` that nobody speaks, and is unsure of what it hears.
        """
        one_of(task, "task", TASKS)
        chosen = self._language_of(language, task)
        flag(timestamps, "timestamps")
        threshold = _share(no_speech_threshold)
        tell = stoppable(progress, cancel)
        samples = samples_of(audio, whole(rate, "rate", 1), self.rate)
        long = len(samples) > self._window
        if (timestamps or long) and self._rules.no_timestamps is None:
            raise InputError(
                f"{self.path} has no timestamps, by which longer audio is followed: pass at most "
                f"{self._window / self.rate:g} seconds, and timestamps=False",
                code="no_timestamps",
            )
        job = _Job(self, chosen, task, timestamps or long, threshold, tell)
        mel = self._mel(samples if long else np.pad(samples, (0, self._window - len(samples))))  # (bands, frames)
        found = job.run(mel)
        return self._transcript(found, job.language, timestamps)

    def _language_of(self, language: str | None, task: str) -> str | None:
        """A code of the model's."""
        if not self._languages:
            if task == "translate" or language not in (None, "en"):
                raise InputError(f"{self.path} knows English alone: leave out language and task", code="english_only")
            return None
        if language is None:
            return self._language
        if not isinstance(language, str):
            raise InputError(f"language is a code such as 'en', or None, not {described(language)}")
        code = {name: code for code, name in self._names.items()}.get(language.lower(), language.lower())
        if code not in self._languages:
            known = [*self._languages, *self._names.values()]
            raise InputError(f"language is one of the model's {len(self._languages)}, such as "
                             f"{known[0]!r}, not {described(language)}{near(language, known)}")  # fmt: skip
        return code

    def _transcript(self, found: list[tuple[float, Said]], language: str | None, timestamps: bool) -> Transcript:
        step = FRAMES * self._mel.hop / self.rate
        segments = [
            Segment(round(offset + said.start * step, 3), round(offset + said.end * step, 3), self._text(said.tokens),
                    said.tokens)
            for offset, said in found
        ]  # fmt: skip
        tokens = tuple(token for segment in segments for token in segment.tokens)
        return Transcript(self._text(tokens), tuple(segments) if timestamps else (), tokens, language)

    def _text(self, tokens: tuple[int, ...]) -> str:
        return self._tokenizer.decode([token for token in tokens if token < self._rules.first_timestamp])

    def __repr__(self) -> str:
        languages = f"{len(self._languages)} languages" if self._languages else "English"
        return f"Transcriber({str(self.path)!r}, windows of {self._window / self.rate:g} s, {languages})"


class _Job:
    """One audio, window by window."""

    def __init__(
        self, owner: Transcriber, language: str | None, task: str, timestamps: bool, threshold: float | None,
        tell: OnProgress,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._rules = owner._rules
        self._listener = owner._listener
        self.language = language
        self._task = task
        self._timestamps = timestamps
        self._threshold = threshold
        self._tell = tell

    def run(self, mel: Array) -> list[tuple[float, Said]]:
        """Segments, each with the time in seconds at which its window begins."""
        size, total = self._listener.frames, mel.shape[1]
        found: list[tuple[float, Said]] = []
        at = 0
        while at < total:
            self._tell(Progress("transcribe", at, total, "frames"))
            frames = min(size, total - at)
            window = np.pad(mel[:, at : at + frames], ((0, 0), (0, size - frames)))
            with self._listener.exclusive():
                self._listener.hear(window)
                said = self._decode()
            segments, step = [Said(0, frames // FRAMES, tuple(said.tokens))], frames
            if said.silent:
                segments = []
            elif self._timestamps:
                segments, step = split(said.tokens, self._rules.first_timestamp, frames)
            offset = at * self._owner._mel.hop / self._owner.rate
            found += [(offset, segment) for segment in segments]
            at += step
        self._tell(Progress("transcribe", total, total, "frames"))
        return found

    def _decode(self) -> Window:
        """The answer to a window that was heard."""
        known, silence = self._look_first()
        prompt = self._prompt()
        logits = self._listener.logits(prompt[known:], known)
        most = min(self._owner._most_tokens, self._owner._positions - len(prompt))
        said: list[int] = []
        total = 0.0
        while len(said) < most:
            self._tell(Progress("decode", len(said), most, "tokens"))
            allowed = self._rules.allowed(logits, said, self._timestamps)
            token = int(allowed.argmax())
            if self._threshold is not None:
                total += log_probability(allowed, token)
            if token == self._rules.end:
                break
            said.append(token)
            if len(said) < most:
                logits = self._listener.logits([token], len(prompt) + len(said) - 1)
        unsure = total / (len(said) + 1) < LEAST_LOG_PROBABILITY
        return Window(said, self._threshold is not None and silence > self._threshold and unsure)

    def _look_first(self) -> tuple[int, float]:
        """Detect the language, and whether anybody speaks, behind the token that begins a transcript.

        Gives how many tokens the decoder has seen, and the probability of silence."""
        languages, silent = self._owner._languages, self._rules.no_speech
        undetected = self.language is None and bool(languages)
        if not undetected and self._threshold is None:
            return 0, 0.0
        logits = self._listener.logits([self._rules.start], 0)
        if undetected:
            self.language = max(languages, key=lambda code: float(logits[languages[code]]))
        seen = 1 if len(self._prompt()) > 1 else 0  # the last of a prompt is what an answer follows
        return seen, math.exp(log_probability(logits, silent)) if silent is not None else 0.0

    def _prompt(self) -> list[int]:
        """Which language, what to do with it, and whether with timestamps."""
        owner, rules = self._owner, self._rules
        tokens = [rules.start]
        if self.language is not None:
            tokens.append(owner._languages[self.language])
            tokens.append(owner._tasks[self._task])
        if not self._timestamps and rules.no_timestamps is not None:
            tokens.append(rules.no_timestamps)
        return tokens


def _share(value: float | None) -> float | None:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    if value is not None and not right:
        raise InputError(f"no_speech_threshold is a probability from 0 to 1, or None, not {described(value)}")
    return value
