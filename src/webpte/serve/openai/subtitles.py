"""Subtitles: SubRip and WebVTT, from parts of a text with their times."""

from __future__ import annotations

from collections.abc import Iterable

Cue = tuple[float, float, str]  # start and end in seconds, text


def srt(cues: Iterable[Cue]) -> str:
    """Return a SubRip file."""
    return "".join(
        f"{number}\n{_time(start, ',')} --> {_time(end, ',')}\n{_line(text)}\n\n"
        for number, (start, end, text) in enumerate(cues, 1)
    )


def vtt(cues: Iterable[Cue]) -> str:
    """Return a WebVTT file."""
    escapes = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    return "WEBVTT\n\n" + "".join(
        f"{_time(start, '.')} --> {_time(end, '.')}\n{_line(text).translate(escapes)}\n\n" for start, end, text in cues
    )


def _line(text: str) -> str:
    """Return a text as one line: an empty one would end the cue."""
    return " ".join(text.split())


def _time(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{point}{milliseconds:03}"
