"""What was said, and when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """A part of what was said, between two timestamps of the model."""

    start: float  #: in seconds
    end: float
    text: str
    tokens: tuple[int, ...]  #: its timestamps included


@dataclass(frozen=True)
class Transcript:
    """What a `Transcriber` made of some audio."""

    text: str
    segments: tuple[Segment, ...]  #: with times; empty unless timestamps were asked for
    tokens: tuple[int, ...]
    language: str | None  #: as it was given or detected; None for a model of one language

    def __str__(self) -> str:
        return self.text
