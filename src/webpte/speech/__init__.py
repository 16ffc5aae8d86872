"""Speech to text with Whisper: audio in, text out, over a program that `webpte export` made."""

from .transcriber import Transcriber
from .transcript import Segment, Transcript

__all__ = ["Segment", "Transcriber", "Transcript"]
