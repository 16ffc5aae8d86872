"""Speech to text with Whisper or Moonshine, by a program that `webpte export` wrote."""

from .transcriber import Segment, Transcriber, Transcript

__all__ = ["Segment", "Transcriber", "Transcript"]
